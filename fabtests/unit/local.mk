# One Criterion program per file of prov/core, of the same name.
if HAVE_CRITERION
EXTRA_DIST += fabtests/unit/plain/criterion/criterion.h
unit_ldadd = prov/core/libcore.la $(CRITERION_LIBS)
# A program without LDADD or SOURCES is made of its .c file and these.
LDADD = $(unit_ldadd)

unit_tests += fabtests/unit/test_status

unit_tests += fabtests/unit/test_samples
fabtests_unit_test_samples_LDADD = fabtests/benchmarks/librivals.la \
	util/libutil.la $(PMEM2_LIBS) $(FABRIC_LIBS) $(CRITERION_LIBS) -lm

unit_tests += fabtests/unit/test_ratio
fabtests_unit_test_ratio_LDADD = util/libutil.la $(CRITERION_LIBS) -lm

unit_tests += fabtests/unit/test_info_advice
fabtests_unit_test_info_advice_SOURCES = fabtests/unit/test_info_advice.c \
	util/info_advice.c util/info_host.c
fabtests_unit_test_info_advice_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS) $(JANSSON_LIBS) $(CRITERION_LIBS)

method_rig = fabtests/unit/method_rig.c fabtests/unit/method_rig.h

unit_tests += fabtests/unit/test_method
fabtests_unit_test_method_SOURCES = fabtests/unit/test_method.c $(method_rig) \
	util/method_rows.c util/method_rows.h

unit_tests += fabtests/unit/test_method_force
fabtests_unit_test_method_force_SOURCES = fabtests/unit/test_method_force.c $(method_rig)

unit_tests += fabtests/unit/test_cost
fabtests_unit_test_cost_SOURCES = fabtests/unit/test_cost.c $(method_rig)

unit_tests += fabtests/unit/test_method_advice
fabtests_unit_test_method_advice_LDADD = util/libutil.la $(unit_ldadd)

wire_rig = fabtests/unit/wire_rig.c fabtests/unit/wire_rig.h \
	fabtests/unit/seeded.h

unit_tests += fabtests/unit/test_wire
fabtests_unit_test_wire_SOURCES = fabtests/unit/test_wire.c $(wire_rig)

unit_tests += fabtests/unit/test_ring fabtests/unit/test_spin \
	fabtests/unit/test_wire_pack

unit_tests += fabtests/unit/test_stats
fabtests_unit_test_stats_LDADD = util/libutil.la $(unit_ldadd)

unit_tests += fabtests/unit/test_stats_text
fabtests_unit_test_stats_text_LDADD = util/libutil.la $(unit_ldadd)

unit_tests += fabtests/unit/test_crash_image
fabtests_unit_test_crash_image_SOURCES = fabtests/unit/test_crash_image.c \
	$(crash_image_sources)
fabtests_unit_test_crash_image_LDADD = $(CRITERION_LIBS) $(XXHASH_LIBS)

unit_tests += fabtests/unit/test_crash_check
fabtests_unit_test_crash_check_SOURCES = fabtests/unit/test_crash_check.c \
	util/crashtest/check.c util/crashtest/check.h $(crash_image_sources)
fabtests_unit_test_crash_check_LDADD = $(CRITERION_LIBS) $(XXHASH_LIBS)

unit_tests += fabtests/unit/test_crash_shrink
fabtests_unit_test_crash_shrink_SOURCES = fabtests/unit/test_crash_shrink.c \
	util/crashtest/shrink.c util/crashtest/shrink.h $(crash_image_sources)
fabtests_unit_test_crash_shrink_LDADD = $(CRITERION_LIBS) $(XXHASH_LIBS)

unit_tests += fabtests/unit/test_crash_filter
fabtests_unit_test_crash_filter_SOURCES = fabtests/unit/test_crash_filter.c \
	util/crashtest/filter.c util/crashtest/trace.h
fabtests_unit_test_crash_filter_LDFLAGS = -Wl,--wrap=syscall
fabtests_unit_test_crash_filter_LDADD = $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_crash_trace
fabtests_unit_test_crash_trace_SOURCES = fabtests/unit/test_crash_trace.c \
	fabtests/unit/never_called.h util/crashtest/trace.c \
	util/crashtest/trace.h
fabtests_unit_test_crash_trace_LDFLAGS = \
	-Wl,--wrap=waitpid,--wrap=ptrace,--wrap=kill
fabtests_unit_test_crash_trace_LDADD = $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_crash_choice
fabtests_unit_test_crash_choice_SOURCES = fabtests/unit/test_crash_choice.c \
	fabtests/fault/crash_choice.c fabtests/fault/crash_choice.h
fabtests_unit_test_crash_choice_LDADD = $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_frame_peer
fabtests_unit_test_frame_peer_SOURCES = fabtests/unit/test_frame_peer.c \
	fabtests/fault/frame_peer.c fabtests/fault/frame_peer.h
fabtests_unit_test_frame_peer_LDADD = prov/rc/librc.la prov/core/libcore.la $(CRITERION_LIBS)

crash_rig = fabtests/unit/crash_rig.c fabtests/unit/crash_rig.h \
	$(crash_record_sources) $(crash_image_sources)
crash_wraps = -Wl,--wrap=malloc,--wrap=calloc,--wrap=reallocarray,--wrap=mmap

unit_tests += fabtests/unit/test_crash_record
fabtests_unit_test_crash_record_SOURCES = fabtests/unit/test_crash_record.c \
	$(crash_rig)
fabtests_unit_test_crash_record_LDFLAGS = $(crash_wraps)
fabtests_unit_test_crash_record_LDADD = $(CRITERION_LIBS) $(XXHASH_LIBS)

