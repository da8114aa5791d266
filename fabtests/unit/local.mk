# One Criterion program per file of prov/core, of the same name.
if HAVE_CRITERION
unit_ldadd = prov/core/libcore.la $(CRITERION_LIBS)
endif
