# SPDX-License-Identifier: BSD-2-Clause
# Virtual machines of qemu; sourced by guest.sh, which sets the paths.
# shellcheck shell=bash

# Does the accelerator of this machine work? Some are broken.
accelerator() {
	local log=$work/kvm

	accel=$emulation cpu=max
	[ -w /dev/kvm ] || return
	run timeout -k 1 20 "$qemu" -accel kvm -cpu host -m 256 -nodefaults \
		-display none -no-reboot -serial "file:$log" \
		-kernel "$image/kernel" -initrd "$image/initrd" \
		-append "console=ttyS0 quiet panic=-1 rp.probe" \
		</dev/null >/dev/null 2>&1
	! grep -q 'a guest starts' "$log" 2>/dev/null ||
		accel=kvm cpu=host
}
emulation="tcg,thread=multi"

# Emulated processors sometimes miss the kernel's changes of its own code: one
# boot in ten ended in an int3 oops or silently. So a guest is started again,
# twice at most, if it ended before any test could begin, or if its kernel
# panicked at any time (one in fifty, in its locks). Panics in all three starts
# are a failure.
started() { # CONSOLE
	grep -q '^guest is up' "$1" 2>/dev/null
}
lived() { # CONSOLE
	started "$1" && ! grep -aq 'Kernel panic' "$1"
}
# how_it_fell CONSOLE: print the reason in a few words
how_it_fell() {
	local at

	at=$(grep -ao 'RIP: 0010:[^ ]*' "$1" 2>/dev/null | tail -1)
	if started "$1"; then
		echo "the kernel panicked, ${at:-nobody knows where}"
	else
		echo "the kernel did not start"
	fi
}

# The NVDIMMs are files. This name and 0 or 1 is a file's name.
nvdimm=
new_nvdimms() {
	local n

	nvdimm=$work/nvdimm
	for n in 0 1; do
		rm -f "$nvdimm$n"
		truncate -s 128M "$nvdimm$n"
	done
}

# machine SUITE DOMAIN APPEND [QEMU-OPTION...]: start a machine on the present
# NVDIMMs. $child is its process; $console and $results are its output.
machine() {
	local suite=$1 domain=$2 append=$3 state=mem-ctrl out=$build/$1

	shift 3
	[ "$domain" = adr ] || state=cpu
	console=$build/$suite-$domain${role:-}.console
	results=$build/$suite-$domain${role:-}.results
	rm -f "$console" "$results"
	TMPDIR=$work setpriv --pdeathsig KILL -- "$qemu" \
		-accel "$accel" -cpu "$cpu" -smp 2 -m "${ram:-1G},slots=2,maxmem=4G" \
		-machine "pc,nvdimm=on,nvdimm-persistence=$state,usb=off" \
		-object "memory-backend-file,id=m0,share=on,mem-path=${nvdimm}0,size=128M" \
		-device nvdimm,id=n0,memdev=m0 \
		-object "memory-backend-file,id=m1,share=on,mem-path=${nvdimm}1,size=128M" \
		-device nvdimm,id=n1,memdev=m1 \
		-kernel "$image/kernel" -initrd "$image/initrd" \
		-append "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check rp.domain=$domain $append" \
		-drive "if=none,id=d0,file=$image/disk.img,format=raw,snapshot=on" \
		-device virtio-blk-pci,drive=d0 \
		-drive "if=none,id=d1,file=$out/payload.tar,format=raw,readonly=on" \
		-device virtio-blk-pci,drive=d1 \
		-nodefaults -nic none -display none -monitor none -no-reboot \
		-serial "file:$console" -serial "file:$results" "$@" \
		</dev/null >"$work/qemu" 2>&1 &
	child=$!
}

# unplug: cut the machine's power at once
unplug() {
	kill -KILL "$child" 2>/dev/null
	wait "$child" 2>/dev/null
	child=
}

# outside NAME FILE SIZE: add options that map FILE as memory of the machine
outside() {
	options+=(-object "memory-backend-file,id=$1,share=on,mem-path=$2,size=$3"
		-device "ivshmem-plain,memdev=$1")
}
