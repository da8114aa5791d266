# The baselines of the provider: frozen, so that figures stay comparable.
noinst_LTLIBRARIES += fabtests/benchmarks/librivals.la
fabtests_benchmarks_librivals_la_SOURCES = \
	fabtests/benchmarks/flush.c fabtests/benchmarks/flush.h \
	fabtests/benchmarks/samples.c fabtests/benchmarks/samples.h \
	fabtests/benchmarks/rival.h \
	fabtests/benchmarks/rival_hand.c \
	fabtests/benchmarks/rival_msg.c \
	fabtests/benchmarks/rival_raw.c
fabtests_benchmarks_librivals_la_LIBADD = util/libutil.la
if HAVE_LIBRPMA
fabtests_benchmarks_librivals_la_SOURCES += fabtests/benchmarks/rival_rpma.c
fabtests_benchmarks_librivals_la_LIBADD += $(RPMA_LIBS)
else
EXTRA_DIST += fabtests/benchmarks/rival_rpma.c
endif

# Two processes that write to each other: fi_rpmem_bench, and the suite.
noinst_LTLIBRARIES += fabtests/benchmarks/libbench.la
fabtests_benchmarks_libbench_la_SOURCES = fabtests/benchmarks/bench.h \
	fabtests/benchmarks/bench_bars.c \
	fabtests/benchmarks/bench_bulk.c \
	fabtests/benchmarks/bench_calibrate.c \
	fabtests/benchmarks/bench_cases.c \
	fabtests/benchmarks/bench_file.c \
	fabtests/benchmarks/bench_idle.c \
	fabtests/benchmarks/bench_initiators.c \
	fabtests/benchmarks/bench_local.c \
	fabtests/benchmarks/bench_main.c \
	fabtests/benchmarks/bench_op.c \
	fabtests/benchmarks/bench_plot.c \
	fabtests/benchmarks/bench_pool.c \
	fabtests/benchmarks/bench_remote.c \
	fabtests/benchmarks/bench_probe.c \
	fabtests/benchmarks/bench_report.c \
	fabtests/benchmarks/bench_rivals.c \
	fabtests/benchmarks/bench_run.c \
	fabtests/benchmarks/bench_suite.c \
	fabtests/benchmarks/bench_target.c
bench_libs = fabtests/benchmarks/libbench.la fabtests/benchmarks/librivals.la \
	util/libutil.la prov/core/libcore.la $(JANSSON_LIBS) $(PMEM2_LIBS) \
	$(FABRIC_LIBS) -lm
check_PROGRAMS += fabtests/benchmarks/suite
fabtests_benchmarks_suite_SOURCES = fabtests/benchmarks/suite.c
fabtests_benchmarks_suite_LDADD = $(bench_libs)

check_PROGRAMS += fabtests/benchmarks/rivals
fabtests_benchmarks_rivals_SOURCES = fabtests/benchmarks/rivals.c
fabtests_benchmarks_rivals_LDADD = fabtests/benchmarks/librivals.la \
	util/libutil.la $(PMEM2_LIBS) $(FABRIC_LIBS)
TESTS += fabtests/benchmarks/rivals.sh
EXTRA_DIST += fabtests/benchmarks/group_cost.sh fabtests/benchmarks/nbd.sh \
	fabtests/benchmarks/nbd_pgbench.sh fabtests/benchmarks/options.sh \
	fabtests/benchmarks/pg_quorum.sh fabtests/benchmarks/rebuild.sh \
	fabtests/benchmarks/takeover.py \
	fabtests/benchmarks/rivals.sh fabtests/benchmarks/frozen \
	fabtests/benchmarks/README.md

check_PROGRAMS += fabtests/benchmarks/connected
fabtests_benchmarks_connected_SOURCES = fabtests/benchmarks/connected.c $(pair_sources)
fabtests_benchmarks_connected_LDADD = $(FABRIC_LIBS)

# Case studies, for docs/measurements.md; a short form of each is a test.
study_sources = fabtests/benchmarks/study.c fabtests/benchmarks/study.h \
	$(pair_sources)
study_ldadd = fabtests/benchmarks/librivals.la util/libutil.la \
	$(PMEM2_LIBS) $(FABRIC_LIBS)
check_PROGRAMS += fabtests/benchmarks/transactions fabtests/benchmarks/files
fabtests_benchmarks_transactions_SOURCES = \
	fabtests/benchmarks/transactions.c $(study_sources)