unit_tests += fabtests/unit/test_crash_explore
fabtests_unit_test_crash_explore_SOURCES = fabtests/unit/test_crash_explore.c \
	util/crashtest/explore.c util/crashtest/shrink.c $(crash_rig)
fabtests_unit_test_crash_explore_LDFLAGS = $(crash_wraps)
fabtests_unit_test_crash_explore_LDADD = $(CRITERION_LIBS) $(XXHASH_LIBS)

unit_tests += fabtests/unit/test_crash_report
fabtests_unit_test_crash_report_SOURCES = fabtests/unit/test_crash_report.c \
	$(crash_report_sources)
fabtests_unit_test_crash_report_LDADD = $(JANSSON_LIBS) $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_wire_refuse
fabtests_unit_test_wire_refuse_SOURCES = fabtests/unit/test_wire_refuse.c $(wire_rig)

unit_tests += fabtests/unit/test_wire_rendezvous fabtests/unit/test_wire_desc \
	fabtests/unit/test_deferred fabtests/unit/test_remote_flush fabtests/unit/test_key

unit_tests += fabtests/unit/test_protocol
fabtests_unit_test_protocol_SOURCES = fabtests/unit/test_protocol.c \
	fabtests/unit/page.h \
	util/method_rows.c util/method_rows.h

unit_tests += fabtests/unit/test_ranges
fabtests_unit_test_ranges_LDFLAGS = -Wl,--wrap=realloc

unit_tests += fabtests/unit/test_journal
fabtests_unit_test_journal_SOURCES = fabtests/unit/test_journal.c \
	fabtests/unit/seeded.h
fabtests_unit_test_journal_LDADD = util/libpool/libpool.la $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_pool_piece
fabtests_unit_test_pool_piece_LDADD = util/libpool/libpool.la util/libutil.la \
	$(CRITERION_LIBS) -lm

unit_tests += fabtests/unit/test_pool_work
fabtests_unit_test_pool_work_SOURCES = fabtests/unit/test_pool_work.c \
	fabtests/unit/pool_target.c fabtests/unit/pool_target.h \
	fabtests/unit/seeded.h util/libpool/error.c util/libpool/journal.c \
	util/libpool/commits.c util/libpool/piece.c util/libpool/wait.c util/libpool/work.c
fabtests_unit_test_pool_work_CPPFLAGS = $(AM_CPPFLAGS) -DPOOL_OUT=5u -DPIECE_UNIT=8u -DPIECE_TURN=32u
fabtests_unit_test_pool_work_LDFLAGS = -Wl,--wrap=rp_journal_plan
fabtests_unit_test_pool_work_LDADD = util/libutil.la $(CRITERION_LIBS) $(FABRIC_LIBS) -lm

unit_tests += fabtests/unit/test_pool_connect
fabtests_unit_test_pool_connect_LDADD = util/libpool/libpool.la util/libutil.la $(unit_ldadd) \
	$(CRITERION_LIBS) $(FABRIC_LIBS) $(NETTLE_LIBS)
fabtests_unit_test_pool_connect_LDFLAGS = -Wl,--wrap=clock_gettime \
	-Wl,--wrap=connect -Wl,--wrap=poll -Wl,--wrap=pthread_create

unit_tests += fabtests/unit/test_pool_offer
fabtests_unit_test_pool_offer_SOURCES = fabtests/unit/test_pool_offer.c \
	util/libpool/connect.c util/text.c
# With objects of its own: the library has others.
fabtests_unit_test_pool_offer_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_pool_offer_LDADD = $(unit_ldadd) $(FABRIC_LIBS)

unit_tests += fabtests/unit/test_group_threads
fabtests_unit_test_group_threads_SOURCES = fabtests/unit/test_group_threads.c
fabtests_unit_test_group_threads_LDADD = util/libpool/libpool.la $(CRITERION_LIBS) $(XXHASH_LIBS) \
	-lpthread

unit_tests += fabtests/unit/test_librpmem
fabtests_unit_test_librpmem_SOURCES = fabtests/unit/test_librpmem.c \
	util/librpmem/librpmem.c
# With objects of its own: the library has others.
fabtests_unit_test_librpmem_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_librpmem_LDADD = $(CRITERION_LIBS) $(XXHASH_LIBS)

unit_tests += fabtests/unit/test_one_shot
fabtests_unit_test_one_shot_SOURCES = fabtests/unit/test_one_shot.c \
	util/conf.c util/one_shot.c
fabtests_unit_test_one_shot_LDADD = util/libutil.la prov/core/libcore.la \
	$(CRITERION_LIBS) $(NETTLE_LIBS) $(INIH_LIBS) $(PMEM2_LIBS) -lpthread

unit_tests += fabtests/unit/test_librpmem_session
fabtests_unit_test_librpmem_session_SOURCES = \
	fabtests/unit/test_librpmem_session.c util/librpmem/session.c \
	util/librpmem/session.h
fabtests_unit_test_librpmem_session_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_librpmem_session_LDADD = util/libutil.la $(CRITERION_LIBS)

if HAVE_NBDKIT
unit_tests += fabtests/unit/test_nbd_plugin
fabtests_unit_test_nbd_plugin_SOURCES = fabtests/unit/test_nbd_plugin.c \
	fabtests/unit/never_called.h \
	util/nbdkit/rpmem.c
# With objects of its own: the plugin has others.
fabtests_unit_test_nbd_plugin_CPPFLAGS = $(AM_CPPFLAGS) $(NBDKIT_CFLAGS)
fabtests_unit_test_nbd_plugin_LDADD = $(CRITERION_LIBS)
endif

unit_tests += fabtests/unit/test_group_replace
fabtests_unit_test_group_replace_SOURCES = fabtests/unit/test_group_replace.c \
	util/group_replace.c util/group_tool.c
