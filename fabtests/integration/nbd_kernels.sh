#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Two kernels mount one pool. Each has a file system on its own partition of one
# NBD export, writes files and syncs them. Meanwhile the target dies and loses
# all bytes that msync had not covered. With --control the target flushes
# nothing, and files must be lost.
# usage: nbd_kernels.sh --build DIR [--cuts N] [--control]
#
# The kernels are Debian's, in emulated machines without a disk: nbd-client
# connects twice from each to nbdkit, by user-mode networking to the loopback
# address of this machine.
set -u
build= cuts=5 control=
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$(cd "$2" && pwd); shift ;;
	--cuts) cuts=$2; shift ;;
	--control) control=1 ;;
	*) echo "usage: nbd_kernels.sh --build DIR [--cuts N] [--control]" >&2; exit 2 ;;
	esac
	shift
done
name="two kernels on one pool${control:+, a target that flushes nothing}"

skip() { echo "ok - $name # SKIP $*"; exit 77; }
fail() { echo "not ok - $name: $*"; exit 1; }
lost() {
	[ -n "$control" ] || fail "$*"
	echo "ok - $name: $*"
	exit 0
}

PATH=$PATH:/usr/sbin
for tool in qemu-system-x86_64 busybox cpio nbdkit nbd-client sfdisk mkfs.ext4 \
	debugfs dpkg-deb depmod; do
	command -v $tool >/dev/null || skip "$tool is missing"
done
export FI_TCP_IFACE=lo FI_PROVIDER_PATH=$build/prov/rpmem/.libs
dir=$(mktemp -d "$build/kernels.XXXXXX") || exit 99
cd "$dir" || exit 99
daemon= server= guests=()
finish() {
	for p in "${guests[@]}" $server $daemon; do
		kill -9 "$p" 2>/dev/null && wait "$p"
	done 2>/dev/null
	cd / && rm -rf "$dir"
}
trap finish EXIT

# --- a kernel with nbd, and a root whose only program writes files ---

