# The verbs shim, where there is libibverbs: what its tests link with, and the
# library.
EXTRA_DIST += include/infiniband/rpmem.h
shim_sources = \
	prov/verbs/attach.c \
	prov/verbs/cq.c \
	prov/verbs/mr.c \
	prov/verbs/order.c \
	prov/verbs/post.c prov/verbs/post.h \
	prov/verbs/qp.c \
	prov/verbs/serve.c prov/verbs/serve.h \
	prov/verbs/shim.h \
	prov/verbs/side.c
EXTRA_DIST += $(shim_sources)

if HAVE_VERBS
noinst_LTLIBRARIES += prov/verbs/libshim.la
prov_verbs_libshim_la_SOURCES = $(shim_sources)
prov_verbs_libshim_la_CFLAGS = $(AM_CFLAGS) $(VERBS_CFLAGS)
prov_verbs_libshim_la_LIBADD = prov/core/libcore.la $(VERBS_LIBS)

lib_LTLIBRARIES += prov/verbs/libibvrpmem.la
prov_verbs_libibvrpmem_la_SOURCES =
prov_verbs_libibvrpmem_la_LIBADD = prov/verbs/libshim.la $(PMEM2_LIBS) \
	$(VERBS_LIBS) -lpthread
prov_verbs_libibvrpmem_la_LDFLAGS = -version-info 0:0:0 -no-undefined \
	-export-symbols-regex '^ibv_rpmem_'
ibvincludedir = $(includedir)/infiniband
ibvinclude_HEADERS = include/infiniband/rpmem.h
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = prov/verbs/libibvrpmem.pc
endif
