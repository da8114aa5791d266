# The tools for operators, and their shared library.
EXTRA_DIST += util/on_rpmem.sh util/quickstart.sh util/check.sh util/packages.sh \
	util/package.sh \
	util/trust.sh  \
	util/lint.sh util/lint.known util/lint.cppcheck util/words.py .clang-tidy
noinst_LTLIBRARIES += util/libutil.la
util_libutil_la_SOURCES = \
	util/bytes.h util/clock.h \
	util/fabric.c util/fabric.h \
	util/machine_facts.c util/machine_facts.h \
	util/method_advice.c util/method_advice.h \
	util/file.c util/file.h \
	util/host_facts.c util/host_facts.h \
	util/pool.c util/pool.h util/pool_lock.c util/pool_lock.h \
	util/query_class.c util/query_class.h \
	util/ratio.c util/ratio.h \
	util/secret.c util/secret.h \
	util/service.c util/service.h util/service_fabric.c \
	util/dirty_shutdowns.c util/dirty_shutdowns.h \
	util/setup.c util/setup.h \
	util/setup_client.c util/setup_client.h \
	util/setup_conn.h util/setup_holders.c \
	util/setup_listen.c util/setup_server.c util/setup_server.h \
	util/stats.c util/stats.h util/stats_text.c \
	util/text.c util/text.h util/waiters.h
util_libutil_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DRP_PROVIDER_DIR='"$(rpmemdir)"'
util_libutil_la_LIBADD = $(FABRIC_LIBS) $(NETTLE_LIBS) $(PMEM2_LIBS) -lm

bin_PROGRAMS += util/fi_rpmem_bench
util_fi_rpmem_bench_SOURCES = util/fi_rpmem_bench.c
util_fi_rpmem_bench_LDADD = $(bench_libs)

bin_PROGRAMS += util/fi_rpmem_info
util_fi_rpmem_info_SOURCES = util/fi_rpmem_info.c util/info.h util/exit_codes.h \
	util/advise.c util/advise.h util/advise_machine.c \
	util/advise_memory.c util/advise_peer.c \
	util/info_advice.c util/info_host.c util/info_path.c \
	util/info_stats.c util/info_table.c util/info_target.c \
	util/method_rows.c util/method_rows.h \
	util/doctor.c util/doctor_commit.c util/doctor_disk.c util/doctor_filter.c
util_fi_rpmem_info_LDADD = util/libutil.la prov/core/libcore.la \
	$(JANSSON_LIBS) $(FABRIC_LIBS) $(PMEM2_LIBS) -ldl -lpthread

# Memory that processes serve: fi_rpmemd, and the server of calls.
noinst_LTLIBRARIES += util/libexport.la
util_libexport_la_SOURCES = \
	util/export.c util/export.h util/export_key.c \
	util/export_worker.c util/export_worker.h util/export_text.c \
	util/sigbus.c util/sigbus.h
bin_PROGRAMS += util/fi_rpmemd
util_fi_rpmemd_SOURCES = util/fi_rpmemd.c util/exit_codes.h \
	util/conf.c util/conf.h \
	util/metrics.c util/metrics.h \
	util/one_shot.c util/one_shot.h
util_fi_rpmemd_LDADD = util/libexport.la util/libutil.la prov/core/libcore.la $(FABRIC_LIBS) \
	$(INIH_LIBS) $(MICROHTTPD_LIBS)

# The systemd unit of fi_rpmemd, and the unit's user.
EXTRA_DIST += util/systemd/fi_rpmemd.service.in util/systemd/ofi_rpmem.conf
systemdsystemunit_DATA = util/systemd/fi_rpmemd.service
sysusersdir = $(prefix)/lib/sysusers.d
sysusers_DATA = util/systemd/ofi_rpmem.conf
CLEANFILES += util/systemd/fi_rpmemd.service
util/systemd/fi_rpmemd.service: util/systemd/fi_rpmemd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) util/systemd && \
		$(SED) 's,@bindir[@],$(bindir),' \
		'$(top_srcdir)/util/systemd/fi_rpmemd.service.in' >$@

