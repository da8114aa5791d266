#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs tests in guests that have persistent memory and an RDMA device.
set -u -o pipefail

usage() {
	cat <<'U'
usage: guest.sh [--platform NAME]... [--domain NAME]... [--cache DIR]
                [--build DIR] [--limit SECONDS] [--tests FILE] [--long]
                [--only PART]

Makes guests from Debian packages, builds this project inside, boots them with
emulated NVDIMMs, and runs fabtests/vm/tests.sh there. Then cuts their power,
and joins two by a network.

  --platform NAME  trixie or bookworm (default: trixie)
  --domain NAME    adr or eadr: what persists when power fails (default: both)
  --cache DIR      where guests are kept (default: ofi_rpmem in the user's cache)
  --build DIR      what is built, and logs (default: build-guest in the sources)
  --limit SECONDS  a guest that says nothing for so long hangs (default: 1000)
  --tests FILE     instead of tests.sh, and nothing else
  --only PART      tests, cuts (power cuts) or two (machines) alone
  --long           50 power cuts on each machine, in place of 3

The last line is "N passed, N failed, N skipped"; the exit status is 0 only when
nothing failed. A guest that hangs, dies or does not say how many tests it ran
has failed.
U
}

here=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$here/../.." && pwd)
platforms=() domains=() cache= build=$src/build-guest limit=1000
tests=$here/tests.sh long= only=
while [ $# -gt 0 ]; do
	case $1 in
	--platform) platforms+=("$2"); shift ;;
	--domain) domains+=("$2"); shift ;;
	--cache) cache=$2; shift ;;
	--build) build=$2; shift ;;
	--limit) limit=$2; shift ;;
	--tests) tests=$2 only=tests; shift ;;
	--only) only=$2; shift ;;
	--long) long=1 ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
