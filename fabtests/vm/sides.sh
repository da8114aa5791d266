# SPDX-License-Identifier: BSD-2-Clause
# The tests of one of two machines: of the one with the memory, or of the other
# one.
# shellcheck shell=sh

machines=$here/fabtests/fault/machines port=7471
case $(parameter rp.stage) in
target) address=10.9.0.1 ;;
initiator) address=10.9.0.2 ;;
esac
rxe_netdev $address
rdma link add rxe0 type rxe netdev eth0
sleep 1
export RPMEM_BASE=verbs RPMEM_NODE=$address \
	FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4
board=$(board 1048576)
(umask 077 && head -c 32 "$machines" | base64 >secret)

case $(parameter rp.stage) in
target)
	life=$(parameter rp.life)
	[ "$life" != 1 ] ||
		ndctl create-namespace -f -e namespace1.0 -m devdax >/dev/null
	[ "$life" != 1 ] || {
		ndctl create-namespace -f -e namespace0.0 -m fsdax
		mkfs.ext4 -q -F -b 4096 /dev/pmem0
	} >/dev/null
	mkdir -p /mnt/fsdax
	mount /dev/pmem0 /mnt/fsdax
	# DAX memory is kept by the host. The page cache is lost with the machine,
	# and here nothing but msync writes it back.
	echo 0 >/proc/sys/vm/dirty_writeback_centisecs
	mkdir -p /mnt/fsdax/dax
	chattr +x /mnt/fsdax/dax
	env -u FI_TCP_IFACE util/fi_rpmemd --listen $address --port $port \
		--secret secret --create 4M /mnt/fsdax/dax/pool \
		/mnt/fsdax/control 2>&1 | sed 's/^/# /' >&3 &
	note "life $life begins"
	"$machines" --target /dev/dax1.0 "$board" "$life" 2>&1 |
		sed 's/^/# /' >&3
	;;
initiator)
	export FI_OFI_RPMEM_TIMEOUT=15000
	# The host reads this output while the machine runs: it says when the
	# target may die.
	: >$out
	tail -f $out | sed -u 's/^/# /' >&3 &
	cat >serves.sh <<-END
		timeout 5 util/fi_rpmem_info --secret secret --target 10.9.0.1:$port
	END
	# The host cuts the power of the target's machine when it has read the
	# notes of both pools.
	cat >cut.sh <<-'END'
		echo "# $1 waits for the cut" >&3
		while sh serves.sh; do
			sleep 0.2
		done
	END
	# pull POOL [OPTION]: run fi_rpmem_plugpull with this pool
	pull() {
		name=$1
		shift
		unset FI_TCP_IFACE
		until sh serves.sh; do
			sleep 0.2
		done >/dev/null 2>&1
		exec util/fi_rpmem_plugpull --secret secret --area 1M \
			--seconds 1 --ledger "$name.ledger" \
			--cut "sh cut.sh $name" "$@" "10.9.0.1:$port:$name"
	}
	pull pool >pull 2>&1 &
	pool=$!
	pull control --control >control 2>&1 &
	control=$!
	tap "two machines" "$machines" --initiator "$board"
	wait $pool
	code=$?
	wait $control
	loses=$?
	grep -v '^  offset' control | cat pull - | sed 's/^/# /' >&3
	is "fi_rpmem_plugpull finds nothing lost" $code 0
	is "fi_rpmem_plugpull --control loses bytes of the page cache" $loses 0
	;;
esac
