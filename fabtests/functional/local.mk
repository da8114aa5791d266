# Two real processes, one behaviour each.

# What the man pages say is what the code does.
check_PROGRAMS += fabtests/functional/man_statuses
fabtests_functional_man_statuses_SOURCES = fabtests/functional/man_statuses.c
fabtests_functional_man_statuses_LDADD = prov/core/libcore.la
check_PROGRAMS += fabtests/functional/man_claims
fabtests_functional_man_claims_SOURCES = fabtests/functional/man_claims.c
fabtests_functional_man_claims_LDADD = util/libutil.la prov/core/libcore.la \
	$(FABRIC_LIBS)
man_tests = fabtests/functional/man_examples.sh fabtests/functional/man_lint.sh
TESTS += $(man_tests)
EXTRA_DIST += $(man_tests)

# The tools say and measure what is there.
tool_tests = fabtests/functional/bench.sh fabtests/functional/info.sh
TESTS += $(tool_tests)
EXTRA_DIST += $(tool_tests)

# What the README says, and the direction of the arrows.
tree_tests = fabtests/functional/includes.sh fabtests/functional/readme_example.sh
TESTS += $(tree_tests)
EXTRA_DIST += $(tree_tests)
