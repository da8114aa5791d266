#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# util/on_rpmem.sh: runs a command on a file system on a pool, and leaves no
# mount and no process.
set -u
[ -z "${RP_SANITIZE:-}" ] || { echo "SKIP: nbdkit is not built with the sanitizer"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "SKIP: mounts a file system: needs root"; exit 77; }
for tool in nbdkit nbdfuse losetup mkfs.ext4; do
	command -v $tool >/dev/null || {
		echo "SKIP: $tool is missing; on Debian: apt-get install nbdkit libnbd-bin mount e2fsprogs"
		exit 77
	}
done
if [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
	echo "SKIP: no /dev/fuse or /dev/loop-control here"
	exit 77
fi
[ -e util/.libs/nbdkit-rpmem-plugin.so ] || { echo "SKIP: built without nbdkit's plugin"; exit 77; }
script=$(cd "${srcdir:-.}" && pwd)/util/on_rpmem.sh
dir=$(mktemp -d ./onrpmem.XXXXXX) || exit 99
RPMEM_BUILD=$PWD
export RPMEM_BUILD
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
cd "$dir" || exit 99
trap 'kill $pids 2>/dev/null; cd .. && rm -rf "$dir"' EXIT
failed=0 pids=

fail()
{
	echo "FAIL: $*"
	failed=1
	cat out
}

# on ARGUMENT...: run on_rpmem.sh in its own mount namespace, which ends with
# it.
on()
{
	timeout 120 unshare --mount "$script" "$@" >out 2>&1
}

on --size 32M pool -- sh -c 'echo "in $RPMEM_MOUNT" >f && sync f && exit 7'
status=$?
if grep -q "weaker than required" out; then
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
fi
[ $status = 7 ] || fail "the command's status is lost: $status"
on pool -- cat f || fail "the pool is not used again"
grep -q "^in /.*/mnt$" out || fail "the file has other bytes"
# A SIGKILL of all processes ends the namespace of the mount in the last one of them.
on pool -- sh -c 'cut -d" " -f2 /proc/self/mounts | grep -qx "$RPMEM_MOUNT" || exit 2
	for pid in $(pgrep -f "^nbd(kit|fuse) .*${RPMEM_MOUNT%/mnt}/") \
		$(pgrep -f "fi_rpmemd .*${RPMEM_MOUNT%/mnt}/port"); do
		echo $pid
		! grep -F "$RPMEM_MOUNT" /proc/$pid/mounts || exit 1
	done' || fail "a process below the mount has it in its namespace"
[ "$(wc -l <out)" = 3 ] || fail "not three processes below the mount"
on --size 64M pool -- true && fail "another size is taken"
grep -q "exists with 32 MiB, not 64" out || fail "no reason"
on -- test -d lost+found || fail "a temporary pool"
on nowhere.invalid:pool -- true && fail "a target that does not exist"
grep -q "nowhere.invalid" out || fail "no name of the target"
on pool && fail "no command"

# A last flush that fails, or a process that still writes, is no success of COMMAND.
on pool -- sh -c 'echo lost >g && pkill -9 -f "^nbdkit .*${RPMEM_MOUNT%/mnt}/nbd"'
status=$?
[ $status = 125 ] || fail "the status is $status behind a flush that failed"
grep -q "on_rpmem.sh: the last flush failed: .* may be lost" out ||
	fail "no word of the flush that failed"
on pool -- sh -c 'sleep 1000 >/dev/null 2>&1 & echo $! >"$0/left"; echo kept >h' "$PWD"
status=$?
left=$(cat left)
pids="$pids $left"
[ $status = 125 ] || fail "the status is $status with a process left behind"
grep -q "still in use, by process $left: what is written from now on is lost" out ||
	fail "no word of the process"
kill "$left"
on pool -- grep kept h || fail "what was written before the end is lost"

# A pool of a running daemon, with a secret and without.
: >port
(umask 077 && head -c 32 /dev/urandom | base64 >secret)
"$RPMEM_BUILD/util/fi_rpmemd" --port 0 --port-file port --secret secret --create 32M vol \
	>daemon.out 2>&1 &
daemon=$!
pids="$pids $daemon"
until [ -s port ]; do
	kill -0 $daemon || { cat daemon.out; exit 99; }
	sleep 0.05
done
at=127.0.0.1:$(cat port):vol
on --secret secret "$at" -- sh -c 'echo remote >f' || fail "a daemon's pool"
on --secret secret "$at" -- grep remote f || fail "a daemon's pool is made anew"
on "$at" -- touch "$PWD/touched"
status=$?
[ $status = 125 ] && grep -q secret out || fail "without the secret: $status"
[ ! -e touched ] || fail "without the secret, the command runs"
kill $daemon && wait $daemon

# kept FILE TEXT REMEDY ARGUMENT...: a pool with other bytes is refused, and keeps them.
kept()
{
	file=$1 text=$2 remedy=$3
	shift 3
	cp "$file" before
	on "$@" -- touch "$PWD/touched"
	status=$?
	[ $status = 125 ] && grep -q "$text.* is not formatted.*$remedy" out ||
		fail "a pool that $text: $status"
	[ ! -e touched ] || fail "the command runs on a pool that $text"
	cmp -i 65536 before "$file" || fail "a pool that $text is changed"
}

# A new pool of a daemon has zeros, and is formatted; one byte at the end is enough to
# refuse it.
: >port
"$RPMEM_BUILD/util/fi_rpmemd" --port 0 --port-file port --create 8M data zeros \
	>daemon.out 2>&1 &
daemon=$!
pids="$pids $daemon"
until [ -s port ]; do
	kill -0 $daemon || { cat daemon.out; exit 99; }
	sleep 0.05
done
on "127.0.0.1:$(cat port):zeros" -- test -d lost+found ||
	fail "a pool of zeros is not formatted"
printf x >byte
at=127.0.0.1:$(cat port):data
"$RPMEM_BUILD/util/fi_rpmem_cp" --quiet byte "$at@$(((8 << 20) - 1))" >out 2>&1 ||
	fail "fi_rpmem_cp"
kept data "has bytes, but no file system" "remove the pool's file" "$at"
kill $daemon && wait $daemon
kept data "has bytes, but no file system" "remove data" data
# The signature of squashfs beside ext4: which one is it?
printf hsqs | dd of=zeros bs=1 seek=65536 conv=notrunc 2>/dev/null
kept zeros "has signatures of several file systems" "remove zeros" zeros
[ $failed = 1 ] || echo "ok - commands on ext4"

# A pool in memory is weaker than class power, and enough for class process.
shm=$(mktemp -d /dev/shm/onrpmem.XXXXXX) || exit 99
on "$shm/pool" -- true && fail "a pool in memory is taken as class power"
grep -q "weaker than required" out || fail "no reason for a pool in memory"
on --class process "$shm/pool" -- sh -c 'echo x >f && sync f' || fail "--class process"
rm -rf "$shm"

# xfs, on a pool of the size that --xfs gives it.
if ! command -v mkfs.xfs >/dev/null; then
	echo "ok - --xfs # SKIP mkfs.xfs is missing; on Debian: apt-get install xfsprogs"
elif ! modprobe -q xfs 2>/dev/null && ! grep -qw xfs /proc/filesystems; then
	echo "ok - --xfs # SKIP this kernel has no xfs"
else
	on --xfs xfs -- sh -c 'echo x >f && stat -f -c %T .' || fail "--xfs"
	grep -q '^xfs$' out || fail "another file system"
	on --xfs xfs -- grep x f || fail "--xfs makes the pool anew"
	[ $failed = 1 ] || echo "ok - commands on xfs"
fi

# A run that is killed leaves no loop device.
: >killed
unshare --mount "$script" pool -- sh -c 'echo $$ $PPID >"$0/command"
	sed -n "s,^/dev/\(loop[0-9]*\) $RPMEM_MOUNT .*,\1,p" /proc/self/mounts >"$0/loop"
	echo "$RPMEM_MOUNT" >"$0/killed"; exec sleep 1000' "$PWD" >out 2>&1 &
script_pid=$!
until [ -s killed ]; do
	kill -0 $script_pid || { cat out; exit 99; }
	sleep 0.05
done
mount=$(cat killed) loop=$(cat loop)
[ -e "/sys/block/$loop/loop/backing_file" ] || fail "no loop device under the mount"
kill -9 $script_pid $(cat command)
wait $script_pid
pkill -9 -f "^nbd(kit|fuse) .*${mount%/mnt}/"
pkill -9 -f "fi_rpmemd .*${mount%/mnt}/port"
for _ in $(seq 600); do
	[ -e "/sys/block/$loop/loop/backing_file" ] || break
	sleep 0.05
done
[ ! -e "/sys/block/$loop/loop/backing_file" ] || fail "a SIGKILL leaves $loop"
rm -rf --one-file-system "${mount%/mnt}"

# A run leaves the pool, but no mount and no process.
pgrep -f "port-file /var/tmp/on_rpmem" && fail "a daemon is left"
for d in /var/tmp/on_rpmem.*; do
	[ ! -e "$d" ] || fail "$d is left"
done
exit $failed
