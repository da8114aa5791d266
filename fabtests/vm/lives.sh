# SPDX-License-Identifier: BSD-2-Clause
# Runs of one machine with power cuts between them, made by cuts.sh.
# shellcheck shell=sh

# rows: print slot and row of each pair on this machine; the slot is the row's
# number
rows() {
	flush=
	[ ! -x flush ] || flush=+flush
	grep -v '^#' methods | awk -v d="$domain" -v f="$domain$flush" \
		'$1 == d || $1 == f { print NR - 1, $0 }'
}

# pool KIND SLOT: print the pool's path
pool() {
	case $1 in
	dax) echo "/dev/dax1.0@$2" ;;
	*) echo "/mnt/fsdax/$1.$2" ;;
	esac
}

# start SLOT METHOD BASE POOL [NAME=VALUE...]: start a pair that runs until the
# power cut
start() {
	slot=$1 how=$2 over=$3 kind=$4
	shift 4
	mkfifo "card$slot" "enough$slot"
	(
		[ "$over" != verbs ] ||
			export RPMEM_BASE=verbs RPMEM_NODE=10.9.0.1 \
				FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4
		[ "$kind" != sync ] || export RPMEM_MAP_SYNC=1
		[ $# = 0 ] || export "$@"
		# Half of the runs use the installed provider, whose
		# non-temporal stores the shadow cannot see. There, keep bytes
		# out of requests.
		export FI_OFI_RPMEM_INLINE=0
		if [ $((seed % 2)) = 1 ] || [ -n "$fault" ]; then
			unset FI_OFI_RPMEM_INLINE
			export FI_PROVIDER_PATH="$here/fabtests/fault/.libs"
		fi
		# Fault: the initiator's FLUSH on the device writes nothing
		# back.
		[ "$how" != native ] || export RPMEM_FAULT="$fault"
		# The shim's two sides exchange addresses, and both choose the
		# method.
		if [ "$over" = shim ]; then
			# The shadow cannot see non-temporal stores of the
			# installed shim, either.
			cut=$here/fabtests/vm/shim_cut
			if [ $((seed % 2)) = 1 ] || [ -n "$fault" ]; then
				cut=${cut}_faults
				export FI_OFI_RPMEM_SPIN=2000
			fi
			mkfifo "back$slot"
			export RPMEM_BACK="back$slot" RPMEM_FAULT="$fault" \
				FI_OFI_RPMEM_METHOD="$how"
		fi
		"$cut" --initiator 9 "$seed" "$slot" $((seed % 300 + 20)) \
			<"card$slot" >"enough$slot" 9<>"$acks" &
		export FI_OFI_RPMEM_METHOD="$how" RPMEM_FAULT="$fault" \
			LD_PRELOAD="$here/fabtests/fault/.libs/libshadow.so"
		exec "$cut" --target "$(pool "$kind" "$slot")" "$seed" \
			>"card$slot" </dev/zero
	) 2>"said$slot" &
	target=$!
	# In every second pair the target is killed before the machine's power
	# is cut.
	(
		read -r _ || exit
		[ $(((seed + slot) % 2)) = 0 ] || kill -KILL "$target"
		note "enough $slot"
		cat >/dev/null
	) <"enough$slot" &
}

# checked SEED SLOT KIND: does the pool hold all acknowledged records?
checked() {
	"$cut" --check "$(pool "$3" "$2")" "$1" 9 "$2" 9<>"$acks"
}
others() { # must find records missing: the seed is another one
	! checked $((seed + 1)) "$@"
}

seed=$(parameter rp.seed) fault=$(parameter rp.fault)
case $(parameter rp.stage) in
prepare)
	t "a namespace for fsdax" \
		ndctl create-namespace -f -e namespace0.0 -m fsdax
	t "a namespace for devdax" \
		ndctl create-namespace -f -e namespace1.0 -m devdax
	t "ext4 on it" mkfs.ext4 -q -F -b 4096 /dev/pmem0
	mkdir -p /mnt/fsdax
	t "ext4, mounted for DAX" mount -o dax=always /dev/pmem0 /mnt/fsdax
	grep -v '^#' methods | awk '{ print NR - 1, $4 }' >pools
	while read -r slot kind; do
		[ "$kind" = dax ] || fallocate -l 1M "$(pool "$kind" "$slot")"
	done <pools
	t "ext4, unmounted" umount /mnt/fsdax
	for s in arch_wb_cache_pmem __memcpy_flushcache \
		page_offset_base; do
		note "symbol $s=$(awk -v s=$s '$3 == s { print $1; exit }' \
			/proc/kallsyms)"
	done
	grep flushcache /proc/kallsyms >&3
	note "place region0 $(cat /sys/bus/nd/devices/region0/resource)"
	note "place region1 $(cat /sys/bus/nd/devices/region1/resource)"
	note "place ext4 $(cat /sys/bus/nd/devices/pfn0.*/resource 2>/dev/null |
		head -1)"
	note "place dax $(cat /sys/bus/dax/devices/dax1.0/resource)"
	;;
write)
	mkdir -p /mnt/fsdax
	mount -o dax=always /dev/pmem0 /mnt/fsdax
	rxe_netdev
	rdma link add rxe0 type rxe netdev eth0
	sleep 1
	printf '%s\n' '[host]' 'assert placement = dma-cache' \
		'assert fence = yes' >/tmp/by-dma
	acks=$(board 1048576)
	RPMEM_MEDIUM=$(board 268435456):$(parameter rp.base)
	export RPMEM_MEDIUM
	rows >now
	while read -r slot _ how over kind more; do
		# shellcheck disable=SC2086
		start "$slot" "$how" "$over" "$kind" $more
	done <now
	# Run until the power of this machine is cut.
	while sleep 1; do
		for said in said*; do
			sed "s/^/# $said: /" "$said" >&3
			: >"$said"
		done
	done
	;;
check)
	acks=$(board 1048576)
	mkdir -p /mnt/fsdax
	t "ext4 is mounted again" \
		mount -o dax=always /dev/pmem0 /mnt/fsdax
	rows >now
	while read -r slot _ how over kind more; do
		long "$how over $over, $kind: acknowledged records are kept" \
			checked "$seed" "$slot" "$kind"
		note "$(cat $out)"
	done <now
	long "no other records are found there" others "$slot" "$kind"
	;;
esac