fabtests_unit_test_group_replace_LDADD = util/libpool/libpool.la util/libutil.la $(CRITERION_LIBS) $(XXHASH_LIBS)

# With small chunks, a run of the rig meets every rule of the bitmap.
unit_tests += fabtests/unit/test_pool_group fabtests/unit/test_pool_group_area \
	fabtests/unit/test_pool_group_cost fabtests/unit/test_pool_group_cuts \
	fabtests/unit/test_pool_group_rules
check_LIBRARIES += fabtests/unit/libgroup.a
fabtests_unit_libgroup_a_SOURCES = fabtests/unit/group_rig.c fabtests/unit/group_rig.h \
	fabtests/unit/group_history.c fabtests/unit/group_history.h \
	fabtests/unit/seeded.h util/libpool/group.c util/libpool/group.h \
	util/libpool/group_bits.c util/libpool/group_join.c \
	util/libpool/group_deadline.c util/libpool/group_epoch.c \
	util/libpool/group_format.c \
	util/libpool/group_member.c util/libpool/group_ranges.c \
	util/libpool/group_rebuild.c
group_cppflags = $(AM_CPPFLAGS) -DGROUP_AREA=8192u -DGROUP_CHUNK=64u -DGROUP_HOT=4u \
	-DGROUP_BACKLOG=400u -DGROUP_READ_RATE=1u
group_ldadd = fabtests/unit/libgroup.a $(CRITERION_LIBS) $(XXHASH_LIBS)
fabtests_unit_libgroup_a_CPPFLAGS = $(group_cppflags)
fabtests_unit_test_pool_group_CPPFLAGS = $(group_cppflags)
fabtests_unit_test_pool_group_LDADD = $(group_ldadd)
fabtests_unit_test_pool_group_area_SOURCES = \
	fabtests/unit/test_pool_group_area.c fabtests/unit/group_calls.h
fabtests_unit_test_pool_group_area_CPPFLAGS = $(group_cppflags)
fabtests_unit_test_pool_group_area_LDADD = $(group_ldadd)
fabtests_unit_test_pool_group_cuts_CPPFLAGS = $(group_cppflags)
fabtests_unit_test_pool_group_cuts_LDADD = $(group_ldadd)
fabtests_unit_test_pool_group_cost_SOURCES = \
	fabtests/unit/test_pool_group_cost.c fabtests/unit/group_calls.h
fabtests_unit_test_pool_group_cost_CPPFLAGS = $(group_cppflags)
fabtests_unit_test_pool_group_cost_LDADD = $(group_ldadd)
fabtests_unit_test_pool_group_rules_SOURCES = \
	fabtests/unit/test_pool_group_rules.c \
	fabtests/unit/test_pool_group_copies.c \
	fabtests/unit/test_pool_group_epochs.c \
	fabtests/unit/test_pool_group_errors.c \
	fabtests/unit/test_pool_group_joins.c fabtests/unit/group_calls.h
fabtests_unit_test_pool_group_rules_CPPFLAGS = $(group_cppflags)
fabtests_unit_test_pool_group_rules_LDFLAGS = -Wl,--wrap=leg_new,--wrap=calloc
fabtests_unit_test_pool_group_rules_LDADD = $(group_ldadd)

unit_tests += fabtests/unit/test_rpmem_log fabtests/unit/test_rpmem_log_cuts \
	fabtests/unit/test_rpmem_log_damage fabtests/unit/test_rpmem_log_pool \
	fabtests/unit/test_rpmem_log_gather fabtests/unit/test_rpmem_log_wait
log_sources = fabtests/unit/log_rig.c fabtests/unit/log_rig.h \
	fabtests/fault/crash_choice.c fabtests/fault/crash_choice.h \
	fabtests/unit/seeded.h
fabtests_unit_test_rpmem_log_SOURCES = fabtests/unit/test_rpmem_log.c \
	fabtests/unit/test_rpmem_log_refuse.c \
	fabtests/unit/log_writer.c fabtests/unit/log_writer.h \
	$(log_sources)
fabtests_unit_test_rpmem_log_LDADD = util/liblog/liblog.la $(CRITERION_LIBS) $(XXHASH_LIBS) -lpthread
fabtests_unit_test_rpmem_log_cuts_SOURCES = \
	fabtests/unit/test_rpmem_log_cuts.c $(log_sources)
fabtests_unit_test_rpmem_log_cuts_LDADD = $(fabtests_unit_test_rpmem_log_LDADD)
fabtests_unit_test_rpmem_log_damage_SOURCES = \
	fabtests/unit/test_rpmem_log_damage.c $(log_sources)
fabtests_unit_test_rpmem_log_damage_LDADD = $(fabtests_unit_test_rpmem_log_LDADD)
fabtests_unit_test_rpmem_log_gather_SOURCES = \
	fabtests/unit/test_rpmem_log_gather.c $(log_sources)
fabtests_unit_test_rpmem_log_gather_LDADD = $(fabtests_unit_test_rpmem_log_LDADD)
fabtests_unit_test_rpmem_log_wait_SOURCES = \
	fabtests/unit/test_rpmem_log_wait.c $(log_sources)
fabtests_unit_test_rpmem_log_wait_LDADD = $(fabtests_unit_test_rpmem_log_LDADD)
fabtests_unit_test_rpmem_log_wait_LDFLAGS = -Wl,--wrap=pthread_cond_wait
fabtests_unit_test_rpmem_log_pool_SOURCES = \
	fabtests/unit/test_rpmem_log_pool.c $(log_sources)
fabtests_unit_test_rpmem_log_pool_LDADD = $(fabtests_unit_test_rpmem_log_LDADD)

