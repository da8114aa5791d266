# The simulated fabric, for tests only: nothing of it is installed. The model
# shares no code with prov/core.
check_LTLIBRARIES += prov/pmsim/libmodel.la
prov_pmsim_libmodel_la_SOURCES = \
	prov/pmsim/model.c prov/pmsim/model.h prov/pmsim/model_priv.h \
	prov/pmsim/model_power_cut.c

# The provider, in a folder that FI_PROVIDER_PATH can name.
check_LTLIBRARIES += prov/pmsim/libpmsim-fi.la
prov_pmsim_libpmsim_fi_la_SOURCES = \
	prov/pmsim/arrival.c \
	prov/pmsim/atomic.c \
	prov/pmsim/av.c \
	prov/pmsim/cntr.c \
	prov/pmsim/conn.c \
	prov/pmsim/control.c \
	prov/pmsim/cq.c \
	prov/pmsim/domain.c \
	prov/pmsim/eq.c \
	prov/pmsim/ep.c \
	prov/pmsim/fabric.c \
	prov/pmsim/info.c \
	prov/pmsim/mr.c \
	prov/pmsim/msg.c \
	prov/pmsim/op.c \
	prov/pmsim/pmsim.h \
	prov/pmsim/pmsim_int.h \
	prov/pmsim/rma.c \
	prov/pmsim/wire.c
prov_pmsim_libpmsim_fi_la_LDFLAGS = -module -avoid-version -shared \
	-rpath /nowhere -export-symbols-regex '^(fi_prov_ini|pmsim_control)$$'
prov_pmsim_libpmsim_fi_la_LIBADD = prov/pmsim/libmodel.la $(FABRIC_LIBS)