fabtests_benchmarks_transactions_LDADD = $(study_ldadd)
fabtests_benchmarks_files_SOURCES = fabtests/benchmarks/files.c $(study_sources)
fabtests_benchmarks_files_LDADD = $(study_ldadd)
TESTS += fabtests/benchmarks/studies.sh
EXTRA_DIST += fabtests/benchmarks/studies.sh

# Measures bare libfabric, for docs/measurements.md. Compiled, not run, by check.
check_PROGRAMS += fabtests/benchmarks/base_conn
fabtests_benchmarks_base_conn_SOURCES = \
	fabtests/benchmarks/base_conn.c fabtests/benchmarks/base_conn.h \
	fabtests/benchmarks/base_conn_durable.c \
	fabtests/benchmarks/base_conn_endpoints.c \
	fabtests/benchmarks/base_conn_regions.c \
	fabtests/benchmarks/base_conn_tally.c fabtests/benchmarks/base_conn_tally.h \
	fabtests/benchmarks/base_conn_cm.c \
	fabtests/benchmarks/base_conn_many.c \
	fabtests/benchmarks/base_conn_node.c \
	fabtests/benchmarks/base_conn_setup.c
fabtests_benchmarks_base_conn_LDADD = fabtests/benchmarks/librivals.la util/libutil.la $(PMEM2_LIBS) $(FABRIC_LIBS) \
	-lpthread

check_PROGRAMS += fabtests/benchmarks/group
fabtests_benchmarks_group_SOURCES = fabtests/benchmarks/group.c
fabtests_benchmarks_group_LDADD = util/librpmem_pool.la
check_PROGRAMS += fabtests/benchmarks/rebuild
fabtests_benchmarks_rebuild_SOURCES = fabtests/benchmarks/rebuild.c
fabtests_benchmarks_rebuild_LDADD = util/librpmem_pool.la
if HAVE_PMEMOBJ
check_PROGRAMS += fabtests/benchmarks/replica
fabtests_benchmarks_replica_LDADD = fabtests/benchmarks/librivals.la \
	util/librpmem.la util/libutil.la \
	prov/core/libcore.la $(PMEMOBJ_LIBS) $(FABRIC_LIBS)
endif
EXTRA_DIST += fabtests/benchmarks/replica.sh
check_PROGRAMS += fabtests/benchmarks/msync_ways
fabtests_benchmarks_msync_ways_SOURCES = fabtests/benchmarks/msync_ways.c
fabtests_benchmarks_msync_ways_LDADD = fabtests/benchmarks/librivals.la util/libutil.la \
	$(PMEM2_LIBS) $(FABRIC_LIBS)
check_PROGRAMS += fabtests/benchmarks/places
fabtests_benchmarks_places_SOURCES = fabtests/benchmarks/places.c
fabtests_benchmarks_places_LDADD = fabtests/benchmarks/librivals.la util/libutil.la \
	$(PMEM2_LIBS) $(FABRIC_LIBS)
check_PROGRAMS += fabtests/benchmarks/log
fabtests_benchmarks_log_SOURCES = fabtests/benchmarks/log.c
fabtests_benchmarks_log_LDADD = util/librpmem_log.la util/librpmem_pool.la

# raft.sh compiles the server of the examples, and runs this.
check_PROGRAMS += fabtests/benchmarks/raft
fabtests_benchmarks_raft_SOURCES = fabtests/benchmarks/raft.c
fabtests_benchmarks_raft_LDADD =
EXTRA_DIST += fabtests/benchmarks/raft.sh fabtests/benchmarks/raft_memory.c

check_PROGRAMS += fabtests/benchmarks/rpc
fabtests_benchmarks_rpc_SOURCES = fabtests/benchmarks/rpc.c
fabtests_benchmarks_rpc_LDADD = util/librpmem_rpc.la util/librpmem_pool.la

# plot.sh compiles the server of the examples, and runs this.
check_PROGRAMS += fabtests/benchmarks/ycsb
fabtests_benchmarks_ycsb_SOURCES = fabtests/benchmarks/ycsb.c
fabtests_benchmarks_ycsb_LDADD = util/librpmem_rpc.la util/librpmem_pool.la -lm
EXTRA_DIST += fabtests/benchmarks/plot.sh