if HAVE_RAFT
unit_tests += fabtests/unit/test_rpmem_raft fabtests/unit/test_raft_io \
	fabtests/unit/test_raft_ring
endif
fabtests_unit_test_raft_io_SOURCES = fabtests/unit/test_raft_io.c $(log_sources)
fabtests_unit_test_raft_io_LDADD = util/libraft/libraft.la $(fabtests_unit_test_rpmem_log_LDADD) \
	$(RAFT_LIBS)
fabtests_unit_test_raft_ring_SOURCES = fabtests/unit/test_raft_ring.c
fabtests_unit_test_raft_ring_LDADD = util/libraft/libraft.la $(CRITERION_LIBS)
fabtests_unit_test_rpmem_raft_SOURCES = fabtests/unit/test_rpmem_raft.c \
	fabtests/unit/test_raft_page.c fabtests/unit/page.h $(log_sources)
fabtests_unit_test_rpmem_raft_LDADD = util/libraft/libraft.la $(fabtests_unit_test_rpmem_log_LDADD) \
	$(RAFT_LIBS)

unit_tests += fabtests/unit/test_example_rpc_server
fabtests_unit_test_example_rpc_server_LDADD = $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_rpmem_rpc fabtests/unit/test_rpmem_rpc_ring
rpc_stub = fabtests/unit/rpc_stub.c fabtests/unit/rpc_stub.h
rpc_sources = fabtests/unit/rpc_rig.c fabtests/unit/rpc_rig.h $(rpc_stub) \
	fabtests/unit/seeded.h
fabtests_unit_test_rpmem_rpc_SOURCES = fabtests/unit/test_rpmem_rpc.c \
	$(rpc_sources)
fabtests_unit_test_rpmem_rpc_LDADD = util/librpc/librpc.la util/libutil.la $(CRITERION_LIBS) $(XXHASH_LIBS) \
	$(FABRIC_LIBS) -lm -lpthread
fabtests_unit_test_rpmem_rpc_ring_SOURCES = \
	fabtests/unit/test_rpmem_rpc_ring.c $(rpc_sources)
fabtests_unit_test_rpmem_rpc_ring_LDFLAGS = -Wl,--wrap=calloc
fabtests_unit_test_rpmem_rpc_ring_LDADD = $(fabtests_unit_test_rpmem_rpc_LDADD)

unit_tests += fabtests/unit/test_batch
fabtests_unit_test_batch_LDFLAGS = -Wl,--wrap=realloc -Wl,--wrap=calloc

unit_tests += fabtests/unit/test_log

unit_tests += fabtests/unit/test_region

pmem_rig = fabtests/unit/pmem_rig.c fabtests/unit/pmem_rig.h

unit_tests += fabtests/unit/test_pmem
fabtests_unit_test_pmem_SOURCES = fabtests/unit/test_pmem.c \
	fabtests/unit/test_pmem_instructions.c $(pmem_rig)

unit_tests += fabtests/unit/test_pmem_library
fabtests_unit_test_pmem_library_SOURCES = fabtests/unit/test_pmem_library.c \
	$(pmem_rig)
fabtests_unit_test_pmem_library_LDFLAGS = \
	-Wl,--wrap=pmem2_source_from_anon,--wrap=pmem2_source_delete \
	-Wl,--wrap=pmem2_map_from_existing,--wrap=pmem2_map_delete

unit_tests += fabtests/unit/test_pmem_populate
fabtests_unit_test_pmem_populate_LDFLAGS = -Wl,--wrap=madvise

unit_tests += fabtests/unit/test_pmem_files
fabtests_unit_test_pmem_files_LDFLAGS = \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=free

# prov/core/pmem.c with its fault injection points.
unit_tests += fabtests/unit/test_pmem_fault
fabtests_unit_test_pmem_fault_CPPFLAGS = $(AM_CPPFLAGS) -DRP_FAULTS
fabtests_unit_test_pmem_fault_LDADD = fabtests/fault/libfaults.la $(unit_ldadd) $(PMEM2_LIBS)

# statx is wrapped so that an ordinary file can claim to be in DAX state.
caps_rig = fabtests/unit/caps_rig.c fabtests/unit/caps_rig.h

unit_tests += fabtests/unit/test_caps
fabtests_unit_test_caps_SOURCES = fabtests/unit/test_caps.c $(caps_rig) \
	util/host_facts.c util/host_facts.h
fabtests_unit_test_caps_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_caps_invented
fabtests_unit_test_caps_invented_SOURCES = fabtests/unit/test_caps_invented.c $(caps_rig) \
	util/host_facts.c util/host_facts.h
fabtests_unit_test_caps_invented_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_caps_intent
fabtests_unit_test_caps_intent_SOURCES = fabtests/unit/test_caps_intent.c $(caps_rig)
fabtests_unit_test_caps_intent_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_caps_all
fabtests_unit_test_caps_all_SOURCES = fabtests/unit/test_caps_all.c $(caps_rig)
fabtests_unit_test_caps_all_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_caps_disk
fabtests_unit_test_caps_disk_SOURCES = fabtests/unit/test_caps_disk.c $(caps_rig)
fabtests_unit_test_caps_disk_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_doctor_disk
fabtests_unit_test_doctor_disk_SOURCES = fabtests/unit/test_doctor_disk.c \
	util/doctor_disk.c util/info_host.c $(caps_rig)
fabtests_unit_test_doctor_disk_LDADD = util/libutil.la prov/core/libcore.la \
	$(CRITERION_LIBS) $(JANSSON_LIBS) $(FABRIC_LIBS) -ldl
fabtests_unit_test_doctor_disk_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_advise
fabtests_unit_test_advise_SOURCES = fabtests/unit/test_advise.c \
	util/advise.c util/advise_machine.c util/advise_memory.c \
	util/advise_peer.c util/info_advice.c util/info_host.c \
	util/info_path.c $(caps_rig)
