# The tests in a root of another release; util/check.sh --platform runs them.
EXTRA_DIST += fabtests/platform/chroot.sh fabtests/platform/platform.sh \
	fabtests/platform/root.sh fabtests/platform/tests.sh \
	fabtests/platform/packages.sh fabtests/platform/service.sh \
	fabtests/platform/service_boot.sh \
	fabtests/platform/service_root.sh \
	fabtests/platform/service_tests.sh
