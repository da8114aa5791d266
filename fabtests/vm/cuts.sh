# SPDX-License-Identifier: BSD-2-Clause
# Power cuts: makes every possible image of the NVDIMMs after a cut, and judges
# it; sourced by guest.sh.
# shellcheck shell=bash

# Files mapped as memory of the guest: the bytes written back, and the
# acknowledgements (powercut.c) in slots of 16 KiB.
medium_size=256M acks_size=1M slot_size=16384

# rows DOMAIN: print slot and row of each pair for this machine of $suite
rows() {
	local flush=

	[ ! -x "$build/$suite/payload/flush" ] || flush=+flush
	grep -v '^#' "$here/methods" | awk -v d="$1" -v f="$1$flush" \
		'$1 == d || $1 == f { print NR - 1, $0 }'
}

# said PATTERN: print the text after PATTERN in the machine's notes
said() {
	sed -n "s/\r$//; s/^# [0-9.]* $1//p" "$results" 2>/dev/null
}

# prepare SUITE: make NVDIMMs with namespaces, a file system and pools without
# data
prepare() {
	local suite=$1 first last n=$failed

	new_nvdimms
	boot "$suite, prepared" "$suite" adr rp.stage=prepare
	[ "$failed" = "$n" ] || return
	results=$build/$suite-adr.results
	symbols=$(said 'symbol ' | paste -sd,)
	at_ext4=$(($(said 'place ext4 '))) at_dax=$(($(said 'place dax ')))
	first=$(($(said 'place region0 '))) last=$(($(said 'place region1 ')))
	base=$first
	# The file system must be on region 0.
	if [ "$first" -ge "$last" ] ||
		! head -c 8192 "${nvdimm}0" | grep -qa NVDIMM_PFN_INFO; then
		broken "$suite: NVDIMMs are not in the order of their addresses"
		return 1
	fi
	for n in 0 1; do
		cp --sparse=always "$nvdimm$n" "$work/prepared$n"
	done
	echo "# $suite: ext4 begins at byte $((at_ext4 - first)) of its NVDIMM," \
		"devdax at $((at_dax - last)) of the other"
}

# acked SLOT: print the number of acknowledged records
acked() {
	dd if="$work/acks" bs=$slot_size skip="$1" count=1 2>/dev/null |
		tr -d '\0' | wc -c
}

# live SUITE DOMAIN SEED FAULT: run until a power cut; $short counts the pairs
# with too few acknowledgements
live() {
	local suite=$1 domain=$2 seed=$3 fault=$4 start=$SECONDS n slot options
	local accel=$emulation cpu=max # writeback.py stops this machine

	nvdimm=$work/nvdimm
	for n in 0 1; do
		cp --sparse=always "$work/prepared$n" "$nvdimm$n"
	done
	cat "${nvdimm}0" "${nvdimm}1" |
		cp --sparse=always /dev/stdin "$work/medium"
	rm -f "$work/acks" "$work/gdb"
	truncate -s $acks_size "$work/acks"
	options=(-S -chardev "socket,path=$work/gdb,server=on,wait=off,id=gdb"
		-gdb chardev:gdb)
	outside medium "$work/medium" $medium_size
	outside acks "$work/acks" $acks_size
	machine "$suite" "$domain" \
		"rp.stage=write rp.seed=$seed rp.fault=$fault rp.base=$(printf %x "$base")" \
		"${options[@]}"
	until [ -S "$work/gdb" ] || ! kill -0 "$child" 2>/dev/null; do
		sleep 0.1
	done
	python3 "$here/writeback.py" "$work/gdb" \
		"${nvdimm}0,${nvdimm}1" "$work/medium" "$(printf %x "$base")" "$symbols" >"$work/follower" 2>&1 &
	follower=$!
	while kill -0 "$child" 2>/dev/null && kill -0 $follower 2>/dev/null &&
		[ $((SECONDS - start)) -lt "$limit" ]; do
		n=0
		for slot in $(rows "$domain" | cut -d' ' -f1); do
			said 'enough ' | grep -qx "$slot" || n=$((n + 1))
		done
		[ $n -gt 0 ] || break
		sleep 0.2
	done
	sleep 0.$((seed % 10))
	unplug
	wait $follower
	follower= short=$n
	[ $short = 0 ]
}

