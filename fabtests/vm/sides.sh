# SPDX-License-Identifier: BSD-2-Clause
# The tests of one of two machines: of the one with the memory, or of the other
# one.
# shellcheck shell=sh

machines=$here/fabtests/fault/machines
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

case $(parameter rp.stage) in
target)
	life=$(parameter rp.life)
	[ "$life" != 1 ] ||
		ndctl create-namespace -f -e namespace1.0 -m devdax >/dev/null
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
	tap "two machines" "$machines" --initiator "$board"
	;;
esac