package=$(apt-cache depends linux-image-amd64 2>/dev/null |
	sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$package" ] || skip "apt knows no linux-image-amd64"
apt-get download -qq "$package" >apt.log 2>&1 ||
	skip "apt cannot download $package: $(tail -n 1 apt.log)"
dpkg-deb -x linux-image-*.deb kernel && rm linux-image-*.deb
release=$(ls kernel/lib/modules)
depmod -b kernel "$release" || fail "depmod"
mkdir -p root/{bin,dev,proc,sys,tmp,mnt,lib,lib64} "root/lib/modules/$release"
cp "$(command -v busybox)" root/bin/busybox
cp "$(command -v nbd-client)" root/bin/
ldd "$(command -v nbd-client)" | grep -o '/[^ ]*' | while read -r lib; do
	mkdir -p "root$(dirname "$lib")"
	cp "$lib" "root$lib"
done
for module in nbd virtio_net virtio_pci ext4 crc32c_generic; do
	modprobe -d kernel -S "$release" --show-depends $module
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >modules
n=100
while read -r module; do
	cp "$module" root/lib/modules/$((n += 1)).ko
done <modules
cat >root/init <<'I'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in /lib/modules/*.ko; do insmod $m; done
for word in $(cat /proc/cmdline); do
	case $word in t.*=*) eval "${word#t.}" ;; esac
done
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
give_up() { echo "t: broken: $*"; poweroff -f; }
nbd-client 10.0.2.2 $port /dev/nbd0 -C 2 || give_up nbd-client
n=0
until [ -b /dev/nbd0p$part ]; do
	[ $((n += 1)) -lt 50 ] || give_up "no partition: $(dmesg | tail -n 3)"
	sleep 0.2
	blockdev --rereadpt /dev/nbd0
done
mount /dev/nbd0p$part /mnt || give_up mount
echo "t: mounted"
n=0
while [ $((n += 1)) -le $files ]; do
	dd if=/dev/urandom of=/mnt/$n bs=4096 count=$((n % 13 + 1)) 2>/dev/null
	sync /mnt/$n && sync || give_up "sync of file $n"
	echo "t: synced $n $(md5sum </mnt/$n | cut -d' ' -f1)"
done
umount /mnt || give_up umount
nbd-client -d /dev/nbd0
echo "t: done"
poweroff -f
I
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet) | gzip -1 >initrd

# --- the target and its NBD export ---

port=0 provider=$FI_PROVIDER_PATH
serve() { # ARGUMENT...
	rm -f ready
	env RPMEM_SHADOW=vol:vol.safe ${control:+RPMEM_FAULT=skip-flush} \
		FI_PROVIDER_PATH=$provider \
		LD_PRELOAD=$build/fabtests/fault/.libs/libshadow.so \
		"$build/util/fi_rpmemd" --port "$port" --port-file ready "$@" vol \
		>>daemon.out 2>&1 &
	daemon=$!
	until [ -e ready ]; do
		kill -0 $daemon 2>/dev/null || fail "fi_rpmemd: $(cat daemon.out)"
		sleep 0.05
	done
	port=$(cat ready)
}

cut() {
	kill -9 $daemon
	wait $daemon 2>/dev/null
	cp vol.safe vol
}

truncate -s 0 vol.safe
serve --create 66M
grep -q '^vol .* power ' daemon.out ||
	skip "no file system here on which msync reaches a disk"
kill $daemon && wait $daemon
data=$(($(stat -c %s vol) - 66 * 1024 * 1024)) # offset after the pool's header
[ $data -ge 0 ] || fail "the pool file is short"
truncate -s 66M disk
echo -e '1M,32M,L\n33M,32M,L\n' | sfdisk -q disk >sfdisk.log 2>&1 ||
	fail "sfdisk: $(cat sfdisk.log)"
mkfs.ext4 -q -E offset=$((1 << 20)) disk 32M
mkfs.ext4 -q -E offset=$((33 << 20)) disk 32M
dd if=disk of=vol bs=64K seek=$((data / 65536)) conv=notrunc status=none
cp vol vol.safe
if [ -n "$control" ]; then
	mkdir fault
	ln -s "$build/fabtests/fault/.libs/librpmem-fault-fi.so" fault/
	provider=$PWD/fault
fi
serve

nbd=
for _ in 1 2 3 4 5; do
	nbd=$((RANDOM % 20000 + 20000))
	nbdkit -f -i 127.0.0.1 -p $nbd "$build/util/.libs/nbdkit-rpmem-plugin.so" \
		target=127.0.0.1:"$port" pool=vol 2>nbdkit.log &
	server=$!
	until nbdinfo --size nbd://127.0.0.1:$nbd >/dev/null 2>&1; do
		kill -0 $server 2>/dev/null || continue 2
		sleep 0.05
	done
	break
done
kill -0 $server 2>/dev/null || fail "nbdkit: $(cat nbdkit.log)"

# boot PARTITION: start one machine, whose console is a file
boot() {
	qemu-system-x86_64 -machine q35 -m 256 -display none -no-reboot \
		-kernel kernel/boot/vmlinuz-* -initrd initrd -serial file:console$1 \
		-monitor none -netdev user,id=n -device virtio-net-pci,netdev=n,romfile= \
		-append "console=ttyS0 quiet panic=-1 t.port=$nbd t.part=$1 t.files=$((cuts * 20))" \
		2>qemu$1.log &
	guests+=($!)
}

# synced PARTITION: the number of files that its kernel has synced
synced() { cat console"$1" 2>/dev/null | grep -ac '^t: synced'; }

# wait_for PARTITION FILES: wait for so many synced files, or the machine's end
wait_for() {
	local pid=${guests[$1 - 1]}

	until [ "$(synced "$1")" -ge "$2" ]; do
		grep -aqs '^t: broken' console"$1" &&
			fail "machine $1: $(grep -a '^t: broken' console"$1"), $(tail -n 3 nbdkit.log)"
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	[ "$(synced "$1")" -ge "$2" ] ||
		fail "machine $1 has ended: $(tail -n 5 console"$1" qemu"$1".log)"
}

boot 1
boot 2
for i in $(seq "$cuts"); do
	wait_for 1 $((i * 10))
	wait_for 2 $((i * 10))
	sleep 0.$((RANDOM % 10))
	cut
	serve
done
# Cut both ends at last. Files that the kernels know as synced must be there.
wait_for 1 $((cuts * 11))
wait_for 2 $((cuts * 11))
cut
kill -9 "${guests[@]}" 2>/dev/null
wait "${guests[@]}" 2>/dev/null

# --- compare the files ---

files=0
for part in 1 2; do
	dd if=vol of=part$part bs=64K skip=$((data / 65536 + 16 + (part - 1) * 512)) \
		count=512 status=none
	e2fsck -fy part$part >fsck.log 2>&1 # replays the journal
	e2fsck -fn part$part >fsck.log 2>&1 || lost "e2fsck: $(tail -n 5 fsck.log)"
	# The last line of a console may be incomplete.
	while read -r _ _ n sum; do
		debugfs -R "cat /$n" part$part 2>/dev/null | md5sum |
			grep -q "^$sum" || lost "partition $part: file $n is lost"
		files=$((files + 1))
	done < <(tr -d '\r' <console$part | grep -aE '^t: synced [0-9]+ [0-9a-f]{32}$')
done
[ $files -gt 0 ] || fail "no file was synced"
[ -z "$control" ] || fail "nothing is lost"
echo "ok - $name: $files synced files through $((cuts + 1)) cuts of the target, 0 lost"
