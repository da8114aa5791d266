#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The archive of `make dist` has every file that git knows. With RP_LONG=1 all of
# it is compiled from that archive, and all suites of `make check` are run there.
set -u
# The make that runs this suite exports its variables and its job server.
unset MAKEFLAGS MFLAGS MAKELEVEL
. "${srcdir:-..}/fabtests/functional/suite.sh"
enter dist

git -C "$src" rev-parse --git-dir >/dev/null 2>&1 || {
	echo "SKIP: no git repository here, so nothing says what the archive needs"
	exit 77
}
make -s -C "$top" dist-gzip GZIP_ENV=--fast distdir="${dir#./}/tree" \
	>make.out 2>&1 || {
	cat make.out
	fail "make dist"
	exit 1
}
tar -tzf tree.tar.gz | sed -n 's,^[^/]*/[^/]*/\(.*[^/]\)$,\1,p' | sort >archived
[ -s archived ] || exit 99
git -C "$src" ls-files | grep -vE '^(\.ci/|\.gitignore$)' | sort >known
missing=$(comm -13 archived known)
[ -z "$missing" ] || fail "files that EXTRA_DIST lacks:
$missing"
[ "${RP_LONG:-0}" = 1 ] && [ -z "${RP_SANITIZE:-}" ] && [ $failed = 0 ] || exit $failed

tar -xzf tree.tar.gz --strip-components=2 --one-top-level=unpacked || exit 99
chmod -R a-w unpacked
mkdir unpacked.build
cd unpacked.build || exit 99

# step COMMAND...: a step of the build from the archive
step()
{
	"$@" >log 2>&1 && return
	tail -n 40 log
	fail "$*"
	exit 1
}
step ../unpacked/configure -q CFLAGS="${CFLAGS:--O2}"
step make -s -j2
step make -s -j2 check TESTS=

# The unpacked folder may lie in the folder of a repository, which is not its own.
GIT_CEILING_DIRECTORIES=$(cd .. && pwd)
export GIT_CEILING_DIRECTORIES
unset LD_LIBRARY_PATH srcdir
RP_LONG=0 make -s -k -j2 check >log 2>&1
passed=0 skipped=0
for suite in $(make -s list-tests | grep ^fabtests/); do
	result=$(sed -n 's/^:global-test-result: //p' "$suite.trs")
	case $result in
	PASS) passed=$((passed + 1)) ;;
	SKIP)
		skipped=$((skipped + 1))
		echo "# skipped there: $suite: $(grep -a -m 1 SKIP "$suite.log")"
		;;
	*)
		grep -aE '^not ok|^FAIL' "$suite.log" | head -n 10
		tail -n 20 "$suite.log"
		fail "$suite, built from the archive: ${result:-it did not run}"
		;;
	esac
done
echo "# from the archive: $passed suites passed, $skipped skipped"
[ $passed -gt 100 ] || fail "only $passed suites passed"
exit $failed
