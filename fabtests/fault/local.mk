# Power cuts, kills, and hostile peers.

check_PROGRAMS += fabtests/fault/writeback_error
fabtests_fault_writeback_error_SOURCES = fabtests/fault/writeback_error.c
fabtests_fault_writeback_error_LDADD = util/libutil.la prov/core/libcore.la \
	$(PMEM2_LIBS)
EXTRA_DIST += fabtests/fault/writeback_error.sh
TESTS += fabtests/fault/writeback_error.sh

# The sources of prov with fault injection points, and the functions they call.
check_LTLIBRARIES += fabtests/fault/libfaults.la
fault_points = fabtests/fault/points.c
fabtests_fault_libfaults_la_SOURCES = $(core_faults) $(fault_points)
if HAVE_VERBS
fabtests_fault_libfaults_la_SOURCES += $(rc_flush)
endif
fabtests_fault_libfaults_la_CPPFLAGS = $(AM_CPPFLAGS) -DRP_FAULTS

# The provider with fault points, in a separate folder.
check_LTLIBRARIES += fabtests/fault/librpmem-fault-fi.la
fabtests_fault_librpmem_fault_fi_la_SOURCES = $(rpmem_sources) prov/rpmem/os_services.c \
	$(rc_sources) $(core_sources)
fabtests_fault_librpmem_fault_fi_la_LDFLAGS = \
	$(prov_rpmem_librpmem_fi_la_LDFLAGS) -rpath /nowhere
fabtests_fault_librpmem_fault_fi_la_LIBADD = fabtests/fault/libfaults.la $(FABRIC_LIBS) \
	$(PMEM2_LIBS) $(rpmem_libs) -lpthread

# fi_rpmemd with fault points, which precede the originals in libutil.la.
check_LIBRARIES += fabtests/fault/libpoolfaults.a
fabtests_fault_libpoolfaults_a_SOURCES = util/pool.c util/dirty_shutdowns.c $(fault_points)
fabtests_fault_libpoolfaults_a_CPPFLAGS = $(AM_CPPFLAGS) -DRP_FAULTS
check_PROGRAMS += fabtests/fault/fi_rpmemd_faults
fabtests_fault_fi_rpmemd_faults_SOURCES = $(util_fi_rpmemd_SOURCES)
fabtests_fault_fi_rpmemd_faults_LDADD = fabtests/fault/libpoolfaults.a \
	$(util_fi_rpmemd_LDADD)

# The shim's preload library with fault points, for the guest.
if HAVE_PRELOAD
check_LTLIBRARIES += fabtests/fault/libibvrpmem_preload-fault.la
fabtests_fault_libibvrpmem_preload_fault_la_SOURCES = $(pre_sources) \
	$(shim_sources) $(core_sources)
fabtests_fault_libibvrpmem_preload_fault_la_LDFLAGS = $(preload_ldflags) \
	-rpath /nowhere
fabtests_fault_libibvrpmem_preload_fault_la_LIBADD = \
	fabtests/fault/libfaults.la $(PMEM2_LIBS) \
	$(VERBS_LIBS) -lpthread -ldl
endif

# A preload library that records which bytes are on the medium.
check_LTLIBRARIES += fabtests/fault/libshadow.la
fabtests_fault_libshadow_la_SOURCES = fabtests/fault/shadow.c
fabtests_fault_libshadow_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
fabtests_fault_libshadow_la_LIBADD = -ldl

check_PROGRAMS += fabtests/fault/powercut
fabtests_fault_powercut_SOURCES = fabtests/fault/powercut.c \
	fabtests/fault/record.h $(pair_sources)
fabtests_fault_powercut_LDADD = $(FABRIC_LIBS)
fault_tests = fabtests/fault/powercut.sh fabtests/fault/powercut_lines.sh \
	fabtests/fault/powercut_msg.sh \
	fabtests/fault/powercut_noflush.sh
TESTS += $(fault_tests)
EXTRA_DIST += $(fault_tests)

