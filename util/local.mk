# The programs an operator runs.