bin_PROGRAMS += util/fi_rpmem_cp
util_fi_rpmem_cp_SOURCES = util/fi_rpmem_cp.c util/exit_codes.h util/copy.c \
	util/copy.h util/progress_bar.c util/progress_bar.h
util_fi_rpmem_cp_LDADD = util/librpmem_pool.la util/libutil.la \
	prov/core/libcore.la $(JANSSON_LIBS) $(NETTLE_LIBS) $(FABRIC_LIBS)

EXTRA_DIST += util/rpmem_lead.sh
bin_SCRIPTS += util/rpmem_lead
CLEANFILES += util/rpmem_lead
util/rpmem_lead: util/rpmem_lead.sh
	$(AM_V_GEN)$(MKDIR_P) util && cp '$(top_srcdir)/util/rpmem_lead.sh' $@ && chmod +x $@

# The library for programs that write to a pool. Unit tests link parts of it, and of
# the libraries below, from an archive.
noinst_LTLIBRARIES += util/libpool/libpool.la
util_libpool_libpool_la_SOURCES = util/pool_class.h \
	util/libpool/connect.c util/libpool/error.c util/libpool/group.c \
	util/libpool/group.h util/libpool/group_bits.c \
	util/libpool/group_deadline.c util/libpool/group_epoch.c \
	util/libpool/group_format.c util/libpool/group_member.c \
	util/libpool/group_calls.c util/libpool/group_join.c \
	util/libpool/group_open.c \
	util/libpool/group_open.h util/libpool/group_threads.c \
	util/libpool/group_threads.h \
	util/libpool/group_ranges.c util/libpool/group_rebuild.c \
	util/libpool/journal.c util/libpool/journal.h \
	util/libpool/lease.c util/libpool/open.c util/libpool/piece.c util/libpool/piece.h \
	util/libpool/pool.h \
	util/libpool/commits.c util/libpool/wait.c util/libpool/work.c
lib_LTLIBRARIES += util/librpmem_pool.la
util_librpmem_pool_la_SOURCES =
util_librpmem_pool_la_LIBADD = util/libpool/libpool.la util/libutil.la prov/core/libcore.la \
	$(XXHASH_LIBS) $(FABRIC_LIBS) $(PMEM2_LIBS) -lpthread
util_librpmem_pool_la_LDFLAGS = -version-info 0:0:0 -no-undefined \
	-export-symbols-regex '^rpmem_pool_'
pooldir = $(libdir)/pkgconfig
pool_DATA = util/libpool/librpmem_pool.pc util/liblog/librpmem_log.pc \
	util/librpc/librpmem_rpc.pc prov/rpmem/ofi_rpmem.pc

# The library for programs that append to a log in a pool.
noinst_LTLIBRARIES += util/liblog/liblog.la
util_liblog_liblog_la_SOURCES = \
	util/liblog/append.c util/liblog/error.c \
	util/liblog/format.c util/liblog/format.h \
	util/liblog/log.h util/liblog/open.c util/liblog/progress.c \
	util/liblog/read.c util/liblog/super.c
lib_LTLIBRARIES += util/librpmem_log.la
util_librpmem_log_la_SOURCES =
util_librpmem_log_la_LIBADD = util/liblog/liblog.la util/librpmem_pool.la $(XXHASH_LIBS) -lpthread
util_librpmem_log_la_LDFLAGS = -version-info 0:0:0 -no-undefined \
	-export-symbols-regex '^rpmem_log_'

# The library that libpmemobj up to 1.12 loads for replicas on other hosts, and
# unloads at its end. libfabric cannot be unloaded.
if HAVE_PMDK_1_12
lib_LTLIBRARIES += util/librpmem.la
util_librpmem_la_SOURCES = util/librpmem/librpmem.c \
	util/librpmem/session.c util/librpmem/session.h util/one_shot.h \
	util/text.c util/text.h
