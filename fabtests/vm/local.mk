# A guest with DAX and an RDMA device. util/check.sh --vm runs it.
EXTRA_DIST += fabtests/vm/guest fabtests/vm/guest.sh fabtests/vm/image.sh \
	fabtests/vm/guest_build.sh fabtests/vm/planted.sh fabtests/vm/lib.sh \
	fabtests/vm/tests.sh fabtests/vm/flush.sh fabtests/vm/flush.c \
	fabtests/vm/verbs.sh fabtests/vm/pools.sh fabtests/vm/lives.sh \
	fabtests/vm/tunnel.sh \
	fabtests/vm/sides.sh fabtests/vm/two.sh \
	fabtests/vm/machine.sh fabtests/vm/cached.sh \
	fabtests/vm/cuts.sh fabtests/vm/writeback.py \
	fabtests/vm/images.py fabtests/vm/methods \
	fabtests/vm/rivals.sh fabtests/vm/trace.sh fabtests/vm/trace.awk

# Write-backs of the guest's device for durable writes of the provider.
EXTRA_DIST += fabtests/vm/native.c
check_PROGRAMS += fabtests/vm/native
fabtests_vm_native_SOURCES = fabtests/vm/native.c $(pair_sources)
fabtests_vm_native_LDADD = $(FABRIC_LIBS)

# The verbs shim over the guest's device.
EXTRA_DIST += fabtests/vm/shim.c fabtests/vm/shim.sh \
	fabtests/vm/ends.c fabtests/vm/ends.h \
	fabtests/vm/shim_cost.c fabtests/vm/shim_cut.c \
	fabtests/vm/shim_rivals.c \
	fabtests/vm/preload.c fabtests/vm/preload.sh
if HAVE_VERBS
check_PROGRAMS += fabtests/vm/shim
fabtests_vm_shim_SOURCES = fabtests/vm/shim.c fabtests/vm/ends.c \
	fabtests/vm/ends.h
fabtests_vm_shim_LDADD = prov/verbs/libshim.la prov/core/libcore.la $(VERBS_LIBS)
check_PROGRAMS += fabtests/vm/shim_cost fabtests/vm/shim_cut
fabtests_vm_shim_cost_SOURCES = fabtests/vm/shim_cost.c fabtests/vm/ends.c \
	fabtests/vm/ends.h
fabtests_vm_shim_cost_LDADD = $(fabtests_vm_shim_LDADD)
fabtests_vm_shim_cut_SOURCES = fabtests/vm/shim_cut.c fabtests/vm/ends.c \
	fabtests/vm/ends.h fabtests/fault/record.h
fabtests_vm_shim_cut_LDADD = $(fabtests_vm_shim_LDADD)
# The verbs shim with fault points.
check_PROGRAMS += fabtests/vm/shim_cut_faults
fabtests_vm_shim_cut_faults_SOURCES = $(fabtests_vm_shim_cut_SOURCES) \
	$(rc_flush) $(core_faults) $(fault_points)
fabtests_vm_shim_cut_faults_CPPFLAGS = $(AM_CPPFLAGS) -DRP_FAULTS
fabtests_vm_shim_cut_faults_LDADD = $(fabtests_vm_shim_LDADD)
# Comparisons with librpma, if it is installed.
check_PROGRAMS += fabtests/vm/shim_rivals
fabtests_vm_shim_rivals_SOURCES = fabtests/vm/shim_rivals.c fabtests/vm/ends.c \
	fabtests/vm/ends.h
fabtests_vm_shim_rivals_LDADD = $(fabtests_benchmarks_rivals_LDADD) \
	$(fabtests_vm_shim_LDADD)
endif

# The script that judges a guest's packets, tested without a guest.
TESTS += fabtests/vm/trace_cases.sh
EXTRA_DIST += fabtests/vm/trace_cases.sh

# Private connections over the guest's device.
EXTRA_DIST += fabtests/vm/rc_pair.c fabtests/vm/bare_key.c
if HAVE_RDMACM
check_PROGRAMS += fabtests/vm/rc_pair
fabtests_vm_rc_pair_SOURCES = fabtests/vm/rc_pair.c
fabtests_vm_rc_pair_LDADD = prov/rc/librc.la prov/core/libcore.la \
	$(FABRIC_LIBS) $(RDMACM_LIBS)
check_PROGRAMS += fabtests/vm/bare_key
fabtests_vm_bare_key_SOURCES = fabtests/vm/bare_key.c
fabtests_vm_bare_key_LDADD = prov/rc/librc.la prov/core/libcore.la \
	util/libutil.la $(NETTLE_LIBS) $(FABRIC_LIBS) $(RDMACM_LIBS)
endif