# judge DOMAIN SEED IMAGE: extract the pools of an image, print "SLOT RECORDS
# MISSING" for each
judge() {
	local domain=$1 seed=$2 image_of=$3 to=$build/$suite/judge slot kind

	rm -rf "$to"
	mkdir -p "$to"
	cp "$work/acks" "$to/"
	part() { # ADDRESS BYTES
		local at=$(($1 - base)) n=0 size=$((128 << 20))

		[ $at -lt $size ] || n=1
		dd if="$image_of$n" bs=1M iflag=skip_bytes,count_bytes \
			skip=$((at - n * size)) count="$2" 2>/dev/null
	}
	part $at_ext4 $((124 << 20)) | cp --sparse=always /dev/stdin "$to/ext4"
	e2fsck -fy "$to/ext4" >"$to/fsck" 2>&1
	rows "$domain" | while read -r slot _ _ _ kind _; do
		if [ "$kind" = dax ]; then
			part $((at_dax + (slot << 21))) $((1 << 20)) >"$to/pool.$slot"
		else
			debugfs -R "dump /$kind.$slot $to/pool.$slot" "$to/ext4" \
				>>"$to/fsck" 2>&1
		fi
		echo "$slot"
	done >"$to/slots"
	apart sh -c 'mount --bind "$1" "$2/build" && exec chroot "$2" sh -c "
		cd /build/judge
		while read -r slot; do
			echo \$slot \$(/build/payload/fabtests/fault/powercut \
				--check pool.\$slot '"$seed"' 9 \$slot 9<>acks)
		done <slots"' sh "$build/$suite" "$image/root" |
		sed -n 's/ # \([0-9]*\) records, \([0-9]*\) missing$/ \1 \2/p'
}

# cut_once SUITE DOMAIN ROUND SEED [FAULT]
cut_once() {
	local suite=$1 domain=$2 round=$3 seed=$4 fault=${5:-} name percent images=0
	local what slot how over kind records missing lines= options short
	local shares="100 0 50 50 50"
	local -A lost=() had=()

	name="$suite $domain, power cut $round${fault:+, $fault}"
	# With persistent caches no byte in a cache is lost: one image is
	# enough.
	[ "$domain" = adr ] || shares=0
	for _ in 1 2 3; do
		live "$suite" "$domain" "$seed" "$fault" && break
		! lived "$console" || break
		echo "# $name: $(how_it_fell "$console")"
	done
	if [ "$short" != 0 ]; then
		broken "$name: not enough was acknowledged"
		cat "$work/follower" "$work/qemu"
		tail -n 30 "$results"
		tail -n 20 "$console"
		return
	fi
	for percent in $shares; do
		lines="$lines $(python3 "$here/images.py" \
			"${nvdimm}0:$((at_ext4 - base)),${nvdimm}1:$((at_dax - base - (128 << 20)))" \
			"$work/medium" $((seed + images)) \
			"$percent" "$work/image.")"
		images=$((images + 1))
		while read -r slot records missing; do
			had[$slot]=$records
			lost[$slot]=$((${lost[$slot]:-0} + missing))
		done < <(judge "$domain" "$seed" "$work/image.")
	done
	while read -r slot _ how over kind _; do
		what="$name: $how over $over, $kind: ${had[$slot]:-0} records in $images images"
		if [ -n "$fault" ] && [ "${lost[$slot]:-0}" -gt 0 ]; then
			echo "ok - $what, ${lost[$slot]} found lost"
			passed=$((passed + 1))
		elif [ -z "$fault" ] && [ "${had[$slot]:-0}" -gt 0 ] &&
			[ "${lost[$slot]:-1}" = 0 ]; then
			echo "ok - $what, none lost"
			passed=$((passed + 1))
		else
			broken "$what, ${lost[$slot]:-?} lost; seed $seed"
		fi
		sum_cuts[$how]=$((${sum_cuts[$how]:-0} + 1))
		sum_acked[$how]=$((${sum_acked[$how]:-0} + ${had[$slot]:-0}))
		sum_lost[$how]=$((${sum_lost[$how]:-0} + ${lost[$slot]:-0}))
		sum_images[$how]=$((${sum_images[$how]:-0} + images))
	done < <(rows "$domain")
	echo "# $name: seed $seed; lines not written back, and taken back:$lines;" \
		"stops: $(cat "$work/follower")"
	# Boot a machine on the last image.
	if [ "$round" = 1 ] || [ -n "$long" ] && [ -z "$fault" ]; then
		nvdimm=$work/image. options=()
		outside acks "$work/acks" $acks_size
		boot "$name, next life" "$suite" "$domain" \
			"rp.stage=check rp.seed=$seed" "${options[@]}"
	fi
}

# cuts SUITE: cut a guest's power several times, and check its NVDIMMs
cuts() {
	local suite=$1 round rounds=3 domain base symbols at_ext4 at_dax how
	local start=$SECONDS seed=$((RANDOM * 32768 + RANDOM))
	local ram=2G # memory for some eight processes with endpoints
	local -A sum_cuts=() sum_acked=() sum_lost=() sum_images=()

	[ -z "$long" ] || rounds=50
	prepare "$suite" || return
	for domain in "${domains[@]}"; do
		for round in $(seq $rounds); do
			cut_once "$suite" "$domain" "$round" $((seed + round))
		done
	done
	for how in "${!sum_cuts[@]}"; do
		echo "# $suite, power cuts, $how: ${sum_cuts[$how]} cuts," \
			"${sum_acked[$how]} acknowledged, ${sum_lost[$how]} lost," \
			"${sum_images[$how]} images"
	done
	[[ " ${domains[*]} " != *" adr "* ]] ||
		cut_once "$suite" adr planted "$seed" skip-flush
	echo "# $suite: power cuts took $((SECONDS - start)) s"
}