util_librpmem_la_LIBADD = util/librpmem_pool.la $(XXHASH_LIBS)
util_librpmem_la_LDFLAGS = -version-info 1:0:0 -no-undefined -Wl,-z,nodelete \
	-export-symbols-regex '^rpmem_[a-z]'
endif

# The library for calls that are durable before they are processed.
noinst_LTLIBRARIES += util/librpc/librpc.la
util_librpc_librpc_la_SOURCES = \
	util/librpc/calls.c util/librpc/client.h util/librpc/connect.c \
	util/librpc/error.c util/librpc/format.c util/librpc/format.h \
	util/librpc/loop.c util/librpc/port.c util/librpc/port.h \
	util/librpc/rpc.h util/librpc/server.c util/librpc/server.h \
	util/librpc/slot.c
lib_LTLIBRARIES += util/librpmem_rpc.la
util_librpmem_rpc_la_SOURCES =
util_librpmem_rpc_la_LIBADD = util/librpc/librpc.la util/libexport.la \
	util/librpmem_pool.la util/libutil.la prov/core/libcore.la \
	$(XXHASH_LIBS) $(FABRIC_LIBS) $(PMEM2_LIBS) -lpthread
util_librpmem_rpc_la_LDFLAGS = -version-info 0:0:0 -no-undefined \
	-export-symbols-regex '^rpmem_rpc_'

# The library for programs that run a server of libraft.
if HAVE_RAFT
noinst_LTLIBRARIES += util/libraft/libraft.la
util_libraft_libraft_la_SOURCES = \
	util/libraft/backend.h util/libraft/conf.c util/libraft/io.c \
	util/libraft/net.c util/libraft/replay.c util/libraft/ring.c \
	util/libraft/snapshot.c util/libraft/pool.c util/libraft/store.c util/libraft/store.h \
	util/libraft/uvpoll.c util/libraft/wire.c util/libraft/wire.h \
	util/libraft/writer.c \
	util/libraft/writer.h
lib_LTLIBRARIES += util/librpmem_raft.la
util_librpmem_raft_la_SOURCES =
util_librpmem_raft_la_LIBADD = util/libraft/libraft.la util/librpmem_log.la $(RAFT_LIBS) -lpthread
util_librpmem_raft_la_LDFLAGS = -version-info 0:0:0 -no-undefined \
	-export-symbols-regex '^rpmem_raft_'
pool_DATA += util/libraft/librpmem_raft.pc
# The preload that puts it below unmodified programs.
lib_LTLIBRARIES += util/librpmem_raft_preload.la
util_librpmem_raft_preload_la_SOURCES = util/libraft/preload.c
util_librpmem_raft_preload_la_LIBADD = util/librpmem_raft.la
util_librpmem_raft_preload_la_LDFLAGS = -module -avoid-version -shared -no-undefined \
	-export-symbols-regex '^raft_uv_(init|close|set_.*)$$'
endif

bin_PROGRAMS += util/fi_rpmem_plugpull
util_fi_rpmem_plugpull_SOURCES = util/fi_rpmem_plugpull.c util/exit_codes.h \
	util/argp_number.h \
	util/plugpull.h util/plugpull_judge.c util/plugpull_ledger.c \
	util/plugpull_writer.c
util_fi_rpmem_plugpull_LDADD = util/librpmem_pool.la util/libutil.la \
	prov/core/libcore.la $(JANSSON_LIBS) $(NETTLE_LIBS) $(FABRIC_LIBS) \
	-lpthread

# The engine of fi_rpmem_crashtest is also that of its unit tests.
crash_image_sources = util/crashtest/runlog.c util/crashtest/runlog.h \
	util/crashtest/history.c util/crashtest/history.h \
	util/crashtest/directory_tree.c util/crashtest/sample.c util/crashtest/sample.h
crash_record_sources = util/crashtest/call.c util/crashtest/record.c \
	util/crashtest/record.h util/crashtest/record_priv.h \
	util/crashtest/record_tree.c util/crashtest/trace.h
