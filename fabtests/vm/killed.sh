# SPDX-License-Identifier: BSD-2-Clause
# A machine that dies while records are written over verbs, and its next life.
# Emulation has no CPU cache: this is about restart and recovery.
# shellcheck shell=sh

seed=20191021
case $(parameter rp.stage) in
write)
	rxe_netdev
	ndctl create-namespace -f -e namespace1.0 -m devdax
	rdma link add rxe0 type rxe netdev eth0
	sleep 1
	export RPMEM_BASE=verbs RPMEM_NODE=10.9.0.1 \
		FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4
	mkfifo card
	truncate -s 16384 acks
	tr '\0' '\1' <acks >all
	"$cut" --target "$(echo /dev/dax*.0)" $seed >card </dev/zero &
	"$cut" --initiator 9 $seed <card 9<>acks &
	# Until this machine is killed: the first that is not acknowledged.
	while sleep 0.1; do
		cp acks now
		left=$(cmp now all | sed 's/.* \([0-9]*\), line.*/\1/')
		note "acked ${left:-16385} no more"
	done
	;;
check)
	n=$(($(parameter rp.acked) - 1))
	t "the namespace is there again" test -c /dev/dax1.0
	t "$n records that were acknowledged are there" \
		"$cut" --check /dev/dax1.0 $seed $n
	fails "not the same records" "$cut" --check /dev/dax1.0 7 $n
	;;
esac
