# The simulated fabric, for tests only: nothing of it is installed. The model
# shares no code with prov/core.
check_LTLIBRARIES += prov/pmsim/libmodel.la
prov_pmsim_libmodel_la_SOURCES = \
	prov/pmsim/model.c prov/pmsim/model.h prov/pmsim/model_priv.h \
	prov/pmsim/model_cut.c
