# SPDX-License-Identifier: BSD-2-Clause
# The provider over verbs, with both processes on one rxe device. rxe writes by
# the CPU through the kernel's mapping, and can register only devdax.

# The method that the provider must choose: native if libibverbs and rxe have
# FLUSH.
by=$dax_by
[ ! -x flush ] || by=native
# Variables that ofi_rxm needs over rxe: docs/guarantees.md, "Over verbs".
over="env -C /root/disk RPMEM_BASE=verbs RPMEM_NODE=10.9.0.1 RPMEM_POOL=$dax
	RPMEM_FSDAX=/mnt/fsdax RPMEM_METHOD=$by
	FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4"
device=$here/fabtests/fault/device
private_conn=$here/fabtests/functional/private_conn
# Hide the device's FLUSH. Then this method makes devdax durable.
by_cpu="FI_OFI_RPMEM_NATIVE=0 RPMEM_METHOD=$dax_by"

# row METHOD CLASS STATEMENT...: without the device's FLUSH, the operator's
# statements must lead to this method and class
row() {
	how=$1 class=$2
	shift 2
	printf '%s\n' '[host]' "$@" >/tmp/operator
	# shellcheck disable=SC2086
	tap "verbs, $*" $over FI_OFI_RPMEM_OPERATOR=/tmp/operator \
		FI_OFI_RPMEM_NATIVE=0 RPMEM_METHOD="$how" \
		RPMEM_CLASS="$class" "$device" "the method"
}

# probed METHOD CASES VARIABLE...: check which bytes the kernel wrote back
probed() {
	how=$1 cases=$2
	shift 2
	mount -t tracefs trace $trace 2>/dev/null
	# shellcheck disable=SC2086
	flushed "$cases" $over "$@" "$here/fabtests/vm/native" \
		"$how" $trace/trace_marker >/tmp/flushed 2>&1
	code=$?
	tap "verbs, written back by $how" sh -c "cat /tmp/flushed; exit $code"
}

# The provider uses FLUSH if libibverbs and rxe have it, else the agent.
by_device() {
	probed $by 9
	if [ $by = native ]; then
		# shellcheck disable=SC2086
		tap "verbs, durable writes, native" $over EXPECT=native "$private_conn"
		probed native 9 FI_OFI_RPMEM_METHOD=native
		printf '%s\n' '[host]' 'limit native = no' >/tmp/operator
		probed agent-clwb 9 FI_OFI_RPMEM_OPERATOR=/tmp/operator
	else
		# shellcheck disable=SC2086
		fails "verbs, native is forced where there is none" $over \
			FI_OFI_RPMEM_METHOD=native PRIVATE_CONN_ONLY=writes "$private_conn"
	fi
}

# pingpong PROVIDER: send messages between two of its connected endpoints
pingpong() {
	set -- timeout 300 fi_pingpong -p "$1" -e msg -d rxe0 -I 20 -S 65536
	"$@" >$out.server 2>&1 &
	server=$!
	sleep 2
	"$@" 10.9.0.1
	code=$?
	kill $server 2>/dev/null
	[ $code = 0 ] || cat $out.server
	return $code
}

note "the provider over verbs"
# Capabilities that the provider does not layer are the base's, unchanged.
if [ "$domain" = adr ]; then
	long "verbs, connected endpoints" pingpong verbs
	long "verbs, connected endpoints, under us" pingpong "verbs;ofi_rpmem"
fi
# The placement and the fence of rxe are declared, not measured.
printf '%s\n' '[host]' 'assert placement = dma-memory' 'assert fence = yes' \
	>/tmp/by-dma
# Simulated power cuts: the shadow has the bytes that the agent has flushed.
shadow="FI_OFI_RPMEM_NATIVE=0 RPMEM_SHADOW_LIB=$RPMEM_SHADOW_LIB"
no_flush="$shadow RPMEM_FAULT=skip-flush RPMEM_EXPECT_LOSS=1"
# shellcheck disable=SC2086
{
	tap "verbs, connected endpoints of ours" $over \
		"$here/fabtests/functional/connected"
	tap "verbs" $over "$device"
	if [ "$domain" = adr ]; then
		tap "verbs, connected endpoints, power cuts" $over "$faulty" \
			RPMEM_MSG=1 $shadow "$cut" -n 5
		tap "verbs, connected endpoints, without the flush" $over \
			"$faulty" RPMEM_MSG=1 $no_flush "$cut" -n 10
		[ $by != native ] || tap "verbs, basic, native" $over "$basic"
		tap "verbs, basic, agent" $over $by_cpu "$basic"
		tap "verbs, basic, fence" $over FI_OFI_RPMEM_NATIVE=0 \
			FI_OFI_RPMEM_OPERATOR=/tmp/by-dma RPMEM_METHOD=fence \
			"$basic"
		tap "verbs, order" $over "$here/fabtests/functional/order"
		tap "verbs, bad input" $over "$here/fabtests/fault/badinput"
		for inside in 0 4096; do
			tap "verbs, durable writes, agent, $inside" $over \
				EXPECT=agent-clwb FI_OFI_RPMEM_NATIVE=0 \
				FI_OFI_RPMEM_INLINE=$inside "$private_conn"
		done
		tap "verbs, power cuts" $over FI_OFI_RPMEM_INLINE=0 $shadow \
			"$cut" -n 5
		tap "verbs, power cuts, stores past the caches" $over \
			"$faulty" $shadow "$cut" -n 5
		tap "verbs, power cuts without the flush" $over "$faulty" \
			$no_flush "$cut" -n 10
		tap "verbs, durable writes, fence" $over EXPECT=fence \
			FI_OFI_RPMEM_OPERATOR=/tmp/by-dma \
			FI_OFI_RPMEM_INLINE=0 FI_OFI_RPMEM_NATIVE=0 "$private_conn"
		by_device
		row delivery power 'assert domain = cpu-caches'
		row delivery power 'assert domain = system'
		row agent-sfence power 'assert placement = dma-memory' \
			'assert fence = no' 'assert domain = system'
		row fence power 'assert placement = dma-memory' \
			'assert fence = yes' 'assert domain = system'
		row fence power 'assert placement = dma-memory' \
			'assert fence = yes'
		row fence power 'assert placement = dma-cache' \
			'assert fence = yes' 'assert domain = cpu-caches'
		row agent-clwb power 'assert placement = dma-cache' \
			'assert fence = yes'
		row agent-clwb power 'assert placement = dma-memory' \
			'assert fence = no'
		row agent-sfence power 'assert placement = dma-cache' \
			'assert fence = no' 'assert domain = cpu-caches'
		row agent-clwb none 'limit domain = none'
		row agent-clwb process 'limit class = process'
	else
		tap "verbs, connected endpoints, power cuts" $over RPMEM_MSG=1 \
			$by_cpu "$cut" -c -n 5
		tap "verbs, power cuts" $over $by_cpu "$cut" -c -n 5
		tap "verbs, durable writes, delivery" $over \
			FI_OFI_RPMEM_INLINE=0 FI_OFI_RPMEM_NATIVE=0 "$private_conn"
	fi
}
