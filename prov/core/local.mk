# Decides and performs durability; knows neither fi_* nor ibv_*.
noinst_LTLIBRARIES += prov/core/libcore.la
core_sources = \
	prov/core/agent.c prov/core/agent.h prov/core/agent_priv.h \
	prov/core/agent_accept.c prov/core/agent_facts.c \
	prov/core/agent_local.c prov/core/agent_serve.c \
	prov/core/deferred.c prov/core/deferred.h \
	prov/core/atomic.c prov/core/atomic.h \
	prov/core/batch.c prov/core/batch.h \
	prov/core/caps.c prov/core/caps.h prov/core/caps_backing.c \
	prov/core/caps_disk.c \
	prov/core/caps_fs.c prov/core/caps_nvdimm.c prov/core/caps_intent.c \
	prov/core/caps_names.c \
	prov/core/caps_nic.c prov/core/operator_file.c prov/core/operator_file.h \
	prov/core/caps_priv.h \
	prov/core/channel.h \
	prov/core/fault.h \
	prov/core/hash.h \
	prov/core/list.h \
	prov/core/log.c prov/core/log.h \
	prov/core/method.c prov/core/method.h \
	prov/core/method_force.c prov/core/method_priv.h \
	prov/core/pmem.h \
	prov/core/ranges.c prov/core/ranges.h \
	prov/core/region.c prov/core/region.h \
	prov/core/remote_flush.c prov/core/remote_flush.h \
	prov/core/ring.c prov/core/ring.h \
	prov/core/session.c prov/core/session.h prov/core/session_priv.h \
	prov/core/session_batch.c \
	prov/core/session_commit.c prov/core/session_grant.c \
	prov/core/session_op.c prov/core/session_piece.c \
	prov/core/session_post.c prov/core/session_ranges.c \
	prov/core/spin.c prov/core/spin.h \
	prov/core/stats.c prov/core/stats.h \
	prov/core/status.c prov/core/status.h \
	prov/core/bytes.h \
	prov/core/watch.c prov/core/watch.h \
	prov/core/wire.c prov/core/wire.h prov/core/wire_layout.h \
	prov/core/wire_pack.c prov/core/wire_pack.h prov/core/wire_request.c \
	prov/core/wire_desc.c prov/core/wire_desc.h \
	prov/core/wire_rendezvous.c prov/core/wire_rendezvous.h \
	prov/core/thread.h \
	prov/core/worker.c prov/core/worker.h
# Sources with fault injection points.
core_faults = prov/core/agent_session.c prov/core/pmem.c
prov_core_libcore_la_SOURCES = $(core_sources) $(core_faults)
prov_core_libcore_la_LIBADD = $(PMEM2_LIBS) -lpthread
