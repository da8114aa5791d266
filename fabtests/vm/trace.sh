# SPDX-License-Identifier: BSD-2-Clause
# The packets of durable writes, as rxe sends them; trace.awk judges them.
# shellcheck shell=sh
# shellcheck disable=SC2154

tracing=/sys/kernel/tracing
# rxe_xmit_packet(qp, pkt, skb): pkt->hdr, at offset 24, points to the packet's
# header: opcode, queue pair and number, and for writes and reads address, key
# and length. In a FLUSH these three are 4 bytes later.
probe='p:tx rxe_xmit_packet op=+0(+24(%si)):u8 qpn=+4(+24(%si)):x32
	psn=+8(+24(%si)):x32 vah=+12(+24(%si)):x32 val=+16(+24(%si)):x32
	rkey=+20(+24(%si)):x32 len=+24(+24(%si)):x32
	flen=+28(+24(%si)):x32'

# Each change of probes changes the kernel's code, which an emulated processor
# may miss. So set the probe only once, without the scheduler's probes, and keep
# it.
probed() {
	mount -t tracefs trace $tracing 2>/dev/null
	echo 0 >$tracing/tracing_on
	echo 0 >$tracing/options/record-cmd
	echo "$probe" | tr -s '\n\t' ' ' >$tracing/kprobe_events &&
		echo 1 >$tracing/events/kprobes/tx/enable
}

# traced METHOD SIZE VARIABLE...: make 256 durable writes, with a mark before
# each
traced() {
	method=$1 size=$2
	shift 2
	echo >$tracing/trace
	echo 1 >$tracing/tracing_on
	env -C /root/disk FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4 "$@" \
		"$here/fabtests/benchmarks/suite" probe --base verbs --durable \
		--address 10.9.0.1 --dax "$dax" --sizes "$size" \
		--method "$method" --mark $tracing/trace_marker
	code=$?
	echo 0 >$tracing/tracing_on
	awk -v method="${method%%-*}" -f "$here/trace.awk" $tracing/trace
	return $code
}

packets() { # METHOD SIZE VARIABLE...
	name="packets of $2 bytes"
	traced "$@" >/tmp/traced 2>&1
	code=$?
	grep '^#' /tmp/traced >&3
	tap "$name" sh -c "cat /tmp/traced; exit $code"
}

note "packets"
probed >$out 2>&1
if report "$([ $? = 0 ] && echo ok || echo not ok)" "a probe where rxe transmits"
then
	# The placement and the fence of rxe are declared, not measured.
	printf '%s\n' '[host]' 'assert placement = dma-memory' \
		'assert fence = yes' >/tmp/by-dma
	for size in 64 4096; do
		packets agent-clwb $size FI_OFI_RPMEM_NATIVE=0
		[ ! -x flush ] || packets native $size
		# Keep small writes out of requests: they would need no fence.
		packets fence $size FI_OFI_RPMEM_INLINE=0 FI_OFI_RPMEM_NATIVE=0 \
			FI_OFI_RPMEM_OPERATOR=/tmp/by-dma
	done
fi
