# Two real processes, one behaviour each.

# The man pages describe the code.
check_PROGRAMS += fabtests/functional/man_statuses
fabtests_functional_man_statuses_SOURCES = fabtests/functional/man_statuses.c
fabtests_functional_man_statuses_LDADD = prov/core/libcore.la
check_PROGRAMS += fabtests/functional/man_claims
fabtests_functional_man_claims_SOURCES = fabtests/functional/man_claims.c
fabtests_functional_man_claims_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS) -ldl
EXTRA_DIST += docs/examples/append.c docs/examples/client.c \
	docs/examples/durable.c docs/examples/mpi_window.c \
	docs/examples/mpi_window.h docs/examples/native_flush.c \
	docs/examples/log.c docs/examples/peer.h docs/examples/pool.c docs/examples/rc.h \
	docs/examples/raft_kv.c docs/examples/rpc_client.c docs/examples/rpc_server.c \
	docs/examples/kv.h docs/examples/kv_client.c docs/examples/kv_server.c \
	docs/examples/rpmemd.conf docs/examples/server.c \
	docs/examples/write_flush.c
check_PROGRAMS += fabtests/functional/log_parts
fabtests_functional_log_parts_SOURCES = fabtests/functional/log_parts.c
fabtests_functional_log_parts_LDADD = util/librpmem_log.la \
	util/librpmem_pool.la $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/rpc_many fabtests/functional/rpc_edges
fabtests_functional_rpc_edges_SOURCES = fabtests/functional/rpc_edges.c
fabtests_functional_rpc_edges_LDADD = util/librpmem_rpc.la util/librpmem_pool.la
fabtests_functional_rpc_many_SOURCES = fabtests/functional/rpc_many.c
fabtests_functional_rpc_many_LDADD = util/librpmem_rpc.la util/librpmem_pool.la \
	-lpthread
check_LTLIBRARIES += fabtests/functional/libearly_client.la
fabtests_functional_libearly_client_la_SOURCES = fabtests/functional/early_client.c
fabtests_functional_libearly_client_la_LDFLAGS = -module -avoid-version -shared \
	-rpath /nowhere
fabtests_functional_libearly_client_la_LIBADD = -ldl
# The limits of bounded.sh.
TESTS += fabtests/functional/time_limits.sh
EXTRA_DIST += fabtests/functional/time_limits.sh

man_tests = fabtests/functional/man_examples.sh fabtests/functional/man_lint.sh
TESTS += $(man_tests)
EXTRA_DIST += $(man_tests)

# The tools report and measure.
tool_tests = fabtests/functional/advise.sh \
	fabtests/functional/bench.sh fabtests/functional/bench_suite.sh \
	fabtests/functional/completion.sh fabtests/functional/crash_report.sh \
	fabtests/functional/disks.sh fabtests/functional/real_disk.sh \
	fabtests/functional/info.sh fabtests/functional/offer.sh \
	fabtests/functional/promtool.sh fabtests/functional/stats.sh \
	fabtests/functional/unlisted.sh
TESTS += $(tool_tests)
EXTRA_DIST += $(tool_tests) fabtests/functional/alerts_test.yml \
	fabtests/functional/crash_report.py
check_PROGRAMS += fabtests/functional/crash_page
fabtests_functional_crash_page_SOURCES = fabtests/functional/crash_page.c \
	$(crash_report_sources)
fabtests_functional_crash_page_LDADD = $(JANSSON_LIBS)

# Power cuts of programs that know nothing of the provider.
check_PROGRAMS += fabtests/functional/crash_victim
fabtests_functional_crash_victim_SOURCES = fabtests/functional/crash_victim.c
fabtests_functional_crash_victim_LDADD = -lpthread
check_PROGRAMS += fabtests/functional/crash_client
fabtests_functional_crash_client_SOURCES = fabtests/functional/crash_client.c
fabtests_functional_crash_client_LDADD = util/librpmem_pool.la
check_PROGRAMS += fabtests/functional/pool_fabric
fabtests_functional_pool_fabric_SOURCES = fabtests/functional/pool_fabric.c
fabtests_functional_pool_fabric_LDADD = util/librpmem_pool.la $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/crash_log
fabtests_functional_crash_log_SOURCES = fabtests/functional/crash_log.c
fabtests_functional_crash_log_LDADD = util/librpmem_log.la
EXTRA_DIST += fabtests/functional/crash_planted.py
if HAVE_NBDKIT
check_LTLIBRARIES += fabtests/functional/nbdkit-flush-filter.la
fabtests_functional_nbdkit_flush_filter_la_SOURCES = \
	fabtests/functional/flush_filter.c
