#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs tests.sh after chroot to the root of another release.
#
# usage: chroot.sh ROOT SOURCES OUT HOST FABTESTS [ARGUMENT...]
#
# ROOT, SOURCES, HOST (a build of this machine) and FABTESTS (or "") are
# read-only inside. Run in mount, process and network namespaces of its own:
# mounts and processes of this script end with them.
set -eu

root=$1 src=$2 out=$3 host=$4 fabtests=$5
shift 5

# look WHAT WHERE: mount WHAT, read-only
look() {
	mount --bind "$1" "$2"
	mount -o remount,bind,ro "$2"
}

# A mount, not only a folder: tests unshare from it.
look "$root" "$root"
cd "$root"
look "$src" src
mount --bind "$out" build
look "$host" host
[ -z "$fabtests" ] || look "$fabtests" fabtests
for d in tmp run root; do
	mount -t tmpfs -o mode=1777 tmp $d
done
mount -t proc proc proc
mount -t sysfs sys sys
mount --rbind /dev dev
# Drop shared memory of another run.
mount -t tmpfs shm dev/shm
pivot_root . mnt
exec chroot . /bin/bash -c '
umount -l /mnt && ip link set lo up || exit
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
cd /build && exec /bin/bash /src/fabtests/platform/tests.sh "$@"' inside "$@"
