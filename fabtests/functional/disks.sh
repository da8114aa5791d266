#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# With the kernel's own sysfs: a loop device to which the kernel sends no
# flushes lowers the class of its files, and fi_rpmem_info prints the remedy. A
# running daemon takes the class of its pool back when the flushes stop.
# Needs root, mkfs.ext4 and loop devices, or is skipped.
set -u
if [ -z "${RP_IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "SKIP: not root"; exit 77; }
	command -v mkfs.ext4 losetup >/dev/null ||
		{ echo "SKIP: no mkfs.ext4 or losetup"; exit 77; }
	unshare --mount true || { echo "SKIP: no mount namespaces"; exit 77; }
	RP_IN_NAMESPACE=1 exec unshare --mount sh "$0"
fi
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
	FI_LOG_LEVEL=warn FI_LOG_PROV=ofi_rpmem util/fi_rpmemd --port 0 \
		--port-file "$dir/port" "$@" "$dir/m/vol" >"$dir/daemon.out" 2>&1 &
	daemon=$!
	soon [ -s "$dir/port" ] || { echo "FAIL: no daemon"; cat "$dir/daemon.out"; exit 1; }
}

# offered CLASS: the daemon offers its pool with this class
offered()
{
	timeout 60 util/fi_rpmem_info --target "127.0.0.1:$(cat "$dir/port")" |
		grep -q "^vol .* $1 "
}

# soon COMMAND...: repeat the command until it succeeds, for up to 20 seconds
soon()
{
	for _ in $(seq 400); do
		"$@" && return
		kill -0 $daemon || return
		sleep 0.05
	done
	return 1
}

# live: the class follows the attribute of a running daemon's disk.
live()
{
	serve --create 1M
	soon offered power || { echo "FAIL: class with flushes"; failed=1; }
	echo "write through" >"$cache"
	soon offered process || { echo "FAIL: class without flushes"; failed=1; }
	grep -q "pool vol: class power .* has become process (.*): .*write_cache.*write through" \
		"$dir/daemon.out" || { echo "FAIL: no line with the cause"; failed=1; }
	echo "write back" >"$cache"
	kill $daemon && wait $daemon
	serve
	soon offered power || { echo "FAIL: class of the next daemon"; failed=1; }
	kill $daemon && wait $daemon
	daemon=
	[ $failed -eq 0 ] || cat "$dir/daemon.out"
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
fi
exit $failed