fabtests_functional_nbdkit_flush_filter_la_CFLAGS = $(AM_CFLAGS) \
	$(NBDKIT_CFLAGS) -fvisibility=default
fabtests_functional_nbdkit_flush_filter_la_LDFLAGS = -module -avoid-version \
	-shared -rpath /nowhere -export-symbols-regex '^filter_init$$'
endif
crashtest_tests = fabtests/functional/crashtest.sh \
	fabtests/functional/crashtest_device.sh \
	fabtests/functional/crashtest_pool.sh \
	fabtests/functional/crashtest_postgres.sh \
	fabtests/functional/crashtest_sqlite.sh
TESTS += $(crashtest_tests)
EXTRA_DIST += $(crashtest_tests)

# The README's program, and the direction of includes.
tree_tests = fabtests/functional/budgets.sh \
	fabtests/functional/call_cycles.sh fabtests/functional/dist.sh \
	fabtests/functional/includes.sh fabtests/functional/layering.sh \
	fabtests/functional/readme_example.sh \
	fabtests/functional/select.sh fabtests/functional/upgrade.sh
TESTS += $(tree_tests)
EXTRA_DIST += $(tree_tests)

# The provider between two processes.
AM_TESTS_ENVIRONMENT += FI_TCP_IFACE=lo; export FI_TCP_IFACE; \
	FI_SOCKETS_IFACE=lo; export FI_SOCKETS_IFACE; \
	FI_PROVIDER_PATH=$(abs_top_builddir)/prov/rpmem/.libs; \
	export FI_PROVIDER_PATH;
