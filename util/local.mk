# The programs an operator runs, and what they share.
noinst_LTLIBRARIES += util/libutil.la
util_libutil_la_SOURCES = \
	util/fabric.c util/fabric.h \
	util/text.c util/text.h
util_libutil_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DRP_PROVIDER_DIR='"$(rpmemdir)"'
util_libutil_la_LIBADD = $(FABRIC_LIBS) $(NETTLE_LIBS) -lm