fabtests_unit_test_advise_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS) $(JANSSON_LIBS) $(PMEM2_LIBS) $(CRITERION_LIBS) \
	-lpthread
fabtests_unit_test_advise_LDFLAGS = -Wl,--wrap=statx,--wrap=msync

unit_tests += fabtests/unit/test_caps_nic
fabtests_unit_test_caps_nic_SOURCES = fabtests/unit/test_caps_nic.c $(caps_rig)
fabtests_unit_test_caps_nic_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_operator_file
fabtests_unit_test_operator_file_SOURCES = fabtests/unit/test_operator_file.c $(caps_rig)
fabtests_unit_test_operator_file_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_caps_stated
fabtests_unit_test_caps_stated_SOURCES = fabtests/unit/test_caps_stated.c $(caps_rig)
fabtests_unit_test_caps_stated_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_watch
fabtests_unit_test_watch_SOURCES = fabtests/unit/test_watch.c $(caps_rig)
fabtests_unit_test_watch_LDFLAGS = -Wl,--wrap=statx,--wrap=strdup,--wrap=realpath \
	-Wl,--wrap=glob,--wrap=getline,--wrap=getdelim,--wrap=__getdelim

unit_tests += fabtests/unit/test_pool
fabtests_unit_test_pool_SOURCES = fabtests/unit/test_pool.c \
	fabtests/unit/pool_syncs.h
fabtests_unit_test_pool_LDADD = util/libutil.la prov/core/libcore.la \
	$(CRITERION_LIBS)
fabtests_unit_test_pool_LDFLAGS = -Wl,--wrap=fdatasync,--wrap=fsync,--wrap=msync \
	-Wl,--wrap=posix_fadvise,--wrap=pread

unit_tests += fabtests/unit/test_dirty_shutdowns
fabtests_unit_test_dirty_shutdowns_SOURCES = fabtests/unit/test_dirty_shutdowns.c $(caps_rig)
fabtests_unit_test_dirty_shutdowns_LDADD = fabtests/fault/libpoolfaults.a util/libutil.la prov/core/libcore.la \
	$(CRITERION_LIBS) $(NETTLE_LIBS)
fabtests_unit_test_dirty_shutdowns_LDFLAGS = -Wl,--wrap=statx

unit_tests += fabtests/unit/test_dirty_shutdowns_find
fabtests_unit_test_dirty_shutdowns_find_SOURCES = \
	fabtests/unit/test_dirty_shutdowns_find.c $(caps_rig)
fabtests_unit_test_dirty_shutdowns_find_LDADD = util/libutil.la \
	prov/core/libcore.la $(CRITERION_LIBS) $(NETTLE_LIBS)
fabtests_unit_test_dirty_shutdowns_find_LDFLAGS = -Wl,--wrap=statx

setup_rig = fabtests/unit/setup_rig.c fabtests/unit/setup_rig.h

unit_tests += fabtests/unit/test_setup
fabtests_unit_test_setup_SOURCES = fabtests/unit/test_setup.c $(setup_rig) \
	fabtests/unit/seeded.h
fabtests_unit_test_setup_LDADD = util/libutil.la $(CRITERION_LIBS) $(NETTLE_LIBS)

unit_tests += fabtests/unit/test_conf
fabtests_unit_test_conf_SOURCES = fabtests/unit/test_conf.c util/conf.c
fabtests_unit_test_conf_LDADD = util/libutil.la $(CRITERION_LIBS) $(NETTLE_LIBS) \
	$(INIH_LIBS)

unit_tests += fabtests/unit/test_export_key
fabtests_unit_test_export_key_LDADD = util/libexport.la util/libutil.la \
	$(CRITERION_LIBS)
fabtests_unit_test_export_key_LDFLAGS = -Wl,--wrap=rp_fabric_reg

unit_tests += fabtests/unit/test_metrics
fabtests_unit_test_metrics_SOURCES = fabtests/unit/test_metrics.c util/metrics.c
fabtests_unit_test_metrics_LDFLAGS = -Wl,--wrap=strdup
fabtests_unit_test_metrics_LDADD = util/libutil.la $(unit_ldadd) $(MICROHTTPD_LIBS)

unit_tests += fabtests/unit/test_plugpull
fabtests_unit_test_plugpull_SOURCES = fabtests/unit/test_plugpull.c \
	util/plugpull_judge.c util/plugpull_ledger.c
fabtests_unit_test_plugpull_LDADD = util/libutil.la $(CRITERION_LIBS) $(NETTLE_LIBS)
fabtests_unit_test_plugpull_LDFLAGS = -Wl,--wrap=fdatasync

unit_tests += fabtests/unit/test_redis_restore
fabtests_unit_test_redis_restore_SOURCES = fabtests/unit/test_redis_restore.c \
	fabtests/unit/never_called.h \
	util/redis/mirror.c util/redis/restore.c
fabtests_unit_test_redis_restore_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_redis_restore_LDADD = $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_setup_rights
fabtests_unit_test_setup_rights_SOURCES = fabtests/unit/test_setup_rights.c $(setup_rig)
fabtests_unit_test_setup_rights_LDADD = util/libutil.la $(CRITERION_LIBS) $(NETTLE_LIBS)

unit_tests += fabtests/unit/test_setup_server
fabtests_unit_test_setup_server_SOURCES = fabtests/unit/test_setup_server.c \
	fabtests/unit/test_setup_owner.c \
	fabtests/unit/setup_server_rig.c fabtests/unit/setup_server_rig.h $(setup_rig)