# Targets that die, stop and restart, and disks that fail.
duo_sources = fabtests/fault/duo.c fabtests/fault/duo.h $(pair_sources)
check_PROGRAMS += fabtests/fault/death fabtests/fault/broken
fabtests_fault_death_SOURCES = fabtests/fault/death.c $(duo_sources)
fabtests_fault_death_LDADD = $(FABRIC_LIBS)
fabtests_fault_broken_SOURCES = fabtests/fault/broken.c $(duo_sources)
fabtests_fault_broken_LDADD = $(FABRIC_LIBS)
TESTS += fabtests/fault/death fabtests/fault/broken.sh
EXTRA_DIST += fabtests/fault/broken.sh

check_PROGRAMS += fabtests/fault/silent_peer
fabtests_fault_silent_peer_SOURCES = fabtests/fault/silent_peer.c $(duo_sources)
fabtests_fault_silent_peer_LDADD = $(FABRIC_LIBS) -lpthread
TESTS += fabtests/fault/silent_peer

check_PROGRAMS += fabtests/fault/local_read
fabtests_fault_local_read_SOURCES = fabtests/fault/local_read.c $(duo_sources)
fabtests_fault_local_read_LDADD = $(FABRIC_LIBS)
TESTS += fabtests/fault/local_read.sh
EXTRA_DIST += fabtests/fault/local_read.sh

# Tests for the guest, which has an RDMA device.
check_PROGRAMS += fabtests/fault/device
fabtests_fault_device_SOURCES = fabtests/fault/device.c $(duo_sources)
fabtests_fault_device_LDADD = $(FABRIC_LIBS)

# Tests for two guests.
check_PROGRAMS += fabtests/fault/machines
fabtests_fault_machines_SOURCES = fabtests/fault/machines.c $(pair_sources)
fabtests_fault_machines_LDADD = $(FABRIC_LIBS)

# A socket that can send any bytes as one end of a private connection.
frame_peer = fabtests/fault/frame_peer.c fabtests/fault/frame_peer.h
check_PROGRAMS += fabtests/fault/badinput
fabtests_fault_badinput_SOURCES = fabtests/fault/badinput.c $(frame_peer) \
	$(duo_sources)
fabtests_fault_badinput_LDADD = prov/core/libcore.la $(FABRIC_LIBS)
TESTS += fabtests/fault/badinput

check_PROGRAMS += fabtests/fault/badatomic
fabtests_fault_badatomic_SOURCES = fabtests/fault/badatomic.c $(duo_sources)
fabtests_fault_badatomic_LDADD = $(FABRIC_LIBS)
TESTS += fabtests/fault/badatomic

# What the tools guarantee.
word_tests = fabtests/fault/cp_power.sh fabtests/fault/disk_full.sh
TESTS += $(word_tests)
EXTRA_DIST += $(word_tests)

# The provider on a machine that a test simulates.
check_LTLIBRARIES += fabtests/fault/librpmem-sim-fi.la
fabtests_fault_librpmem_sim_fi_la_SOURCES = $(rpmem_sources) $(rc_sources) $(core_sources) \
	fabtests/fault/host_sim.c fabtests/fault/host_sim.h \
	fabtests/fault/sim_rc.c fabtests/fault/sim_rc.h fabtests/fault/sim_rc_cm.c
fabtests_fault_librpmem_sim_fi_la_LDFLAGS = -module -avoid-version -shared \
	-export-symbols-regex '^(fi_prov_ini|rp_host_sim)$$' -rpath /nowhere
fabtests_fault_librpmem_sim_fi_la_LIBADD = $(fabtests_fault_librpmem_fault_fi_la_LIBADD)

# Every scenario with every method, on the simulated fabric.
check_PROGRAMS += fabtests/fault/crash_matrix
fabtests_fault_crash_matrix_SOURCES = \
	fabtests/fault/crash_cells.c fabtests/fault/crash_cells.h \
	fabtests/fault/crash_choice.c fabtests/fault/crash_choice.h \
	fabtests/fault/crash_conn.c \
	fabtests/fault/crash_inplace.c fabtests/fault/crash_inplace.h \
	fabtests/fault/crash_machine.c fabtests/fault/crash_matrix.c \
	fabtests/fault/crash_node.c fabtests/fault/crash_node.h \
	fabtests/fault/crash_ops.h \
	fabtests/fault/crash_oracle.c fabtests/fault/crash_oracle.h \
	fabtests/fault/crash_programs.c fabtests/fault/crash_programs.h \
	fabtests/fault/crash_programs_conn.c \
	fabtests/fault/crash_search.c fabtests/fault/crash_search.h \
	fabtests/fault/crash_shrink.c fabtests/fault/crash_truth.c \
	fabtests/fault/crash_weakening.c \
	fabtests/fault/crash_world.c fabtests/fault/crash_world.h \
	fabtests/fault/crash_world_acts.c \
	fabtests/fault/crash_world_conn.c fabtests/fault/crash_world_facts.c \
	fabtests/fault/crash_world_priv.h \
	fabtests/fault/host_sim.h fabtests/fault/verdicts.c fabtests/fault/verdicts.h
