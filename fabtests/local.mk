# Tests: unit (Criterion, one file per file of prov/core), functional, fault, mutation.
include fabtests/unit/local.mk
include fabtests/functional/local.mk
include fabtests/fault/local.mk
include fabtests/fuzz/local.mk
include fabtests/mutation/local.mk
include fabtests/vm/local.mk
include fabtests/platform/local.mk
include fabtests/benchmarks/local.mk
include fabtests/integration/local.mk
EXTRA_DIST += fabtests/bounded.sh fabtests/budget.sh fabtests/tally.sh \
	fabtests/upstream.sh fabtests/commit.h fabtests/quick fabtests/rotated \
	fabtests/suppress.lsan fabtests/suppress.tsan