fabtests_unit_test_setup_server_LDADD = util/libutil.la $(CRITERION_LIBS) $(NETTLE_LIBS)

unit_tests += fabtests/unit/test_service
fabtests_unit_test_service_LDADD = util/libutil.la $(CRITERION_LIBS)

agent_bed = fabtests/unit/agent_bed.c fabtests/unit/agent_bed.h \
	fabtests/unit/agent_bed_region.c fabtests/unit/agent_bed_peer.c \
	fabtests/unit/agent_bed_priv.h \
	fabtests/unit/disk.h fabtests/unit/seeded.h

unit_tests += fabtests/unit/test_agent_session
fabtests_unit_test_agent_session_SOURCES = \
	fabtests/unit/test_agent_session.c fabtests/unit/test_agent_messages.c \
	fabtests/unit/agent_sessions.c fabtests/unit/agent_sessions.h \
	$(agent_bed)

# Sessions and an agent, connected by channels that break.
unit_tests += fabtests/unit/test_both
fabtests_unit_test_both_SOURCES = fabtests/unit/test_both.c \
	fabtests/unit/both_world.c fabtests/unit/both_world.h \
	fabtests/unit/both_world_region.c \
	fabtests/unit/leaks.h fabtests/unit/seeded.h

unit_tests += fabtests/unit/test_atomic
fabtests_unit_test_atomic_LDADD = $(unit_ldadd) -lm

unit_tests += fabtests/unit/test_agent
fabtests_unit_test_agent_SOURCES = fabtests/unit/test_agent.c $(agent_bed)

unit_tests += fabtests/unit/test_agent_facts
fabtests_unit_test_agent_facts_SOURCES = fabtests/unit/test_agent_facts.c $(agent_bed)
fabtests_unit_test_agent_facts_LDFLAGS = \
	-Wl,--wrap=rp_pmem_use_clwb,--wrap=rp_pmem_flush

unit_tests += fabtests/unit/test_agent_effects
fabtests_unit_test_agent_effects_SOURCES = fabtests/unit/test_agent_effects.c $(agent_bed)

unit_tests += fabtests/unit/test_agent_store
fabtests_unit_test_agent_store_SOURCES = fabtests/unit/test_agent_store.c $(agent_bed)

unit_tests += fabtests/unit/test_agent_scarce
fabtests_unit_test_agent_scarce_SOURCES = fabtests/unit/test_agent_scarce.c $(agent_bed)
fabtests_unit_test_agent_scarce_LDFLAGS = \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=pthread_create

unit_tests += fabtests/unit/test_agent_local
fabtests_unit_test_agent_local_SOURCES = fabtests/unit/test_agent_local.c $(agent_bed)

unit_tests += fabtests/unit/test_agent_made
fabtests_unit_test_agent_made_LDFLAGS = -Wl,--wrap=calloc,--wrap=free \
	-Wl,--wrap=pthread_mutex_init,--wrap=pthread_mutex_destroy

unit_tests += fabtests/unit/test_worker
fabtests_unit_test_worker_SOURCES = fabtests/unit/test_worker.c $(agent_bed)

unit_tests += fabtests/unit/test_worker_alone
fabtests_unit_test_worker_alone_LDFLAGS = \
	-Wl,--wrap=pthread_mutex_init,--wrap=pthread_mutex_destroy \
	-Wl,--wrap=pthread_cond_init,--wrap=pthread_cond_destroy \
	-Wl,--wrap=pthread_create

# Tests of the session use a fake channel.
session_bed = fabtests/unit/session_bed.c fabtests/unit/session_bed.h \
	fabtests/unit/leaks.h

unit_tests += fabtests/unit/test_session
fabtests_unit_test_session_SOURCES = fabtests/unit/test_session.c \
	fabtests/unit/test_session_loss.c $(session_bed)

unit_tests += fabtests/unit/test_session_batch
fabtests_unit_test_session_batch_SOURCES = fabtests/unit/test_session_batch.c $(session_bed)

unit_tests += fabtests/unit/test_session_commit
fabtests_unit_test_session_commit_SOURCES = fabtests/unit/test_session_commit.c \
	fabtests/unit/test_session_stored.c $(session_bed)

unit_tests += fabtests/unit/test_session_no_memory
fabtests_unit_test_session_no_memory_SOURCES = fabtests/unit/test_session_no_memory.c $(session_bed)
fabtests_unit_test_session_no_memory_LDFLAGS = \
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc

unit_tests += fabtests/unit/test_session_op
fabtests_unit_test_session_op_SOURCES = fabtests/unit/test_session_op.c \
	fabtests/unit/test_session_durable.c $(session_bed)

unit_tests += fabtests/unit/test_session_order
fabtests_unit_test_session_order_SOURCES = fabtests/unit/test_session_order.c $(session_bed)

unit_tests += fabtests/unit/test_session_poison
fabtests_unit_test_session_poison_SOURCES = fabtests/unit/test_session_poison.c $(session_bed)

unit_tests += fabtests/unit/test_session_world
fabtests_unit_test_session_world_SOURCES = fabtests/unit/test_session_world.c $(session_bed) \
	fabtests/unit/seeded.h

# The verdicts of the literature, which the crash matrix uses, too.
unit_tests += fabtests/unit/test_verdicts
fabtests_unit_test_verdicts_SOURCES = fabtests/unit/test_verdicts.c \
	fabtests/fault/verdicts.c fabtests/fault/verdicts.h
EXTRA_DIST += fabtests/fault/verdicts.tsv fabtests/fault/forbidden_pairs

# The simulator's memory, which shares nothing with prov/core.
unit_tests += fabtests/unit/test_model
fabtests_unit_test_model_SOURCES = fabtests/unit/test_model.c \
	fabtests/unit/model_rig.h fabtests/unit/seeded.h
