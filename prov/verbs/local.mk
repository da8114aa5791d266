# The verbs shim, built only with libibverbs: an archive for its tests, and the
# library.
EXTRA_DIST += include/infiniband/rpmem.h
shim_sources = \
	prov/verbs/attach.c \
	prov/verbs/cq.c \
	prov/verbs/mr.c \
	prov/verbs/params.c \
	prov/verbs/cq_defer.c \
	prov/verbs/post.c prov/verbs/post.h \
	prov/verbs/qp.c \
	prov/verbs/target.c prov/verbs/target.h prov/verbs/target_priv.h \
	prov/verbs/target_thread.c \
	prov/verbs/shim.h \
	prov/verbs/side_conn.c
EXTRA_DIST += $(shim_sources) $(rc_flush)
# The preload: interposes ibv_wr_flush() of programs.
pre_sources = \
	prov/verbs/preload/preload.h \
	prov/verbs/preload/client.c \
	prov/verbs/preload/interpose.c \
	prov/verbs/preload/builders.c \
	prov/verbs/preload/server.c
EXTRA_DIST += $(pre_sources)

if HAVE_VERBS
noinst_LTLIBRARIES += prov/verbs/libshim.la
prov_verbs_libshim_la_SOURCES = $(shim_sources) $(rc_flush)
prov_verbs_libshim_la_LIBADD = prov/core/libcore.la $(VERBS_LIBS)

lib_LTLIBRARIES += prov/verbs/libibvrpmem.la
prov_verbs_libibvrpmem_la_SOURCES =
prov_verbs_libibvrpmem_la_LIBADD = prov/verbs/libshim.la $(PMEM2_LIBS) \
	$(VERBS_LIBS) -lpthread
prov_verbs_libibvrpmem_la_LDFLAGS = -version-info 0:0:0 -no-undefined \
	-export-symbols-regex '^rpmem_'
ibvincludedir = $(includedir)/infiniband
ibvinclude_HEADERS = include/infiniband/rpmem.h
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = prov/verbs/libibvrpmem.pc
endif

# Exports no rpmem_*: programs may link with the shim, too.
pre_calls = open_device|import_device|close_device|create_cq|resize_cq|destroy_cq|get_cq_event|qp_to_qp_ex|modify_qp|query_qp|destroy_qp|reg_mr|reg_mr_iova|reg_mr_iova2|reg_dmabuf_mr|rereg_mr|dereg_mr
preload_ldflags = -module -avoid-version -shared -no-undefined \
	-export-symbols-regex '^ibv_($(pre_calls))$$'
if HAVE_PRELOAD
lib_LTLIBRARIES += prov/verbs/libibvrpmem_preload.la
prov_verbs_libibvrpmem_preload_la_SOURCES = $(pre_sources)
prov_verbs_libibvrpmem_preload_la_LIBADD = prov/verbs/libshim.la \
	$(PMEM2_LIBS) $(VERBS_LIBS) -lpthread -ldl
prov_verbs_libibvrpmem_preload_la_LDFLAGS = $(preload_ldflags)
endif