[ ${#platforms[@]} -gt 0 ] || platforms=(trixie)
[ ${#domains[@]} -gt 0 ] || domains=(adr eadr)
cache=${cache:-${XDG_CACHE_HOME:-$HOME/.cache}/ofi_rpmem}
qemu=${RPMEM_QEMU:-qemu-system-x86_64} # replaced by tests of this script

passed=0 failed=0 skipped=0
child= follower= other=
# shellcheck source=fabtests/vm/cached.sh
. "$here/cached.sh"
# shellcheck source=fabtests/vm/machine.sh
. "$here/machine.sh"
# shellcheck source=fabtests/vm/cuts.sh
. "$here/cuts.sh"
# shellcheck source=fabtests/vm/two.sh
. "$here/two.sh"

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
	exit
}

# all_skipped WHY: no guest can run on this machine.
all_skipped() {
	echo "ok - guest # SKIP $*"
	skipped=$((skipped + 1))
	finish
}

broken() { # WHAT: the stage itself failed, not a test
	echo "not ok - $*"
	failed=$((failed + 1))
}

# However this script ends, it ends its processes.
die() {
	local p

	trap - EXIT
	for p in $child $follower $other; do
		kill -KILL "$p" 2>/dev/null
	done
	rm -rf "${work:-}"
	exit "${1:-1}"
}
trap 'die $?' EXIT
trap 'die 130' INT
trap 'die 143' TERM HUP

look_around() {
	local p

	[ "$(uname -m)" = x86_64 ] || all_skipped "guests are x86-64 only"
	for p in "$qemu" mmdebstrap busybox cpio mke2fs xz setpriv unshare; do
		command -v "$p" >/dev/null || all_skipped \
			"$p is missing; util/packages.sh lists what a guest needs"
	done
	[ "$(id -u)" = 0 ] ||
		all_skipped "making a root from packages needs root"
	apart true 2>/dev/null ||
		all_skipped "no mounts of its own: in a container without the right"
	url=$(mirror)
	[ -n "$url" ] || all_skipped "apt knows no Debian mirror on this machine"
}

# carry SUITE: add programs that were built with another release's libibverbs,
# if that release's root is cached
carry() {
	local suite dir script

	script=$(sha256sum <"$here/image.sh" | cut -c1-12)
	for suite in trixie bookworm; do
		[ "$suite" != "$1" ] || continue
		# A root made by an earlier image.sh may lack packages.
		for dir in $(ls -dt "$cache/$suite-$script-"*/ 2>/dev/null); do
			case $dir in *.new/) continue ;; esac
			mkdir -p "$build/carried-$suite"
			flock -s "$dir" true &&
				apart "$here/guest_build.sh" "${dir%/}/root" "$src" \
					"$build/carried-$suite" carried &&
				cp "$build/carried-$suite/make/carried/shim" \
					"$build/$1/payload/shim.$suite"
			return
		done
	done
}

# make_tests SUITE: build in the root, without emulation, and pack the files for
# the guest.
make_tests() {
	local suite=$1 out=$build/$1

	# The root has no automake.
	[ -x "$src/configure" ] && [ -z "$(find "$src" -newer \
		"$src/Makefile.in" \( -name '*.mk' -o -name '*.am' -o -name '*.ac' \) \
		-print -quit)" ] || (cd "$src" && ./autogen.sh) || return
	mkdir -p "$out"
	apart "$here/guest_build.sh" "$image/root" "$src" "$out" || return
	carry "$suite" || return
	cp "$here/lib.sh" "$here/flush.sh" "$here/shim.sh" \
		"$here/preload.sh" "$here/verbs.sh" "$here/pools.sh" \
		"$here/tunnel.sh" \
		"$here/lives.sh" "$here/sides.sh" "$here/methods" \
		"$here/rivals.sh" \
		"$here/trace.sh" "$here/trace.awk" \
		"$out/payload/" &&
		cp "$tests" "$out/payload/tests.sh" &&
		cp "$here/guest" "$out/payload/guest" || return
	tar -C "$out/payload" -cf "$out/payload.tar" . || return
	truncate -s %1M "$out/payload.tar"
}

# boot NAME SUITE DOMAIN APPEND [QEMU-OPTION...]: run one guest until it ends
boot() {
	local name=$1 start=$SECONDS console results

	shift
	machine "$@"
	watch
	if [ -z "$silent" ] && ! lived "$console" &&
		[ "${again:-0}" -lt 2 ]; then
		echo "# $name: $(how_it_fell "$console"), started again"
		again=$((${again:-0} + 1)) boot "$name" "$@"
		return
	fi
	verdict "$name" "$start"
}

# watch: wait until the machine ends, or writes nothing for too long: then set
# $silent
watch() {
	local heard before= last=$SECONDS

	silent=
	# On a busy machine an emulated guest may take any time.
	while kill -0 "$child" 2>/dev/null; do
		heard=$(stat -c %s "$results" "$console" 2>/dev/null)
		[ "$heard" = "$before" ] || last=$SECONDS
		before=$heard
		if [ $((SECONDS - last)) -ge "$limit" ]; then
			silent="silent for $limit s, killed"
			break
		fi
		sleep 0.5
	done
	unplug
}

# verdict NAME START: evaluate the results of the machine that has just ended
verdict() {
	local name=$1 start=$2 line p=0 f=0 s=0 plan= why=$silent

	while IFS= read -r line; do
		case $line in
		'ok '*'# SKIP'*) s=$((s + 1)) ;;
		'ok '*) p=$((p + 1)) ;;
		'not ok '*) f=$((f + 1)) ;;
		1..*) plan=${line#1..} ;;
		esac
		case $line in
		'ok '* | 'not ok '*) echo "${line/ - / - $name: }" ;;
		'#'*) echo "$line" ;;
		esac
	done < <(tr -d '\r' <"$results" 2>/dev/null)
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	if [ -z "$why" ] && { [ "$plan" != $((p + f + s)) ] || [ "$p" = 0 ]; }; then
		why="the guest ended early, or lost results"
	fi
	if [ -n "$why" ]; then
		broken "$name: $why"
		f=$((f + 1))
	fi
	echo "# $name: $p passed, $f failed, $s skipped in $((SECONDS - start)) s ($accel)"
	if [ "$f" -gt 0 ]; then
		echo "# the guest's console is in $console; its end:"
		cat "$work/qemu"
		tail -25 "$console" 2>/dev/null | tr -d '\r'
	fi
}

work=$(mktemp -d) || exit 1
look_around
mkdir -p "$build" && build=$(cd "$build" && pwd) || exit 1
# One run at a time in a folder.
exec 7>"$build/guest.lock"
flock 7 || exit 1
for suite in "${platforms[@]}"; do
	cached "$suite" "$suite" "$here/image.sh"
	case $? in
	0) ;;
	77)
		echo "ok - $suite # SKIP the mirror is out of reach"
		skipped=$((skipped + 1))
		continue
		;;
	*)
		broken "$suite: no guest could be made"
		continue
		;;
	esac
	start=$SECONDS
	if ! make_tests "$suite" >"$build/$suite.build.log" 2>&1; then
		tail -30 "$build/$suite.build.log"
		broken "$suite: the build failed"
		continue
	fi
	echo "# $suite: built in $((SECONDS - start)) s"
	accelerator
	case ${only:-tests} in
	tests)
		for domain in "${domains[@]}"; do
			new_nvdimms
			boot "$suite $domain" "$suite" "$domain" ""
		done
		;;
	esac
	case ${only:-cuts} in cuts) cuts "$suite" ;; esac
	case ${only:-two} in two) two "$suite" ;; esac
done
finish
