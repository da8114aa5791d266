# The libfabric provider: one file per libfabric object.
rpmem_sources = \
	prov/rpmem/atomic.c \
	prov/rpmem/av.c \
	prov/rpmem/cm.c \
	prov/rpmem/cm.h \
	prov/rpmem/cntr.c \
	prov/rpmem/cq.c \
	prov/rpmem/cq_read.c \
	prov/rpmem/domain.c \
	prov/rpmem/ep.c \
	prov/rpmem/eq.c \
	prov/rpmem/ext.c \
	prov/rpmem/ext.h \
	prov/rpmem/fabric.c \
	prov/rpmem/fid.c \
	prov/rpmem/os_services.h \
	prov/rpmem/info.c \
	prov/rpmem/info_msg.c \
	prov/rpmem/init.c \
	prov/rpmem/local_read.c \
	prov/rpmem/mr.c \
	prov/rpmem/msg.c \
	prov/rpmem/pep.c \
	prov/rpmem/poll.c \
	prov/rpmem/poll.h \
	prov/rpmem/poll_member.c \
	prov/rpmem/private_conn.c \
	prov/rpmem/progress.c \
	prov/rpmem/rma.c \
	prov/rpmem/rpmem.h \
	prov/rpmem/srx.c \
	prov/rpmem/tagged.c \
	prov/rpmem/target.c \
	prov/rpmem/task.c \
	prov/rpmem/wait.c

if HAVE_RDMACM
rpmem_libs = $(RDMACM_LIBS)
else
rpmem_libs =
endif

rpmem_LTLIBRARIES = prov/rpmem/librpmem-fi.la
prov_rpmem_librpmem_fi_la_SOURCES = $(rpmem_sources) prov/rpmem/os_services.c
prov_rpmem_librpmem_fi_la_LDFLAGS = -module -avoid-version -shared \
	-export-symbols-regex '^fi_prov_ini$$'
prov_rpmem_librpmem_fi_la_LIBADD = prov/rc/librc.la prov/core/libcore.la $(FABRIC_LIBS) \
	$(PMEM2_LIBS) $(rpmem_libs) -lpthread

# libfabric loads the .so, and no program links with it, so the .la is removed.
# libtool uninstalls by the .la, so the .so is removed below.
install-data-hook:
	rm -f $(DESTDIR)$(rpmemdir)/librpmem-fi.la
uninstall-hook:
	rm -f $(DESTDIR)$(rpmemdir)/librpmem-fi.so
