# The baselines of the provider: frozen, so that figures stay comparable.
noinst_LTLIBRARIES += fabtests/benchmarks/librivals.la
fabtests_benchmarks_librivals_la_SOURCES = \
	fabtests/benchmarks/rival.h \
	fabtests/benchmarks/rival_hand.c \
	fabtests/benchmarks/rival_msg.c \
	fabtests/benchmarks/rival_raw.c
fabtests_benchmarks_librivals_la_LIBADD = util/libutil.la
if HAVE_LIBRPMA
fabtests_benchmarks_librivals_la_SOURCES += fabtests/benchmarks/rival_rpma.c
fabtests_benchmarks_librivals_la_CPPFLAGS = $(AM_CPPFLAGS) $(RPMA_CFLAGS)
fabtests_benchmarks_librivals_la_LIBADD += $(RPMA_LIBS)
else
EXTRA_DIST += fabtests/benchmarks/rival_rpma.c
endif

check_PROGRAMS += fabtests/benchmarks/rivals
fabtests_benchmarks_rivals_SOURCES = fabtests/benchmarks/rivals.c
fabtests_benchmarks_rivals_LDADD = fabtests/benchmarks/librivals.la \
	util/libutil.la $(PMEM2_LIBS) $(FABRIC_LIBS)
TESTS += fabtests/benchmarks/rivals.sh
EXTRA_DIST += fabtests/benchmarks/rivals.sh fabtests/benchmarks/frozen

check_PROGRAMS += fabtests/benchmarks/connected
fabtests_benchmarks_connected_SOURCES = fabtests/benchmarks/connected.c $(pair_sources)
fabtests_benchmarks_connected_CPPFLAGS = $(pair_cppflags)
fabtests_benchmarks_connected_LDADD = $(FABRIC_LIBS)

# Measures bare libfabric, for docs/measurements.md. Compiled, not run, by check.
check_PROGRAMS += fabtests/benchmarks/base_conn
fabtests_benchmarks_base_conn_SOURCES = \
	fabtests/benchmarks/base_conn.c fabtests/benchmarks/base_conn.h \
	fabtests/benchmarks/base_conn_durable.c \
	fabtests/benchmarks/base_conn_facts.c \
	fabtests/benchmarks/base_conn_cm.c \
	fabtests/benchmarks/base_conn_many.c \
	fabtests/benchmarks/base_conn_node.c \
	fabtests/benchmarks/base_conn_setup.c
fabtests_benchmarks_base_conn_LDADD = util/libutil.la $(PMEM2_LIBS) $(FABRIC_LIBS) \
	-lpthread
