# The libfabric provider: one file per libfabric object.