fabtests_fault_crash_matrix_LDADD = prov/core/libcore.la prov/pmsim/libmodel.la \
	$(FABRIC_LIBS) $(JANSSON_LIBS) -ldl
crash_tests = fabtests/fault/crash_matrix.sh fabtests/fault/crash_conn.sh \
	fabtests/fault/crash_planted.sh fabtests/fault/crash_weaken.sh
TESTS += $(crash_tests)
EXTRA_DIST += $(crash_tests) fabtests/fault/crash_planted

# librpmem_log on the simulated fabric.
check_PROGRAMS += fabtests/fault/crash_log
crash_pool = fabtests/fault/crash_pool.c fabtests/fault/crash_pool.h \
	fabtests/fault/crash_choice.c fabtests/fault/crash_choice.h \
	fabtests/fault/crash_node.c fabtests/fault/crash_node.h \
	fabtests/fault/host_sim.h
fabtests_fault_crash_log_SOURCES = fabtests/fault/crash_log.c $(crash_pool)
fabtests_fault_crash_log_LDFLAGS = -Wl,--wrap=getrandom
fabtests_fault_crash_log_LDADD = util/liblog/liblog.la util/librpmem_pool.la prov/core/libcore.la \
	prov/pmsim/libmodel.la $(XXHASH_LIBS) $(FABRIC_LIBS) -lpthread -ldl
TESTS += fabtests/fault/crash_log.sh
EXTRA_DIST += fabtests/fault/crash_log.sh

# librpmem_pool on the simulated fabric.
check_PROGRAMS += fabtests/fault/crash_dirty
fabtests_fault_crash_dirty_SOURCES = fabtests/fault/crash_dirty.c $(crash_pool) \
	util/libpool/error.c util/libpool/journal.c util/libpool/commits.c \
	util/libpool/piece.c util/libpool/wait.c util/libpool/work.c
# With objects of its own: the library has others.
fabtests_fault_crash_dirty_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_fault_crash_dirty_LDFLAGS = -Wl,--wrap=getrandom
fabtests_fault_crash_dirty_LDADD = util/libutil.la prov/core/libcore.la \
	prov/pmsim/libmodel.la $(FABRIC_LIBS) -lpthread -ldl -lm
TESTS += fabtests/fault/crash_dirty.sh
EXTRA_DIST += fabtests/fault/crash_dirty.sh

# librpmem_rpc on the simulated fabric.
check_PROGRAMS += fabtests/fault/crash_rpc
fabtests_fault_crash_rpc_SOURCES = fabtests/fault/crash_rpc.c $(crash_pool) $(rpc_stub)
fabtests_fault_crash_rpc_LDFLAGS = -Wl,--wrap=getrandom
fabtests_fault_crash_rpc_LDADD = util/librpc/librpc.la util/libutil.la prov/core/libcore.la \
	prov/pmsim/libmodel.la $(XXHASH_LIBS) $(FABRIC_LIBS) -lpthread -ldl
TESTS += fabtests/fault/crash_rpc.sh
EXTRA_DIST += fabtests/fault/crash_rpc.sh