fabtests_unit_test_model_LDADD = prov/pmsim/libmodel.la $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_model_dma
fabtests_unit_test_model_dma_SOURCES = fabtests/unit/test_model_dma.c \
	fabtests/unit/model_rig.h fabtests/unit/seeded.h
fabtests_unit_test_model_dma_LDADD = prov/pmsim/libmodel.la $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_model_oracle
fabtests_unit_test_model_oracle_SOURCES = fabtests/unit/test_model_oracle.c \
	fabtests/unit/seeded.h
fabtests_unit_test_model_oracle_LDADD = prov/pmsim/libmodel.la $(CRITERION_LIBS)

# The simulated fabric, opened as any provider is, with and without ofi_rpmem.
sim_ldadd = prov/pmsim/libmodel.la $(FABRIC_LIBS) $(CRITERION_LIBS) -ldl
sim_rig = fabtests/unit/sim_node.c fabtests/unit/sim_node.h \
	fabtests/unit/sim_pair.c fabtests/unit/sim_pair.h \
	fabtests/unit/leaks.h

unit_tests += fabtests/unit/test_pmsim
fabtests_unit_test_pmsim_SOURCES = fabtests/unit/test_pmsim.c $(sim_rig)
fabtests_unit_test_pmsim_LDADD = $(sim_ldadd)

unit_tests += fabtests/unit/test_pmsim_msg
fabtests_unit_test_pmsim_msg_SOURCES = fabtests/unit/test_pmsim_msg.c $(sim_rig)
fabtests_unit_test_pmsim_msg_LDADD = $(sim_ldadd)

unit_tests += fabtests/unit/test_pmsim_rma
fabtests_unit_test_pmsim_rma_SOURCES = fabtests/unit/test_pmsim_rma.c $(sim_rig)
fabtests_unit_test_pmsim_rma_LDADD = $(sim_ldadd)

unit_tests += fabtests/unit/test_pmsim_break
fabtests_unit_test_pmsim_break_SOURCES = fabtests/unit/test_pmsim_break.c $(sim_rig)
fabtests_unit_test_pmsim_break_LDADD = $(sim_ldadd)

unit_tests += fabtests/unit/test_pmsim_nic
fabtests_unit_test_pmsim_nic_SOURCES = fabtests/unit/test_pmsim_nic.c $(sim_rig)
fabtests_unit_test_pmsim_nic_LDADD = $(sim_ldadd)

# Private connections over TCP, with both ends in one process.
unit_tests += fabtests/unit/test_rc
fabtests_unit_test_rc_SOURCES = fabtests/unit/test_rc.c \
	fabtests/unit/test_rc_close.c fabtests/unit/test_rc_sleep.c \
	fabtests/unit/rc_rig.h
fabtests_unit_test_rc_LDADD = prov/rc/librc.la prov/core/libcore.la $(RDMACM_LIBS) \
	$(FABRIC_LIBS) $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_rc_tcp
fabtests_unit_test_rc_tcp_SOURCES = fabtests/unit/test_rc_tcp.c \
	fabtests/unit/test_rc_tcp_hostile.c fabtests/unit/rc_raw.h \
	fabtests/unit/rc_rig.h
fabtests_unit_test_rc_tcp_LDFLAGS = -Wl,--wrap=send -Wl,--wrap=sendmsg
fabtests_unit_test_rc_tcp_LDADD = prov/rc/librc.la prov/core/libcore.la $(RDMACM_LIBS) \
	$(FABRIC_LIBS) $(CRITERION_LIBS)

# Private connections on queue pairs of a fake device.
rc_verbs_rig = fabtests/unit/rc_verbs_rig.c fabtests/unit/rc_verbs_rig.h \
	fabtests/unit/cm_fake.c fabtests/unit/cm_fake.h
EXTRA_DIST += $(rc_verbs_rig) fabtests/unit/test_rc_verbs.c \
	fabtests/unit/test_rc_verbs_cm.c fabtests/unit/test_rc_native_flush.c
if HAVE_RDMACM
unit_tests += fabtests/unit/test_rc_verbs
fabtests_unit_test_rc_verbs_SOURCES = fabtests/unit/test_rc_verbs.c $(rc_verbs_rig)
fabtests_unit_test_rc_verbs_LDADD = prov/rc/librc.la prov/core/libcore.la $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_rc_verbs_cm
fabtests_unit_test_rc_verbs_cm_SOURCES = fabtests/unit/test_rc_verbs_cm.c $(rc_verbs_rig)
fabtests_unit_test_rc_verbs_cm_LDADD = prov/rc/librc.la prov/core/libcore.la $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_rc_native_flush
fabtests_unit_test_rc_native_flush_SOURCES = fabtests/unit/test_rc_native_flush.c $(rc_verbs_rig)
fabtests_unit_test_rc_native_flush_LDADD = prov/rc/librc.la prov/core/libcore.la $(CRITERION_LIBS)
endif

# The shim, on a model of a queue pair.
rc_mock = fabtests/unit/rc_mock.c fabtests/unit/rc_mock.h \
	fabtests/unit/rc_side.c fabtests/unit/seeded.h \
	fabtests/unit/side_host.h
EXTRA_DIST += $(rc_mock) \
	fabtests/unit/test_shim_queue.c fabtests/unit/test_shim_cuts.c \
	fabtests/unit/test_shim_agent.c fabtests/unit/test_shim_pipeline.c
# The shim with all its parts, on a verbs device in this process.
rc_device = fabtests/unit/rc_device.c fabtests/unit/rc_device.h \
	fabtests/unit/rc_device_priv.h fabtests/unit/rc_device_wire.c \
	fabtests/unit/rc_pair.c fabtests/unit/rc_pair.h fabtests/unit/landing.h
