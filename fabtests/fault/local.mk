# Power cuts, kills, lying peers.

check_PROGRAMS += fabtests/fault/writeback_error
fabtests_fault_writeback_error_SOURCES = fabtests/fault/writeback_error.c
fabtests_fault_writeback_error_LDADD = prov/core/libcore.la $(PMEM2_LIBS)
EXTRA_DIST += fabtests/fault/writeback_error.sh
TESTS += fabtests/fault/writeback_error.sh