# The scenarios of the crash matrix over a queue pair, by the verbs shim.
crash_shim_sources = \
	fabtests/fault/crash_cells.h \
	fabtests/fault/crash_choice.c fabtests/fault/crash_choice.h \
	fabtests/fault/crash_matrix.c fabtests/fault/crash_ops.h \
	fabtests/fault/crash_oracle.c fabtests/fault/crash_oracle.h \
	fabtests/fault/crash_programs.h fabtests/fault/crash_search.c \
	fabtests/fault/crash_search.h fabtests/fault/crash_shim.h \
	fabtests/fault/crash_shim_agent.c fabtests/fault/crash_shim_priv.h \
	fabtests/fault/crash_shim_cells.c fabtests/fault/crash_shim_facts.c \
	fabtests/fault/crash_shim_programs.c \
	fabtests/fault/crash_shim_world.c fabtests/fault/crash_shrink.c \
	fabtests/fault/crash_truth.c fabtests/fault/crash_weakening.c \
	fabtests/fault/crash_world.h \
	fabtests/fault/verdicts.c fabtests/fault/verdicts.h \
	fabtests/unit/side_host.h
EXTRA_DIST += $(crash_shim_sources) fabtests/fault/crash_shim.sh
if HAVE_VERBS
check_PROGRAMS += fabtests/fault/crash_shim
fabtests_fault_crash_shim_SOURCES = $(crash_shim_sources)
fabtests_fault_crash_shim_LDADD = prov/verbs/libshim.la prov/core/libcore.la \
	prov/pmsim/libmodel.la $(PMEM2_LIBS) $(VERBS_LIBS) $(JANSSON_LIBS) -lpthread
TESTS += fabtests/fault/crash_shim.sh
endif

# Commits without the agent, on the simulated fabric.
check_PROGRAMS += fabtests/fault/fence
fabtests_fault_fence_SOURCES = fabtests/fault/fence.c \
	fabtests/fault/crash_node.c fabtests/fault/crash_node.h \
	fabtests/fault/host_sim.h
fabtests_fault_fence_LDADD = prov/core/libcore.la prov/pmsim/libmodel.la \
	$(FABRIC_LIBS) -ldl
TESTS += fabtests/fault/fence.sh
EXTRA_DIST += fabtests/fault/fence.sh

# Scale: many commits, ranges, bytes and peers.
check_PROGRAMS += fabtests/fault/scale
fabtests_fault_scale_SOURCES = fabtests/fault/scale.c fabtests/fault/scale.h \
	fabtests/fault/scale_commits.c fabtests/fault/scale_mesh.c \
	fabtests/fault/scale_peers.c fabtests/fault/scale_ranges.c $(pair_sources)
fabtests_fault_scale_LDADD = $(FABRIC_LIBS)
TESTS += fabtests/fault/scale.sh
EXTRA_DIST += fabtests/fault/scale.sh

# One end of a private connection sends false messages, next to an honest one.
check_PROGRAMS += fabtests/fault/hostile
fabtests_fault_hostile_SOURCES = fabtests/fault/hostile.c \
	fabtests/fault/hostile.h fabtests/fault/hostile_conn.c \
	fabtests/fault/hostile_connects.c fabtests/fault/hostile_messages.c \
	fabtests/fault/hostile_rules.c fabtests/fault/hostile_victims.c \
	$(frame_peer) $(pair_sources)
fabtests_fault_hostile_LDFLAGS = -export-dynamic
fabtests_fault_hostile_LDADD = prov/core/libcore.la $(FABRIC_LIBS) -ldl
check_PROGRAMS += fabtests/fault/false_target
fabtests_fault_false_target_SOURCES = fabtests/fault/false_target.c \
	fabtests/fault/false_target_cases.c fabtests/fault/false_target_cases.h \
	$(frame_peer) $(duo_sources)
fabtests_fault_false_target_LDADD = prov/core/libcore.la $(FABRIC_LIBS)
TESTS += fabtests/fault/hostile fabtests/fault/false_target

# All kinds of faults at the same time.
check_PROGRAMS += fabtests/fault/faults
fabtests_fault_faults_SOURCES = fabtests/fault/faults.c \
	fabtests/fault/faults.h fabtests/fault/faults_preload.c \
	fabtests/fault/faults_sides.c $(pair_sources)
fabtests_fault_faults_LDFLAGS = -export-dynamic
fabtests_fault_faults_LDADD = prov/core/libcore.la $(FABRIC_LIBS) -ldl
TESTS += fabtests/fault/faults.sh
EXTRA_DIST += fabtests/fault/faults.sh

