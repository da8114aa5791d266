#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds and tests in a root of another Debian release, on this machine's kernel.
set -u -o pipefail

usage() {
	cat <<'U'
usage: platform.sh [--suite NAME] [--host DIR] [--fabtests DIR] [--cache DIR]
                   [--build DIR] [--long]

Makes a root of another Debian release from its packages, builds this project
with what is in it, and runs the tests there, at full speed: newer libfabric,
rdma-core, compiler and C library. The root is read only and kept; all runs in
mount, process and network namespaces that end with this script.

  --suite NAME     the release (default: trixie)
  --host DIR       a build of this machine, whose provider is to pass there too
                   (default: build-check in the sources)
  --fabtests DIR   upstream's fabtests, built there: what is lost over the base
  --cache DIR      where roots are kept (default: ofi_rpmem in the user's cache)
  --build DIR      what is built, and logs (default: build-platform in the sources)
  --long           every test, not only those of one behaviour and of bad input

The last line is "N passed, N failed, N skipped"; the exit status is 0 only when
nothing failed.
U
}

here=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$here/../.." && pwd)
suite=trixie cache='' build=$src/build-platform host=$src/build-check
fabtests='' long=''
while [ $# -gt 0 ]; do
	case $1 in
	--suite) suite=$2; shift ;;
	--host) host=$2; shift ;;
	--fabtests) fabtests=$2; shift ;;
	--cache) cache=$2; shift ;;
	--build) build=$2; shift ;;
	--long) long=--long ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
cache=${cache:-${XDG_CACHE_HOME:-$HOME/.cache}/ofi_rpmem}
child=
# shellcheck source=fabtests/vm/cached.sh
. "$here/../vm/cached.sh"

# shellcheck disable=SC2317
# Every end of this script ends its processes.
die() {
	trap - EXIT
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null
	rm -rf "${work:-}"
	exit "${1:-1}"
}
trap 'die $?' EXIT
trap 'die 130' INT
trap 'die 143' TERM HUP

# all_skipped WHY: no root can be made on this machine.
all_skipped() {
	echo "ok - $suite # SKIP $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

# broken WHAT: the stage itself failed, not a test
broken() {
	echo "not ok - $suite: $*"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}

work=$(mktemp -d) || exit 1
for p in mmdebstrap setpriv unshare pivot_root; do
	command -v "$p" >/dev/null || all_skipped \
		"$p is missing; util/packages.sh lists what a root needs"
done
[ "$(id -u)" = 0 ] || all_skipped "making a root from packages needs root"
apart unshare --net true 2>/dev/null ||
	all_skipped "no namespaces of its own: in a container without the right"
url=$(mirror)
[ -n "$url" ] || all_skipped "apt knows no Debian mirror on this machine"
[ -e "$host/prov/rpmem/.libs/librpmem-fi.so" ] || broken "$host is no build"
[ -z "$fabtests" ] || fabtests=$(cd "$fabtests" && pwd) ||
	broken "--fabtests is no folder"
mkdir -p "$build/out" && build=$(cd "$build" && pwd) || exit 1
# One at a time in one folder.
exec 7>"$build/lock"
flock 7 || exit 1
# Automake is not under test there.
[ -x "$src/configure" ] && [ -z "$(find "$src" -newer "$src/Makefile.in" \
	\( -name '*.mk' -o -name '*.am' -o -name '*.ac' \) -print -quit)" ] ||
	(cd "$src" && ./autogen.sh) >"$build/autogen.log" 2>&1 ||
	broken "autogen.sh failed"
cached "root-$suite" "$suite" "$here/root.sh"
case $? in
0) ;;
77) all_skipped "the mirror is out of reach" ;;
*) broken "no root could be made" ;;
esac
# shellcheck disable=SC2086,SC2154
apart unshare --net -- "$here/chroot.sh" "$image/root" "$src" "$build/out" \
	"$(cd "$host" && pwd)" "$fabtests" $long >"$build/said" 2>&1
code=$?
cat "$build/said"
grep -qE '^[0-9]+ passed, ' "$build/said" || broken "it ended early, with $code"
exit $code
