#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs fi_rpmemd as a service of a real systemd, in a root of a Debian release.
set -u -o pipefail

usage() {
	cat <<'U'
usage: service.sh [--suite NAME] [--packages DIR] [--host DIR] [--cache DIR]
                  [--build DIR]

Makes a root of a Debian release with systemd, installs a build of this machine
or the Debian packages over it, boots systemd in namespaces of its own, and runs
service_tests.sh there: start, classes, kills, hangs, reload, stop, and the
sandbox of the unit.

  --suite NAME     the release (default: bookworm)
  --packages DIR   install the packages ofi-rpmem-tools, libfabric-rpmem and
                   librpmem-pool0 that are in DIR, not the build
  --host DIR       a build of this machine (default: build-check in the sources)
  --cache DIR      where roots are kept (default: ofi_rpmem in the user's cache)
  --build DIR      logs and pools (default: build-service in the sources)

The last line is "N passed, N failed, N skipped"; the exit status is 0 only when
nothing failed.
U
}

here=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$here/../.." && pwd)
suite=bookworm packages='' cache='' build=$src/build-service host=$src/build-check
while [ $# -gt 0 ]; do
	case $1 in
	--suite) suite=$2; shift ;;
	--packages) packages=$2; shift ;;
	--host) host=$2; shift ;;
	--cache) cache=$2; shift ;;
	--build) build=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
cache=${cache:-${XDG_CACHE_HOME:-$HOME/.cache}/ofi_rpmem}
child='' group=''
# shellcheck source=fabtests/vm/cached.sh
. "$here/../vm/cached.sh"

# shellcheck disable=SC2317
# Every end of this script ends its processes, and removes their cgroups.
die() {
	trap - EXIT
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null
	for _ in $(seq 100); do
		[ -n "$group" ] && [ -d "$group" ] || break
		find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
		sleep 0.05
	done
	rm -rf "${work:-}"
	exit "${1:-1}"
}
trap 'die $?' EXIT
trap 'die 130' INT
trap 'die 143' TERM HUP

# all_skipped WHY: systemd cannot run on this machine.
all_skipped() {
	echo "ok - service, $suite # SKIP $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

# broken WHAT: the stage itself failed, not a test
broken() {
	echo "not ok - service, $suite: $*"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
}

# The mount point of the unified cgroup hierarchy.
groups() {
	awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts
}

work=$(mktemp -d) || exit 1
for p in mmdebstrap setpriv unshare pivot_root; do
	command -v "$p" >/dev/null || all_skipped \
		"$p is missing; util/packages.sh lists what a root needs"
done
[ "$(id -u)" = 0 ] || all_skipped "making a root from packages needs root"
apart unshare --net --cgroup --ipc --uts true 2>/dev/null ||
	all_skipped "no namespaces of its own: in a container without the right"
group=$(groups)/ofi_rpmem.$$
[ "$group" != "/ofi_rpmem.$$" ] && mkdir "$group" 2>/dev/null ||
	all_skipped "no cgroup can be made: systemd cannot run"
url=$(mirror)
[ -n "$url" ] || all_skipped "apt knows no Debian mirror on this machine"
[ -e "$host/prov/rpmem/.libs/librpmem-fi.so" ] || broken "$host is no build"
host=$(cd "$host" && pwd)
mkdir -p "$build" && build=$(cd "$build" && pwd) || exit 1
# One at a time in one folder.
exec 7>"$build/lock"
flock 7 || exit 1
rm -rf "$build/installed" "$build/out"
mkdir "$build/out"
cp "$src/util/trust.sh" "$build/out/"
if [ -n "$packages" ]; then
	# service_boot.sh installs them where the root can be written.
	mkdir -p "$build/installed" "$build/out/packages"
	for p in ofi-rpmem-tools libfabric-rpmem librpmem-pool0; do
		cp "$packages/$p"_*.deb "$build/out/packages/" ||
			broken "$packages has no package $p"
	done
	: >"$build/install.log"
else
	make -s -C "$host" install DESTDIR="$build/installed" \
		>"$build/install.log" 2>&1 ||
		broken "make install failed: $build/install.log"
fi
make -s -C "$host" fabtests/fault/pool_writer fabtests/fault/librpmem-fault-fi.la \
	>>"$build/install.log" 2>&1 || broken "no programs of tests: $build/install.log"
cached "service-$suite" "$suite" "$here/service_root.sh"
case $? in
0) ;;
77) all_skipped "the mirror is out of reach" ;;
*) broken "no root could be made" ;;
esac
# shellcheck disable=SC2016,SC2154
run bash -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' group "$group" \
	unshare --mount --propagation private --pid --fork --kill-child --cgroup \
	--ipc --uts --net -- "$here/service_boot.sh" "$image/root" \
	"$build/installed" "$host" "$build/out" >"$build/boot.log" 2>&1
cat "$build/out/said" 2>/dev/null
grep -qE '^[0-9]+ passed, ' "$build/out/said" 2>/dev/null || {
	tail -20 "$build/boot.log" "$build/out/console"
	broken "systemd ended early"
}
grep -qE '^[0-9]+ passed, 0 failed' "$build/out/said"
