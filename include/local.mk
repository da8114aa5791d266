rdmaincludedir = $(includedir)/rdma
dist_rdmainclude_HEADERS = include/rdma/fi_ext_rpmem.h
