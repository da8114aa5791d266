# The verbs shim. It is unfinished, so it is not installed: it is built for its
# tests, where there is libibverbs.
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
endif
