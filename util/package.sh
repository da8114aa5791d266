#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds the Debian packages in a new root directory; uses them in a second one.
set -u -o pipefail

usage() {
	cat <<'U'
usage: util/package.sh [--suite NAME] [--out DIR]

Makes two roots of a Debian release (as root; in namespaces of their own). In the
first one the packages of debian/ are built from HEAD and examined by lintian. In
the second one, which is minimal, they are installed by apt, used, and removed.

  --suite NAME  the release (default: bookworm)
  --out DIR     where the packages are put (default: build-packages in the sources)

The last line is "N passed, N failed, N skipped".
U
}

src=$(cd "$(dirname "$0")/.." && pwd)
suite=bookworm out=$src/build-packages
while [ $# -gt 0 ]; do
	case $1 in
	--suite) suite=$2; shift ;;
	--out) out=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
child='' work=$(mktemp -d) passed=0 failed=0
# shellcheck source=fabtests/vm/cached.sh
. "$src/fabtests/vm/cached.sh"
# shellcheck disable=SC2317
die() {
	trap - EXIT
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null
	rm -rf "$work"
	exit "${1:-1}"
}
trap 'die $?' EXIT
trap 'die 130' INT TERM HUP

# shellcheck disable=SC2317
all_skipped() {
	echo "ok - packages of $suite # SKIP $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}
for p in mmdebstrap setpriv unshare; do
	command -v $p >/dev/null || all_skipped "$p is missing (util/packages.sh)"
done
[ "$(id -u)" = 0 ] || all_skipped "making a root from packages needs root"
url=$(mirror)
[ -n "$url" ] || all_skipped "apt knows no Debian mirror on this machine"

# step WHAT LOG COMMAND...: run a command, print its result and a failure's log.
step() {
	local what=$1 log=$2

	shift 2
	if "$@" >"$log" 2>&1; then
		passed=$((passed + 1))
		echo "ok - $suite: $what"
		return
	fi
	failed=$((failed + 1))
	echo "not ok - $suite: $what"
	tail -20 "$log" | sed 's/^/# /'
	return 1
}

# root INCLUDE HOOK...: make a root directory, run the hooks there, drop it.
root() {
	local include=$1 hook hooks=()

	shift
	for hook in "$@"; do
		hooks+=("--customize-hook=$hook")
	done
	apart mmdebstrap --quiet --variant=minbase --mode=root --format=null \
		--aptopt='APT::Install-Recommends "false"' \
		--aptopt='Acquire::Retries "5"' \
		--dpkgopt=force-unsafe-io --include="$include" "${hooks[@]}" \
		"$suite" /dev/null "deb $url $suite main"
}

# Print the build dependencies in debian/control.
needs=$(sed -n '/^Build-Depends:/,/^Standards/p' "$src/debian/control" |
	sed -E '$d; s/^Build-Depends://; s/\([^)]*\)//; s/:any//; s/debhelper-compat/debhelper/' |
	tr -d ' \n')
git -C "$src" archive --prefix=src/ HEAD | tar -x -C "$work" || exit 1
cat >"$work/build" <<'B'
set -e
cd /src
dpkg-buildpackage -b -us -uc
lintian --fail-on error --allow-root ../*.changes
mkdir /packages
mv ../*.deb /packages
B
rm -rf "$out/packages"
step "the packages are built, and lintian finds no error" "$out/build.log" \
	root "$needs,build-essential,lintian" "copy-in $work/src $work/build /" \
	'chroot "$1" bash /build' "copy-out /packages $out" || {
	echo "$passed passed, $failed failed, 0 skipped"
	exit 1
}
rm -f "$out"/packages/*-dbgsym_*
cp "$src/fabtests/platform/packages.sh" "$src/util/trust.sh" \
	"$src/fabtests/functional/completion.zsh" "$work/"
# packages.sh can install more packages in the root, because mmdebstrap gives the
# root this machine's name server.
step "apt installs them, they work, and apt removes them" "$out/use.log" \
	root apt "copy-in $work/packages.sh $work/trust.sh $work/completion.zsh $out/packages /" \
	'chroot "$1" bash /packages.sh'
sed -n 's/^used: /# /p' "$out/use.log"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
