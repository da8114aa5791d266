rdmaincludedir = $(includedir)/rdma
dist_rdmainclude_HEADERS = include/rdma/fi_ext_rpmem.h
dist_include_HEADERS = include/rpmem_pool.h include/rpmem_log.h \
	include/rpmem_rpc.h
if HAVE_RAFT
include_HEADERS = include/rpmem_raft.h
endif
EXTRA_DIST += include/rpmem_raft.h