# A failed operation, and later operations on the same bytes.
testbed_sources = fabtests/fault/testbed.c fabtests/fault/testbed.h $(pair_sources)
fault_private_tests = fabtests/fault/late_store fabtests/fault/cut_atomic \
	fabtests/fault/source_buffer fabtests/fault/guessed_key \
	fabtests/fault/flood fabtests/fault/removed_address
check_PROGRAMS += $(fault_private_tests)
TESTS += $(fault_private_tests)
fabtests_fault_late_store_SOURCES = fabtests/fault/late_store.c $(testbed_sources)
fabtests_fault_late_store_LDADD = $(FABRIC_LIBS)
fabtests_fault_cut_atomic_SOURCES = fabtests/fault/cut_atomic.c $(testbed_sources)
fabtests_fault_cut_atomic_LDADD = $(FABRIC_LIBS)
fabtests_fault_source_buffer_SOURCES = fabtests/fault/source_buffer.c $(testbed_sources)
fabtests_fault_source_buffer_LDADD = $(FABRIC_LIBS)
fabtests_fault_guessed_key_SOURCES = fabtests/fault/guessed_key.c $(frame_peer) \
	fabtests/fault/testbed_daemon.c fabtests/fault/testbed_daemon.h $(testbed_sources)
fabtests_fault_guessed_key_LDADD = util/libutil.la $(NETTLE_LIBS) $(FABRIC_LIBS)
fabtests_fault_flood_SOURCES = fabtests/fault/flood.c \
	fabtests/fault/testbed_daemon.c fabtests/fault/testbed_daemon.h $(testbed_sources)
fabtests_fault_flood_LDADD = util/libutil.la $(NETTLE_LIBS) $(FABRIC_LIBS)
fabtests_fault_removed_address_SOURCES = fabtests/fault/removed_address.c $(testbed_sources)
fabtests_fault_removed_address_LDADD = $(FABRIC_LIBS)

# librpmem_pool over restarts of its target.
TESTS += fabtests/fault/dirty_shutdown.sh fabtests/fault/mixed.sh \
	fabtests/fault/log_lives.sh fabtests/fault/pool_owners.py fabtests/fault/pool_restart.sh \
	fabtests/fault/plugpull.sh fabtests/fault/crowd.sh fabtests/fault/large_pool.sh \
	fabtests/fault/rpc_lives.sh fabtests/fault/kv_lives.sh \
	fabtests/fault/lives_sockets.sh
EXTRA_DIST += fabtests/fault/dirty_shutdown.sh \
	fabtests/fault/mixed.py fabtests/fault/mixed.sh \
	fabtests/fault/log_lives.sh fabtests/fault/pool_owners.py fabtests/fault/pool_restart.sh \
	fabtests/fault/plugpull.sh fabtests/fault/crowd.sh fabtests/fault/large_pool.sh \
	fabtests/fault/rpc_lives.sh fabtests/fault/kv_lives.sh \
	fabtests/fault/lanes.sh fabtests/fault/lives.sh fabtests/fault/lives_sockets.sh
check_LTLIBRARIES += fabtests/fault/libstale_reader.la
fabtests_fault_libstale_reader_la_SOURCES = fabtests/fault/stale_reader.c
fabtests_fault_libstale_reader_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
fabtests_fault_libstale_reader_la_LIBADD = -ldl
check_LTLIBRARIES += fabtests/fault/libkv_kill.la
fabtests_fault_libkv_kill_la_SOURCES = fabtests/fault/kv_kill.c
fabtests_fault_libkv_kill_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
fabtests_fault_libkv_kill_la_LIBADD = -ldl
check_PROGRAMS += fabtests/fault/rpc_peer
fabtests_fault_rpc_peer_SOURCES = fabtests/fault/rpc_peer.c
fabtests_fault_rpc_peer_LDADD = util/librpmem_rpc.la util/librpmem_pool.la
check_PROGRAMS += fabtests/fault/log_writer
fabtests_fault_log_writer_SOURCES = fabtests/fault/log_writer.c
fabtests_fault_log_writer_LDADD = util/librpmem_log.la util/librpmem_pool.la
check_PROGRAMS += fabtests/fault/pool_writer
fabtests_fault_pool_writer_SOURCES = fabtests/fault/pool_writer.c
fabtests_fault_pool_writer_LDADD = util/librpmem_pool.la -lpthread
