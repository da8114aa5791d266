#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The archive of `make dist` has every file that git knows. With RP_LONG=1 all of
# it is compiled from that archive, and its unit tests and reload.sh pass.
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
tests="$(make -s list-tests | grep ^fabtests/unit/)
	fabtests/functional/reload.sh"
# shellcheck disable=SC2086 # one name a line
RP_LONG=0 step make -s -j2 check TESTS="$(printf '%s ' $tests)"
exit $failed
