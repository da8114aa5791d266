# The programs of an operator, and their shared library.
EXTRA_DIST += util/quickstart.sh util/check.sh util/packages.sh \
	util/trust.sh util/tally.sh util/budget.sh util/fabtests.sh \
	util/lint.sh util/lint.known util/lint.cppcheck .clang-tidy
noinst_LTLIBRARIES += util/libutil.la
util_libutil_la_SOURCES = \
	util/bytes.h \
	util/fabric.c util/fabric.h \
	util/machine_facts.c util/machine_facts.h \
	util/flush.c util/flush.h \
	util/samples.c util/samples.h \
	util/file.c util/file.h \
	util/pool.c util/pool.h \
	util/query.c util/query.h \
	util/secret.c util/secret.h \
	util/setup.c util/setup.h \
	util/setup_client.c util/setup_client.h \
	util/setup_server.c util/setup_server.h \
	util/text.c util/text.h
util_libutil_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DRP_PROVIDER_DIR='"$(rpmemdir)"'
util_libutil_la_LIBADD = $(FABRIC_LIBS) $(NETTLE_LIBS) $(PMEM2_LIBS) -lm

bin_PROGRAMS += util/fi_rpmem_bench
util_fi_rpmem_bench_SOURCES = util/fi_rpmem_bench.c util/bench.h util/exits.h \
	util/bench_bars.c \
	util/bench_bulk.c util/bench_calibrate.c util/bench_cases.c \
	util/bench_initiators.c util/bench_file.c util/bench_idle.c \
	util/bench_local.c \
	util/bench_op.c util/bench_plot.c util/bench_pool.c util/bench_probe.c \
	util/bench_report.c util/bench_rivals.c util/bench_run.c \
	util/bench_suite.c util/bench_target.c
util_fi_rpmem_bench_LDADD = fabtests/benchmarks/librivals.la util/libutil.la \
	prov/core/libcore.la $(JANSSON_LIBS) $(PMEM2_LIBS) $(FABRIC_LIBS) -lm

bin_PROGRAMS += util/fi_rpmem_info
util_fi_rpmem_info_SOURCES = util/fi_rpmem_info.c util/info.h util/exits.h \
	util/info_advice.c util/info_host.c util/info_path.c \
	util/info_table.c util/info_target.c \
	util/doctor.c util/doctor_commit.c util/doctor_filter.c
util_fi_rpmem_info_LDADD = util/libutil.la prov/core/libcore.la \
	$(JANSSON_LIBS) $(FABRIC_LIBS) -ldl

bin_PROGRAMS += util/fi_rpmemd
util_fi_rpmemd_SOURCES = util/fi_rpmemd.c util/exits.h
util_fi_rpmemd_LDADD = util/libutil.la prov/core/libcore.la $(FABRIC_LIBS)

bin_PROGRAMS += util/fi_rpmem_cp
util_fi_rpmem_cp_SOURCES = util/fi_rpmem_cp.c util/exits.h util/copy.c \
	util/copy.h util/copy_up.c util/copy_down.c util/progress.c \
	util/progress.h
util_fi_rpmem_cp_LDADD = util/libutil.la prov/core/libcore.la \
	$(JANSSON_LIBS) $(NETTLE_LIBS) $(FABRIC_LIBS)
