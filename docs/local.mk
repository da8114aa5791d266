# What is promised, and how it travels.