bin_PROGRAMS += util/fi_rpmem_crashtest
util_fi_rpmem_crashtest_SOURCES = util/crashtest/crashtest.c \
	util/crashtest/crashtest.h util/crashtest/explore.c \
	util/crashtest/check.c util/crashtest/check.h \
	util/crashtest/filter.c util/crashtest/modes.c util/crashtest/modes.h \
	util/crashtest/result.c util/crashtest/result.h \
	util/crashtest/shrink.c util/crashtest/shrink.h \
	util/crashtest/trace.c $(crash_record_sources) \
	$(crash_image_sources) $(crash_report_sources)
util_fi_rpmem_crashtest_LDADD = util/libutil.la $(JANSSON_LIBS) $(XXHASH_LIBS)

bin_PROGRAMS += util/fi_rpmem_group
util_fi_rpmem_group_SOURCES = util/fi_rpmem_group.c util/exit_codes.h \
	util/group_replace.c util/group_scrub.c util/group_tool.c \
	util/group_tool.h util/progress_bar.c \
	util/progress_bar.h
util_fi_rpmem_group_LDADD = util/librpmem_pool.la util/libpool/libpool.la util/libutil.la \
	prov/core/libcore.la $(JANSSON_LIBS) $(XXHASH_LIBS) $(FABRIC_LIBS)

# bash loads the completion file whose name is that of the command.
bashcompdir = $(datadir)/bash-completion/completions
completions = util/completion/fi_rpmemd util/completion/fi_rpmem_cp \
	util/completion/fi_rpmem_info util/completion/fi_rpmem_bench \
	util/completion/fi_rpmem_group util/completion/fi_rpmem_plugpull \
	util/completion/fi_rpmem_crashtest util/completion/rpmem_lead
nodist_bashcomp_DATA = $(completions)
CLEANFILES += $(completions)
EXTRA_DIST += util/completion/fi_rpmem.bash
$(completions): util/completion/fi_rpmem.bash
	$(AM_V_GEN)$(MKDIR_P) util/completion && \
		cp $(srcdir)/util/completion/fi_rpmem.bash $@
zshcompdir = $(datadir)/zsh/site-functions
dist_zshcomp_DATA = util/completion/_fi_rpmem util/completion/_rpmem_lead

dist_python3_DATA = util/python/rpmem_pool.py

# The plugin for nbdkit.
EXTRA_DIST += util/nbdkit/rpmem.c
if HAVE_NBDKIT
nbdkit_LTLIBRARIES = util/nbdkit-rpmem-plugin.la
util_nbdkit_rpmem_plugin_la_SOURCES = util/nbdkit/rpmem.c
util_nbdkit_rpmem_plugin_la_CFLAGS = $(AM_CFLAGS) $(NBDKIT_CFLAGS) \
	-fvisibility=default
util_nbdkit_rpmem_plugin_la_LIBADD = util/librpmem_pool.la
util_nbdkit_rpmem_plugin_la_LDFLAGS = -module -avoid-version -shared \
	-export-symbols-regex '^plugin_init$$'
endif

# The module for Redis, which is also preloaded.
redismoduledir = $(libdir)/redis/modules
redismodule_LTLIBRARIES = util/rpmem_redis.la
util_rpmem_redis_la_SOURCES = util/redis/mirror.c util/redis/mirror.h \
	util/redis/module.c util/redis/preload.c util/redis/restore.c
util_rpmem_redis_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
util_rpmem_redis_la_LIBADD = util/librpmem_log.la -ldl -lpthread
util_rpmem_redis_la_LDFLAGS = -module -avoid-version -shared \
	-export-symbols-regex '^(RedisModule_On(Load|Unload)|fdatasync|rename|unlink|truncate64)$$'

# The report pages of fi_rpmem_crashtest.
crash_report_sources = util/crashtest/report.c util/crashtest/report.h \
	util/crashtest/report_facts.h util/crashtest/report_html.c \
	util/crashtest/report_style.c util/crashtest/report_style.h \
	util/crashtest/report_text.c
