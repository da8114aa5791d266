#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Makes a durable remote copy on a fresh Debian 12: installs packages, builds, and
# shows on a real file that acknowledged bytes survive, and that bytes are lost
# when the flush is left out.
set -u -o pipefail

usage() {
	cat <<'U'
usage: util/quickstart.sh [--build-only] [--keep] [FILE]

Installs the Debian packages that the build needs, builds into build-quick/,
then copies FILE (default: a tar of a system folder) durably over loopback,
kills the target during the copy, restarts it, resumes, and verifies. Then
repeats this under a simulated power cut, and with the flush left out on purpose.

  --build-only   stop after the build
  --keep         keep the pools and the file, and print their folder
U
}

src=$(cd "$(dirname "$0")/.." && pwd)
build=$src/build-quick
only= keep= file=
while [ $# -gt 0 ]; do
	case $1 in
	--build-only) only=1 ;;
	--keep) keep=1 ;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; exit 2 ;;
	*) file=$1 ;;
	esac
	shift
done
if [ -n "$file" ] && [ ! -r "$file" ]; then
	echo "quickstart: cannot read $file" >&2
	exit 2
fi

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { echo "quickstart: $*" >&2; exit 1; }

daemon=
work=
cleanup() {
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	[ -z "$work" ] || [ -n "$keep" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# --- packages and build ---

# shellcheck source=util/packages.sh
. "$src/util/packages.sh"
# shellcheck source=util/trust.sh
. "$src/util/trust.sh"
say "1. Packages that the build needs"
# shellcheck disable=SC2086
packages_install $PKG_BUILD || die "cannot install the packages"
echo "all installed"

say "2. Build in $build"
mkdir -p "$build" || die "cannot create $build"
(
	set -e
	[ -x "$src/configure" ] && [ "$src/configure" -nt "$src/configure.ac" ] ||
		"$src/autogen.sh"
	cd "$build"
	[ -f config.status ] && [ config.status -nt "$src/configure" ] ||
		"$src/configure" -q
	make -s -j"$(nproc)"
	# Two test libraries for the demonstration; neither is installed.
	make -s fabtests/fault/libshadow.la fabtests/fault/librpmem-fault-fi.la
) >"$build/quickstart.log" 2>&1 ||
	{ tail -20 "$build/quickstart.log"; die "the build failed, see $build/quickstart.log"; }
bin=$build/util
prov=$build/prov/rpmem/.libs
fault=$build/fabtests/fault/.libs
echo "provider: $prov/librpmem-fi.so"
echo "tools:    $bin/{fi_rpmemd,fi_rpmem_cp,fi_rpmem_info,fi_rpmem_bench}"
[ -z "$only" ] || exit 0

# --- the file, and what its disk promises ---

unset FI_PROVIDER FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE
export FI_PROVIDER_PATH=$prov FI_TCP_IFACE=lo
# Milliseconds after which a silent target counts as dead.
export FI_OFI_RPMEM_TIMEOUT=2000
work=$(mktemp -d "$build/demo.XXXXXX") || die "cannot create a folder"

say "3. The file"
if [ -z "$file" ]; then
	for d in /usr/lib/gcc /usr/share/doc /usr/share /usr/lib; do
		mb=$(du -sxm "$d" 2>/dev/null | cut -f1)
		[ "${mb:-0}" -ge 50 ] && [ "$mb" -le 400 ] && break
		mb=
	done
	file=$work/system.tar
	if [ -n "$mb" ]; then
		echo "packing $d, $mb MB"
		tar -cf "$file" -C "$(dirname "$d")" "$(basename "$d")" 2>/dev/null
	fi
	# A small system has no such directory: use the first 64 MB of /usr.
	[ "$(stat -c %s "$file" 2>/dev/null || echo 0)" -ge $((50 << 20)) ] ||
		tar -cf - /usr 2>/dev/null | head -c $((64 << 20)) >"$file"
fi
size=$(stat -c %s "$file")
[ "$size" -ge 65536 ] || die "$file has only $size bytes: give one of 64 KiB or more"
echo "$file, $((size >> 20)) MiB"

trust_folder "$bin/fi_rpmem_info" "$work" ||
	die "clone the repository to a disk"

# --- a target and a copy ---

port=
# start POOL [VAR=VALUE...]: start a daemon on a free loopback port.
start() {
	local pool=$1

	shift
	rm -f "$work/port"
	env "$@" "$bin/fi_rpmemd" --create "$size" --port 0 \
		--port-file "$work/port" "$pool" >>"$work/daemon.log" 2>&1 &
	daemon=$!
	for _ in $(seq 200); do
		[ -s "$work/port" ] && break
		kill -0 "$daemon" 2>/dev/null || break
		sleep 0.05
	done
	[ -s "$work/port" ] ||
		{ tail -5 "$work/daemon.log"; die "the target did not start"; }
	port=$(cat "$work/port")
}

stop() { # stop the daemon: it completes commits, marks the pool clean
	kill -TERM "$daemon" && wait "$daemon"
	daemon=
}

acked() { tail -n1 "$1" 2>/dev/null | grep -oE '^[0-9]+' || echo 0; }

# copy_and_kill POOL LOG: copy, and SIGKILL the target after a random number of
# acknowledged bytes. Sets n, the number of acknowledged bytes, and cp_status.
copy_and_kill() {
	local pool=$1 log=$2 goal copy

	goal=$(((RANDOM * 32768 + RANDOM) % (size / 2) + size / 8))
	rm -f "$log"
	"$bin/fi_rpmem_cp" --timeout 1 --chunk 256K --ack-log "$log" "$file" \
		"127.0.0.1:$port:$(basename "$pool")" >"$work/cp.log" 2>&1 &
	copy=$!
	while [ "$(acked "$log")" -lt "$goal" ] && kill -0 $copy 2>/dev/null; do
		sleep 0.002
	done
	kill -9 "$daemon"
	wait "$daemon" 2>/dev/null
	daemon=
	wait $copy
	cp_status=$?
	n=$(acked "$log")
}

# survives N POOLFILE: whether the pool has the first N bytes of the file.
survives() {
	[ "$1" = 0 ] || cmp -s -n "$1" "$file" "$2" 0 65536
}

say "4. Copy to a target, and kill the target (SIGKILL) during the copy"
pool=$work/pool
start "$pool"
tail -3 "$work/daemon.log"
copy_and_kill "$pool" "$work/ack"
echo "killed; fi_rpmem_cp says:"
tail -4 "$work/cp.log" | sed 's/^/    /'
[ "$cp_status" != 0 ] && echo "acknowledged as durable: $n bytes of $size" ||
	echo "the copy completed before the kill: $n bytes acknowledged"
survives "$n" "$pool" || die "acknowledged bytes are MISSING from the pool"
echo "all of them are in the pool file"

say "5. Restart the target, resume, verify"
start "$pool"
"$bin/fi_rpmem_cp" --skip "$n" --verify "$file" \
	"127.0.0.1:$port:pool" || die "resume failed"
stop
sum=$(sha256sum <"$file" | cut -d' ' -f1)
pool_sum=$(tail -c +65537 "$pool" | head -c "$size" | sha256sum | cut -d' ' -f1)
echo "SHA-256 of the file   $sum"
echo "SHA-256 of the pool   $pool_sum"
[ "$sum" = "$pool_sum" ] || die "they differ"

say "6. The same under a simulated power cut"
cat <<'U'
A second file, the shadow, gets only the bytes that a successful msync covered.
The target is killed, the pool is discarded, and the shadow must have every
acknowledged byte.
U
# shadowed NAME [VAR=VALUE...]: copy with a shadow pool, kill the target. Sets
# n; succeeds if the acknowledged bytes survived.
shadowed() {
	local name=$1

	shift
	start "$work/$name" "RPMEM_SHADOW=$work/$name:$work/$name.shadow" \
		"LD_PRELOAD=$fault/libshadow.so" "$@"
	copy_and_kill "$work/$name" "$work/$name.ack"
	survives "$n" "$work/$name.shadow"
}
shadowed cut || die "acknowledged bytes did not survive the power cut"
cut=$n
echo "acknowledged $cut bytes; all of them survived"

say "7. The same with the flush left out (a test build of the provider)"
mkdir -p "$work/faultprov"
ln -sf "$fault/librpmem-fault-fi.so" "$work/faultprov/librpmem-fi.so"
if shadowed bad "FI_PROVIDER_PATH=$work/faultprov" RPMEM_FAULT=skip-flush; then
	die "nothing was lost without a flush: this demonstration proves nothing"
fi
echo "acknowledged $n bytes; they are LOST, as expected: the test detects a missing flush"

# --- figures ---

say "8. The cost of a commit on this machine"
"$bin/fi_rpmem_bench" --sleep --pool "$work/bench" --seconds 6 --json "$work/bench.json" \
	>"$work/bench.txt" || true
grep -E '^ *[0-9.-]+  write with FI_COMMIT_COMPLETE / (base|msync)|^(64|  (base: write|write with|msync))' \
	"$work/bench.txt" || cat "$work/bench.txt"
cat <<'U'
A commit takes the write, a REQUEST to the target, an msync by the target's worker
and a REPLY. The line "write with FI_COMMIT_COMPLETE / msync" says how much of that
is more than the disk's own msync; fi_rpmem_bench --pool FILE measures for longer.
U

say "Done"
cat <<U
  killed target     acknowledged bytes all there, resumed, SHA-256 equal
  power cut         acknowledged $cut bytes, none lost
  flush left out    loss detected

To use it from here:

  export FI_PROVIDER_PATH=$prov
  export FI_PROVIDER='tcp;ofi_rpmem'      # the quotes matter
  $bin/fi_rpmemd --create 1G /path/of/pool &
  $bin/fi_rpmem_cp FILE 127.0.0.1:pool

A complete program that writes durably is docs/examples/durable.c.
U
[ -z "$keep" ] || echo "kept: $work"
