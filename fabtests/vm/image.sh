#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds a guest from Debian packages: a root to build in, its disk, a kernel.
#
# usage: image.sh MIRROR SUITE DIR
#
# DIR is made: root/ (a chroot with a compiler), disk.img (the same without it),
# kernel, initrd, packages (what is in it). Run as root, in a mount namespace of
# its own, so that nothing stays mounted whatever happens.
set -eu -o pipefail

mirror=$1 suite=$2 dir=$3

build="gcc libc6-dev make pkg-config libfabric-dev libpmem2-dev uthash-dev
	libjansson-dev nettle-dev libinih-dev libxxhash-dev libmicrohttpd-dev libibverbs-dev librdmacm-dev librpma-dev"
run="libfabric-bin rdma-core ibverbs-utils ibverbs-providers rdmacm-utils
	perftest ndctl daxctl e2fsprogs iproute2 kmod procps valgrind
	wireguard-tools"
modules="virtio_pci virtio_blk virtio_net ext4 nfit nd_pmem device_dax dax_pmem
	ib_uverbs rdma_cm rdma_ucm rdma_rxe dummy crc32c_generic
	crc32_generic veth wireguard esp4 xfrm_user gcm seqiv ctr ghash_generic
	drbg hmac sha512_generic sha256_generic"

said() { echo "$suite: $* ($SECONDS s)"; }

mkdir "$dir"
cd "$dir"
dir=$PWD
# The kernel is unpacked and not installed: it needs no boot loader here.
mmdebstrap --quiet --variant=minbase --mode=root \
	--aptopt='APT::Install-Recommends "false"' \
	--aptopt='Acquire::Languages "none"' \
	--aptopt='Acquire::Check-Valid-Until "false"' \
	--dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--include="$(echo $build $run | tr -s ' \t\n' ,)" \
	--customize-hook='chroot "$1" sh -c "cd /tmp && apt-get download -qq \
		\$(apt-cache depends linux-image-amd64 |
			sed -n \"s/.*Depends: \(linux-image-[0-9]\)/\1/p\" |
			head -1)"' \
	--customize-hook='mv "$1"/tmp/linux-image-*.deb "$1"/../kernel.deb' \
	"$suite" root "deb $mirror $suite main"
said "user space is there"

dpkg-deb -x kernel.deb unpacked
mv unpacked/boot/vmlinuz-* kernel
found=$(echo unpacked/lib/modules/* unpacked/usr/lib/modules/* |
	tr ' ' '\n' | grep -v '\*$')
version=${found##*/}
mkdir -p root/usr/lib/modules
mv "$found" root/usr/lib/modules/
{
	dpkg-deb -W kernel.deb
	chroot root dpkg-query -W
} >packages
rm -rf kernel.deb unpacked

# Without ndctl's settings, which run modprobe of libnvdimm by a security
# service.
rm -f root/etc/modprobe.d/nvdimm-security.conf \
	root/usr/lib/modprobe.d/nvdimm-security.conf
# Only the modules that are needed, with their dependencies.
chroot root depmod "$version"
# depends MODULE...: their files below root, in the order of loading.
depends() {
	local m

	for m in "$@"; do
		chroot root modprobe -S "$version" --show-depends "$m" \
			2>/dev/null || true
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
		sed 's,^/lib/,/usr/lib/,; s,^/,,'
}
# shellcheck disable=SC2086
(cd root && find usr/lib/modules -name '*.ko*') | sort |
	comm -23 - <(depends $modules | sort) | (cd root && xargs rm -f)
chroot root depmod "$version"

# The initrd only mounts the disk.
mkdir -p initrd.d/bin initrd.d/dev initrd.d/proc initrd.d/new initrd.d/modules
cp /bin/busybox initrd.d/bin/
n=10
for m in $(depends virtio_pci virtio_blk crc32c_generic ext4); do
	to=initrd.d/modules/$((n += 1)).ko
	case $m in
	*.xz) xz -dc "root/$m" >$to ;;
	*.zst) zstd -dqc "root/$m" >$to ;;
	*) cp "root/$m" $to ;;
	esac
done
cat >initrd.d/init <<'I'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
if $b grep -q rp.probe /proc/cmdline; then
	echo "a guest starts"
	$b poweroff -f
fi
for m in /modules/*.ko; do $b insmod $m; done
n=0
until [ -b /dev/vda ] || [ $((n += 1)) = 500 ]; do $b usleep 20000; done
$b mount -t ext4 /dev/vda /new && exec $b switch_root /new /init
echo "the guest's disk cannot be mounted"
$b poweroff -f
I
chmod +x initrd.d/init
(cd initrd.d && find . | cpio -o -H newc --quiet) >initrd
rm -rf initrd.d

# The guest gets its tests on a second disk, as an archive.
cat >root/init <<'I'
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /dev/pts /t
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
ip link set lo up
hostname guest
echo "guest is up: $(uname -r), $(cut -d' ' -f1 /proc/uptime) s"
tar -C /t -xf /dev/vdb && cd /t && sh ./guest
sync
echo o >/proc/sysrq-trigger
sleep 60
I
chmod +x root/init
mkdir -p root/src root/build
echo 127.0.0.1 localhost guest >root/etc/hosts
rm -rf root/var/cache/apt root/var/lib/apt/lists

cp -al root small
(cd small && rm -rf usr/include usr/lib/gcc usr/libexec/gcc usr/share/doc \
	usr/share/locale usr/share/info usr/share/zoneinfo src build \
	usr/lib/*/*.a usr/bin/*-gcc-* usr/bin/*-ld* usr/bin/*-lto-dump*)
mke2fs -q -t ext4 -m 0 -d small disk.img \
	$(($(du -sm small | cut -f1) * 5 / 4 + 192))M
rm -rf small
said "$(du -shc root disk.img kernel initrd | tail -1 | cut -f1) of guest"
