# Tests: unit (Criterion, one file per file of prov/core), functional, fault.
include fabtests/unit/local.mk
include fabtests/functional/local.mk
include fabtests/fault/local.mk
EXTRA_DIST += fabtests/suppress.lsan fabtests/suppress.tsan
