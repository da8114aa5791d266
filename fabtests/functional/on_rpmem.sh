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
trap 'cd .. && rm -rf "$dir"' EXIT
failed=0

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
on --size 64M pool -- true && fail "another size is taken"
grep -q "exists with 32 MiB, not 64" out || fail "no reason"
on -- test -d lost+found || fail "a temporary pool"
on nowhere.invalid:pool -- true && fail "a target that does not exist"
grep -q "nowhere.invalid" out || fail "no name of the target"
on pool && fail "no command"

# A run leaves the pool, but no mount and no process.
losetup --list --noheadings --output BACK-FILE | grep on_rpmem &&
	fail "a loop device is left"
pgrep -f "port-file /var/tmp/on_rpmem" && fail "a daemon is left"
for d in /var/tmp/on_rpmem.*; do
	[ ! -e "$d" ] || fail "$d is left"
done
exit $failed
