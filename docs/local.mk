# What is promised, and how it travels.
dist_doc_DATA += docs/guarantees.md
