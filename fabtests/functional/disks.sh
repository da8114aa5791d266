#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# With the kernel's own sysfs: a loop device to which the kernel sends no
# flushes lowers the class of its files, and fi_rpmem_info prints the remedy. A
# running daemon takes the class of its pool back when the flushes stop, and when
# the file system is mounted again without barriers, and its client learns why.
# Needs root, mkfs.ext4 and loop devices, or is skipped.
set -u
if [ -z "${RP_IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "SKIP: not root"; exit 77; }
	command -v mkfs.ext4 losetup >/dev/null ||
		{ echo "SKIP: no mkfs.ext4 or losetup"; exit 77; }
	unshare --mount true || { echo "SKIP: no mount namespaces"; exit 77; }
	RP_IN_NAMESPACE=1 exec unshare --mount sh "$0"
fi
src=$(cd "${srcdir:-.}" && pwd)
dir=$(mktemp -d ./disks.XXXXXX) || exit 99
loop='' daemon=''
trap '[ -z "$daemon" ] || kill -9 "$daemon"; wait
	umount "$dir/m" 2>/dev/null; [ -z "$loop" ] || losetup -d "$loop"
	rm -rf "$dir"' EXIT
truncate -s 16M "$dir/disk" && mkdir "$dir/m" || exit 99
loop=$(losetup --find --show "$dir/disk") || { echo "SKIP: no loop device"; exit 77; }
mkfs.ext4 -q "$loop" && mount "$loop" "$dir/m" || { echo "SKIP: no mount"; exit 77; }
cache=/sys/block/${loop#/dev/}/queue/write_cache
[ "$(cat "$cache")" = "write back" ] || { echo "SKIP: no cache in $cache"; exit 77; }
echo "write through" >"$cache" && [ "$(cat "$cache")" = "write through" ] ||
	{ echo "SKIP: $cache cannot be written"; exit 77; }
unset FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_OPERATOR
unset FI_OFI_RPMEM_TRUST_FS
export FI_PROVIDER_PATH="$PWD/prov/rpmem/.libs" FI_PROVIDER='tcp;ofi_rpmem'
failed=0

# expect CODE LINE...: check the exit code and these lines of fi_rpmem_info.
expect()
{
	timeout 60 util/fi_rpmem_info --doctor "$dir/m" >"$dir/out" 2>&1
	code=$?
	[ $code -eq "$1" ] || { echo "FAIL: exit code $code, not $1"; failed=1; }
	shift
	for line; do
		grep -q -- "$line" "$dir/out" ||
			{ echo "FAIL: no line '$line'"; failed=1; }
	done
	[ $failed -eq 0 ] || cat "$dir/out"
}

# serve: start a daemon of a pool on the disk
serve()
{
	rm -f "$dir/port"
	: >"$dir/daemon.out"
	# As if the file was the journal of a service: lines get their level.
	stream=$(stat -c %d:%i "$dir/daemon.out")
	JOURNAL_STREAM=$stream FI_LOG_LEVEL=warn FI_LOG_PROV=ofi_rpmem util/fi_rpmemd --port 0 \
		--port-file "$dir/port" "$@" "$dir/m/vol" >>"$dir/daemon.out" 2>&1 &
	daemon=$!
	soon [ -s "$dir/port" ] || { echo "FAIL: no daemon"; cat "$dir/daemon.out"; exit 1; }
}

# offered CLASS: the daemon offers its pool with this class
offered()
{
	timeout 60 util/fi_rpmem_info --target "127.0.0.1:$(cat "$dir/port")" |
		grep -q "^vol .* $1 "
}

# soon COMMAND...: repeat the command until it succeeds. A daemon that ends, or
# a minute in which nothing happens, is a failure.
soon()
{
	for _ in $(seq 1200); do
		"$@" && return
		kill -0 $daemon || return
		sleep 0.05
	done
	return 1
}

# taken_back PATTERN COMMAND...: run the command and wait for the daemon's warning
# "has become PATTERN" (a regular expression). Sets took to the milliseconds from the
# command's start to the warning.
taken_back()
{
	pattern=$1
	shift
	since=$(date +%s%3N)
	"$@" || exit 99
	soon grep -q "^<4>fi_rpmemd: ofi_rpmem: .*pool vol: class power .* has become $pattern" "$dir/daemon.out" ||
		{ echo "FAIL: no line with the cause"; failed=1; }
	took=$(($(date +%s%3N) - since))
	echo "# the class was taken back after at most $took ms"
}

no_flushes()
{
	echo "write through" >"$cache"
}

# live: the class follows queue/write_cache of a running daemon's disk. A busy machine
# may delay any one try, so one of 20 has to end within the second that is promised.
# A daemon that looks every few seconds can pass by luck; one that looks every 4 s
# was seen failing.
live()
{
	serve --create 1M
	took=1000 tries=0
	while [ $took -ge 1000 ] && [ $tries -lt 20 ] && [ $failed = 0 ]; do
		[ $tries = 0 ] || serve
		tries=$((tries + 1))
		soon offered power || { echo "FAIL: class with flushes"; failed=1; }
		taken_back 'process (.*): .*write_cache.*write through' no_flushes
		soon offered process || { echo "FAIL: class without flushes"; failed=1; }
		echo "write back" >"$cache"
		kill $daemon && wait $daemon
		[ $failed -eq 0 ] || cat "$dir/daemon.out"
	done
	[ $took -lt 1000 ] || { echo "FAIL: never within a second"; failed=1; }
	serve
	soon offered power || { echo "FAIL: class of the next daemon"; failed=1; }
	kill $daemon && wait $daemon
	daemon=
	[ $failed -eq 0 ] || cat "$dir/daemon.out"
}

# client: write durably, wait for a line on standard input, and write again
client()
{
	LD_LIBRARY_PATH=$PWD/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
		timeout 300 python3 - "127.0.0.1:$(cat "$dir/port"):vol" "$1" 3<&0 <<-'P'
	import os, sys
	sys.path.insert(0, sys.argv[2])
	import rpmem_pool
	with rpmem_pool.open(sys.argv[1]) as pool:
	    pool.write(b"before", 0, durable=True)
	    print("written", flush=True)
	    os.read(3, 1)
	    try:
	        pool.write(b"behind", 0, durable=True)
	        print("written again")
	    except OSError as e:
	        print("refused:", e)
	P
}

# mounted_anew: the class follows the mount options of a running daemon's disk.
mounted_anew()
{
	serve
	soon offered power || { echo "FAIL: class with barriers"; failed=1; }
	mkfifo "$dir/go"
	client "$src/util/python" <"$dir/go" >"$dir/told" 2>&1 &
	client=$!
	exec 4>"$dir/go"
	soon grep -q '^written$' "$dir/told" ||
		{ echo "FAIL: no durable write"; failed=1; }
	taken_back 'none (refused): .*nobarrier' mount -o remount,nobarrier "$dir/m"
	soon offered none || { echo "FAIL: class without barriers"; failed=1; }
	(echo >&4)
	exec 4>&-
	wait $client
	grep -q '^refused: .*nobarrier' "$dir/told" ||
		{ echo "FAIL: the client was not told why"; failed=1; }
	mount -o remount,barrier "$dir/m"
	kill $daemon && wait $daemon
	daemon=
	[ $failed -eq 0 ] || cat "$dir/daemon.out" "$dir/told"
}

remedy="-> echo \"write back\" > $cache"
expect 1 "^warn  disk .*/sys/block/${loop#/dev/}, queue/write_cache: write thr" \
	'^warn  msync .*gets no flushes' "$remedy" \
	'^ok    commit .*class process'
FI_OFI_RPMEM_TRUST_FS=ext4 expect 1 '^ok    commit .*class power by agent-msync'
timeout 60 util/fi_rpmem_info --doctor --json "$dir/m" | grep -q '"msync"' ||
	{ echo "FAIL: not in the JSON"; failed=1; }
# Run the remedy as it is printed.
sh -c "${remedy#-> }" || { echo "FAIL: the remedy is refused"; failed=1; }
if timeout 60 util/fi_rpmem_info "$dir" | grep -q '^  limit '; then
	echo "left out: the disk of this folder has no flushes"
else
	expect 0 "^ok    disk .*/sys/block/${loop#/dev/}, .*: write back" \
		'^ok    msync' '^ok    commit .*class power by agent-msync'
	live
	if [ -n "${RP_SANITIZE:-}" ] || ! command -v python3 >/dev/null; then
		echo "left out: a mount without barriers, whose client is in Python"
	else
		mounted_anew
	fi
fi
exit $failed
