# Reliable private connections: the only implementers of core/channel.h.
noinst_LTLIBRARIES += prov/rc/librc.la
rc_sources = \
	prov/rc/rc.c prov/rc/rc.h prov/rc/rc_priv.h \
	prov/rc/rc_listen.c prov/rc/rc_recv.c \
	prov/rc/rc_fabric.c prov/rc/rc_fabric.h \
	prov/rc/rc_fabric_cm.c
if HAVE_RDMACM
rc_sources += \
	prov/rc/rc_verbs.c prov/rc/rc_verbs.h \
	prov/rc/rc_verbs_cm.c prov/rc/rc_verbs_post.c \
	prov/rc/rc_flush.c prov/rc/rc_flush.h
endif
prov_rc_librc_la_SOURCES = $(rc_sources)
