# MPI programs, which do not know the provider.
mpi_tests = fabtests/integration/durable.sh fabtests/integration/openmpi.sh \
	fabtests/integration/persist.sh
TESTS += $(mpi_tests) fabtests/integration/redis_log.sh
EXTRA_DIST += $(mpi_tests) fabtests/integration/redis_log.sh \
	fabtests/integration/redis_log.py fabtests/integration/redis_hook.c fabtests/integration/mpi.sh \
	fabtests/integration/databases.py fabtests/integration/file_system.py \
	fabtests/integration/group_databases.py fabtests/integration/volume.py \
	fabtests/integration/ledger.py \
	fabtests/integration/databases.sh fabtests/integration/nbd_kernels.sh \
	fabtests/integration/storage_recipes.sh fabtests/integration/lives.sh \
	fabtests/integration/mpich_rma.sh fabtests/integration/pmdk_remote.sh \
	fabtests/integration/kills.sh fabtests/integration/mixed.c \
	fabtests/integration/mixed.h fabtests/integration/mixed_direct.c \
	fabtests/integration/mixed_notes.c \
	fabtests/integration/mpi_test.h \
	fabtests/integration/onesided.c fabtests/integration/persist.c fabtests/integration/pt2pt.c \
	fabtests/integration/window.c
