#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Boots systemd in a root; it runs service_tests.sh, and the namespaces end.
#
# usage: service_boot.sh ROOT INSTALLED BUILD OUT
#
# INSTALLED (a tree of make install) lies over ROOT; BUILD is the build folder.
# Both are read-only inside, and what systemd writes is in memory, but OUT and
# its folder state, which is /var/lib/ofi_rpmem. The packages in OUT/packages, if
# that folder exists, are installed in memory before systemd starts. Run in mount,
# process, cgroup, IPC, UTS and network namespaces of its own.
set -eu

root=$1 installed=$2 build=$3 out=$4
here=$(cd "$(dirname "$0")" && pwd)
work=$out/memory

mkdir -p "$work" "$out/state" "$out/other"
mount -t tmpfs -o mode=755 memory "$work"
mkdir "$work/up" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=$installed:$root,upperdir=$work/up,workdir=$work/work" \
	overlay "$work/root"
cd "$work/root"
mkdir -p var/lib/ofi_rpmem srv/pools
mount --bind "$out" out
mount --bind "$build" build
mount --bind "$here" tests
mount -o remount,bind,ro build
mount -o remount,bind,ro tests
# Disks of this machine, not of the overlay.
mount --bind "$out/state" var/lib/ofi_rpmem
mount --bind "$out/other" srv/pools
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for d in run tmp dev; do
	mount -t tmpfs -o mode=755 $d $d
done
chmod 1777 tmp
mkdir dev/pts dev/shm
for d in null zero full random urandom tty; do
	: >dev/$d
	mount --bind /dev/$d dev/$d
done
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
# dpkg refuses a package whose dependencies are not all in the root.
if [ -d out/packages ]; then
	chroot . sh -c 'dpkg --force-unsafe-io -i /out/packages/*.deb'
fi
cat >etc/systemd/system/tests.service <<'U'
[Unit]
Requires=sysinit.target
# systemd forgets a unit that has stopped and that no unit names.
After=sysinit.target fi_rpmemd.service
[Service]
Type=oneshot
TimeoutStartSec=20min
WorkingDirectory=/out
ExecStart=/bin/bash /tests/service_tests.sh
StandardOutput=append:/out/said
StandardError=inherit
ExecStopPost=systemctl --no-block poweroff
U
ip link set lo up
pivot_root . mnt
exec env -i container=ofi_rpmem PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . \
	/bin/sh -c 'umount -l /mnt
		exec /lib/systemd/systemd --unit=tests.service --show-status=0 \
			--log-target=journal-or-kmsg >/out/console 2>&1 </dev/null'