EXTRA_DIST += $(rc_device) \
	fabtests/unit/test_shim_attach.c fabtests/unit/test_shim_mr.c \
	fabtests/unit/test_shim_post.c fabtests/unit/test_shim_target.c \
	fabtests/unit/test_shim_side_conn.c fabtests/unit/test_shim_ring.c \
	fabtests/unit/test_shim_write.c \
	fabtests/unit/test_shim_preload_calls.c \
	fabtests/unit/test_shim_preload_client.c \
	fabtests/unit/test_shim_preload_server.c
if HAVE_VERBS
shim_ldadd = prov/verbs/libshim.la prov/core/libcore.la $(VERBS_LIBS) $(CRITERION_LIBS)

unit_tests += fabtests/unit/test_shim_queue
fabtests_unit_test_shim_queue_SOURCES = fabtests/unit/test_shim_queue.c $(rc_mock)
fabtests_unit_test_shim_queue_LDADD = $(shim_ldadd)

unit_tests += fabtests/unit/test_shim_cuts
fabtests_unit_test_shim_cuts_SOURCES = fabtests/unit/test_shim_cuts.c $(rc_mock)
fabtests_unit_test_shim_cuts_LDADD = $(shim_ldadd)

unit_tests += fabtests/unit/test_shim_agent
fabtests_unit_test_shim_agent_SOURCES = fabtests/unit/test_shim_agent.c $(rc_mock)
fabtests_unit_test_shim_agent_LDADD = $(shim_ldadd)

unit_tests += fabtests/unit/test_shim_pipeline
fabtests_unit_test_shim_pipeline_SOURCES = fabtests/unit/test_shim_pipeline.c $(rc_mock)
fabtests_unit_test_shim_pipeline_LDADD = $(shim_ldadd)

shim_ldflags = -Wl,--wrap=rp_caps_find -Wl,--wrap=rp_pmem_new

unit_tests += fabtests/unit/test_shim_attach
fabtests_unit_test_shim_attach_SOURCES = fabtests/unit/test_shim_attach.c $(rc_device)
fabtests_unit_test_shim_attach_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_attach_LDFLAGS = $(shim_ldflags)

unit_tests += fabtests/unit/test_shim_mr
fabtests_unit_test_shim_mr_SOURCES = fabtests/unit/test_shim_mr.c $(rc_device)
fabtests_unit_test_shim_mr_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_mr_LDFLAGS = $(shim_ldflags)

unit_tests += fabtests/unit/test_shim_post
fabtests_unit_test_shim_post_SOURCES = fabtests/unit/test_shim_post.c $(rc_device)
fabtests_unit_test_shim_post_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_post_LDFLAGS = $(shim_ldflags)

unit_tests += fabtests/unit/test_shim_target
fabtests_unit_test_shim_target_SOURCES = fabtests/unit/test_shim_target.c $(rc_device)
fabtests_unit_test_shim_target_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_target_LDFLAGS = $(shim_ldflags) -Wl,--wrap=poll \
	-Wl,--wrap=clock_gettime

unit_tests += fabtests/unit/test_shim_ring
fabtests_unit_test_shim_ring_SOURCES = fabtests/unit/test_shim_ring.c $(rc_device)
fabtests_unit_test_shim_ring_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_ring_LDFLAGS = $(shim_ldflags)

unit_tests += fabtests/unit/test_shim_write
fabtests_unit_test_shim_write_SOURCES = fabtests/unit/test_shim_write.c $(rc_device)
fabtests_unit_test_shim_write_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_write_LDFLAGS = $(shim_ldflags)

unit_tests += fabtests/unit/test_shim_side_conn
fabtests_unit_test_shim_side_conn_SOURCES = fabtests/unit/test_shim_side_conn.c $(rc_device)
fabtests_unit_test_shim_side_conn_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_side_conn_LDFLAGS = $(shim_ldflags)

# The preload's files compile with each release of rdma-core.
unit_tests += fabtests/unit/test_shim_preload_calls
fabtests_unit_test_shim_preload_calls_SOURCES = \
	fabtests/unit/test_shim_preload_calls.c $(pre_sources)
fabtests_unit_test_shim_preload_calls_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_shim_preload_calls_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_preload_calls_LDFLAGS = -Wl,--wrap=dlsym \
	-Wl,--wrap=rp_pre_qp_del \
	-Wl,--wrap=rp_device_native -Wl,--wrap=rp_builders_supported \
	-Wl,--wrap=rp_pre_qp_find -Wl,--wrap=pthread_rwlock_unlock

unit_tests += fabtests/unit/test_shim_preload_client
fabtests_unit_test_shim_preload_client_SOURCES = \
	fabtests/unit/test_shim_preload_client.c $(rc_device) \
	prov/verbs/preload/client.c prov/verbs/preload/preload.h
fabtests_unit_test_shim_preload_client_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_shim_preload_client_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_preload_client_LDFLAGS = $(shim_ldflags) \
	-Wl,--wrap=poll

unit_tests += fabtests/unit/test_shim_preload_server
fabtests_unit_test_shim_preload_server_SOURCES = \
	fabtests/unit/test_shim_preload_server.c $(rc_device) \
	prov/verbs/preload/client.c prov/verbs/preload/server.c \
	prov/verbs/preload/preload.h
fabtests_unit_test_shim_preload_server_CPPFLAGS = $(AM_CPPFLAGS)
fabtests_unit_test_shim_preload_server_LDADD = $(shim_ldadd)
fabtests_unit_test_shim_preload_server_LDFLAGS = $(shim_ldflags) \
	-Wl,--wrap=accept4 -Wl,--wrap=listen -Wl,--wrap=poll

endif
endif
