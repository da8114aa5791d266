# Reliable private connections: the implementations of core/channel.h.
noinst_LTLIBRARIES += prov/rc/librc.la
rc_sources = \
	prov/rc/rc.c prov/rc/rc.h prov/rc/rc_priv.h \
	prov/rc/rc_listen.c prov/rc/rc_recv.c \
	prov/rc/rc_tcp.c prov/rc/rc_tcp.h prov/rc/rc_tcp_channel.c \
	prov/rc/rc_tcp_cm.c prov/rc/rc_tcp_frame.h \
	prov/rc/rc_tcp_recv.c prov/rc/rc_tcp_send.c
if HAVE_RDMACM
rc_sources += \
	prov/rc/rc_verbs.c prov/rc/rc_verbs.h \
	prov/rc/rc_verbs_cm.c prov/rc/rc_verbs_post.c
endif
# The verbs shim uses it, too.
rc_flush = prov/rc/rc_native_flush.c prov/rc/rc_native_flush.h
prov_rc_librc_la_SOURCES = $(rc_sources)
if HAVE_RDMACM
prov_rc_librc_la_SOURCES += $(rc_flush)
endif