pair_sources = fabtests/functional/pair.c fabtests/functional/pair.h
check_PROGRAMS += fabtests/functional/basic
TESTS += fabtests/functional/basic
fabtests_functional_basic_SOURCES = fabtests/functional/basic.c $(pair_sources)
fabtests_functional_basic_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/endpoints
TESTS += fabtests/functional/endpoints
fabtests_functional_endpoints_SOURCES = fabtests/functional/endpoints.c $(pair_sources)
fabtests_functional_endpoints_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/connected
TESTS += fabtests/functional/connected
fabtests_functional_connected_SOURCES = fabtests/functional/connected.c $(pair_sources)
fabtests_functional_connected_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/regions
TESTS += fabtests/functional/regions
fabtests_functional_regions_SOURCES = fabtests/functional/regions.c $(pair_sources)
fabtests_functional_regions_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/downgrade
TESTS += fabtests/functional/downgrade
fabtests_functional_downgrade_SOURCES = fabtests/functional/downgrade.c $(pair_sources)
fabtests_functional_downgrade_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/weaken
TESTS += fabtests/functional/weaken
fabtests_functional_weaken_SOURCES = fabtests/functional/weaken.c $(pair_sources)
fabtests_functional_weaken_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/atomic
TESTS += fabtests/functional/atomic
fabtests_functional_atomic_SOURCES = fabtests/functional/atomic.c $(pair_sources)
fabtests_functional_atomic_LDADD = $(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/absent_peer
TESTS += fabtests/functional/absent_peer
fabtests_functional_absent_peer_SOURCES = fabtests/functional/absent_peer.c $(pair_sources)
fabtests_functional_absent_peer_LDADD = $(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/unreachable
TESTS += fabtests/functional/unreachable
fabtests_functional_unreachable_SOURCES = fabtests/functional/unreachable.c
fabtests_functional_unreachable_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS)
check_PROGRAMS += fabtests/functional/many_peers
TESTS += fabtests/functional/many_peers
fabtests_functional_many_peers_SOURCES = fabtests/functional/many_peers.c
fabtests_functional_many_peers_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/cq_readers
TESTS += fabtests/functional/cq_readers
fabtests_functional_cq_readers_SOURCES = fabtests/functional/cq_readers.c
# The provider calls its epoll_wait().
fabtests_functional_cq_readers_LDFLAGS = -export-dynamic
fabtests_functional_cq_readers_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/direct
TESTS += fabtests/functional/direct
fabtests_functional_direct_SOURCES = fabtests/functional/direct.c
fabtests_functional_direct_LDADD = $(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/effects
TESTS += fabtests/functional/effects
fabtests_functional_effects_SOURCES = fabtests/functional/effects.c $(pair_sources)
fabtests_functional_effects_LDADD = $(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/spin
TESTS += fabtests/functional/spin
fabtests_functional_spin_SOURCES = fabtests/functional/spin.c $(pair_sources)
fabtests_functional_spin_LDADD = $(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/order
TESTS += fabtests/functional/order
fabtests_functional_order_SOURCES = fabtests/functional/order.c $(pair_sources)
fabtests_functional_order_LDADD = $(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/inline
TESTS += fabtests/functional/inline
fabtests_functional_inline_SOURCES = fabtests/functional/inline.c $(pair_sources)
fabtests_functional_inline_LDADD = $(FABRIC_LIBS)

# Programs that request no persistence.
check_PROGRAMS += fabtests/functional/implicit_commit
TESTS += fabtests/functional/implicit_commit.sh
EXTRA_DIST += fabtests/functional/implicit_commit.sh
fabtests_functional_implicit_commit_SOURCES = fabtests/functional/implicit_commit.c $(pair_sources)
fabtests_functional_implicit_commit_LDADD = $(FABRIC_LIBS)

# Private connections.
check_PROGRAMS += fabtests/functional/write_only
TESTS += fabtests/functional/write_only
fabtests_functional_write_only_SOURCES = fabtests/functional/write_only.c $(pair_sources)
fabtests_functional_write_only_LDADD = $(FABRIC_LIBS)

check_PROGRAMS += fabtests/functional/private_conn
TESTS += fabtests/functional/private_conn.sh
EXTRA_DIST += fabtests/functional/private_conn.sh
fabtests_functional_private_conn_SOURCES = fabtests/functional/private_conn.c \
	fabtests/fault/frame_peer.c fabtests/fault/frame_peer.h $(pair_sources)
fabtests_functional_private_conn_LDADD = $(FABRIC_LIBS)

# Small writes, many coalesced into one message; private_conn.sh runs it, too.
check_PROGRAMS += fabtests/functional/coalesced_writes
fabtests_functional_coalesced_writes_SOURCES = \
	fabtests/functional/coalesced_writes.c $(pair_sources)
fabtests_functional_coalesced_writes_LDADD = $(FABRIC_LIBS)

# Copies in both directions, interrupted in every way.
cp_tests = fabtests/functional/cp.sh fabtests/functional/cp_group.sh
TESTS += $(cp_tests)
EXTRA_DIST += $(cp_tests)

# The report of lost tests of upstream's fabtests.
TESTS += fabtests/functional/upstream.sh
EXTRA_DIST += fabtests/functional/upstream.sh

# Threads in every model.
check_PROGRAMS += fabtests/functional/threads
TESTS += fabtests/functional/threads
fabtests_functional_threads_SOURCES = fabtests/functional/threads.c $(pair_sources)
fabtests_functional_threads_LDADD = $(FABRIC_LIBS) -lpthread

# Counters in both processes.
check_PROGRAMS += fabtests/functional/cntr
TESTS += fabtests/functional/cntr.sh
EXTRA_DIST += fabtests/functional/cntr.sh
fabtests_functional_cntr_SOURCES = fabtests/functional/cntr.c $(pair_sources)
fabtests_functional_cntr_LDADD = $(FABRIC_LIBS)

# Queries, and what a zeroed commit means.
check_PROGRAMS += fabtests/functional/query
TESTS += fabtests/functional/query
fabtests_functional_query_SOURCES = fabtests/functional/query.c $(pair_sources)
fabtests_functional_query_LDADD = $(FABRIC_LIBS)

# Poll sets.
check_PROGRAMS += fabtests/functional/poll
TESTS += fabtests/functional/poll
fabtests_functional_poll_SOURCES = fabtests/functional/poll.c $(pair_sources)
fabtests_functional_poll_LDADD = $(FABRIC_LIBS)

# An endpoint that first commits and then also serves.
check_PROGRAMS += fabtests/functional/roles
TESTS += fabtests/functional/roles
fabtests_functional_roles_SOURCES = fabtests/functional/roles.c $(pair_sources)
fabtests_functional_roles_LDADD = $(FABRIC_LIBS)

# Programs that cannot distinguish the provider from its base.
check_PROGRAMS += fabtests/functional/transparent
transparent_parts = fabtests/functional/transparent.h \
	fabtests/functional/transparent_offer.c \
	fabtests/functional/transparent_plan.c \
	fabtests/functional/transparent_plan_io.c \
	fabtests/functional/transparent_post.c \
	fabtests/functional/transparent_run.c \
	fabtests/functional/transparent_steps.c \
	fabtests/functional/transparent_trace.c \
	fabtests/functional/transparent_world.c
fabtests_functional_transparent_SOURCES = fabtests/functional/transparent.c \
	fabtests/functional/transparent_side.c \
	fabtests/functional/transparent_side.h $(transparent_parts)
fabtests_functional_transparent_LDADD = $(FABRIC_LIBS) -lpthread
check_PROGRAMS += fabtests/functional/shared_recv
fabtests_functional_shared_recv_SOURCES = fabtests/functional/shared_recv.c \
	$(pair_sources)
fabtests_functional_shared_recv_LDADD = $(FABRIC_LIBS)
TESTS += fabtests/functional/shared_recv

# The same with connected endpoints.
check_PROGRAMS += fabtests/functional/transparent_conn
fabtests_functional_transparent_conn_SOURCES = \
	fabtests/functional/transparent_conn.c \
	fabtests/functional/transparent_conn.h \
	fabtests/functional/transparent_conn_post.c \
	fabtests/functional/transparent_conn_world.c $(transparent_parts)
fabtests_functional_transparent_conn_LDADD = $(FABRIC_LIBS) -lpthread
TESTS += fabtests/functional/transparent_conn
TESTS += fabtests/functional/transparent.sh
EXTRA_DIST += fabtests/functional/transparent.sh \
	fabtests/functional/transparent_planted
# Under valgrind.
TESTS += fabtests/functional/valgrind.sh
EXTRA_DIST += fabtests/functional/valgrind.sh fabtests/functional/valgrind.supp

if HAVE_PMEMOBJ
check_PROGRAMS += fabtests/functional/obj_replica
fabtests_functional_obj_replica_SOURCES = fabtests/functional/obj_replica.c
fabtests_functional_obj_replica_LDADD = $(PMEMOBJ_LIBS) -lpthread
endif
check_PROGRAMS += fabtests/functional/group_client
fabtests_functional_group_client_SOURCES = fabtests/functional/group_client.c
fabtests_functional_group_client_LDADD = util/librpmem_pool.la
check_PROGRAMS += fabtests/functional/group_load
fabtests_functional_group_load_SOURCES = fabtests/functional/group_load.c
fabtests_functional_group_load_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
fabtests_functional_group_load_LDADD = util/librpmem_pool.la
EXTRA_DIST += fabtests/functional/linearizability.py fabtests/functional/raft_lives.py \
	fabtests/functional/dqlite.py fabtests/functional/dqlite_lives.py \
	fabtests/functional/dqlite_server.c
pool_tests = fabtests/functional/group.sh \
	fabtests/functional/obj_replica.sh \
	fabtests/functional/obj_ssh.sh \
	fabtests/functional/group_tool.sh \
	fabtests/functional/log.sh \
	fabtests/functional/rpc.sh \
	fabtests/functional/lead.sh \
	fabtests/functional/group_net.sh \
	fabtests/functional/raft.sh fabtests/functional/dqlite.sh \
	fabtests/functional/pool.sh fabtests/functional/hung_disk.sh \
	fabtests/functional/reload.sh fabtests/functional/nbd.sh \
	fabtests/functional/nbd_open.sh fabtests/functional/nbd_random.sh \
	fabtests/functional/nbd_planted.py fabtests/functional/nbd_copy.sh \
	fabtests/functional/on_rpmem.sh
TESTS += $(pool_tests)
EXTRA_DIST += $(pool_tests) fabtests/functional/suite.sh \
	fabtests/functional/completion.zsh \
	fabtests/functional/nbd_disk.sh fabtests/functional/nbd_random.py \
	fabtests/functional/crash_suite.sh fabtests/functional/obj_suite.sh \
	fabtests/functional/group_net.py fabtests/functional/slow_link.py \
	fabtests/functional/group_net_planted
check_PROGRAMS += fabtests/functional/read_only
fabtests_functional_read_only_SOURCES = fabtests/functional/read_only.c
fabtests_functional_read_only_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS)
