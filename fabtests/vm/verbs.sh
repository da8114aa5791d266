# SPDX-License-Identifier: BSD-2-Clause
# The provider over verbs, both processes on one rxe, which places by CPU through
# the kernel's mapping: devdax is what it takes.
# shellcheck shell=sh

# ofi_rxm over rxe: see docs/guarantees.md, "Over verbs".
over="env -C /root/disk RPMEM_BASE=verbs RPMEM_NODE=10.9.0.1 RPMEM_POOL=$dax
	RPMEM_FSDAX=/mnt/fsdax RPMEM_METHOD=$dax_by
	FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4"
device=$here/fabtests/fault/device
linked=$here/fabtests/functional/linked
own="# connections of our own" # as a line of the operator's file

# row METHOD CLASS STATEMENT...: what the operator's file makes of the device
row() {
	how=$1 class=$2 connect=0
	shift 2
	for line; do [ "$line" = "$own" ] && connect=1; done
	printf '%s\n' '[host]' "$@" >/tmp/operator
	tap "verbs, $*" $over FI_OFI_RPMEM_OPERATOR=/tmp/operator \
		FI_OFI_RPMEM_CONNECT=$connect FI_OFI_RPMEM_NATIVE=0 \
		RPMEM_METHOD="$how" \
		RPMEM_CLASS="$class" "$device" "the method"
}

# probed METHOD CASES VARIABLE...: what the kernel writes back for it
probed() {
	how=$1 cases=$2
	shift 2
	mount -t tracefs trace $trace 2>/dev/null
	# shellcheck disable=SC2086
	flushed "$cases" $over FI_OFI_RPMEM_CONNECT=1 "$@" "$here/fabtests/vm/native" \
		"$how" $trace/trace_marker >/tmp/flushed 2>&1
	code=$?
	tap "verbs, written back by $how" sh -c "cat /tmp/flushed; exit $code"
}

# Where libibverbs and rxe have FLUSH; else the agent, which is said.
by_device() {
	if [ -x flush ]; then
		probed native 9
		# shellcheck disable=SC2086
		tap "verbs, connections of our own, native" $over \
			EXPECT=native FI_OFI_RPMEM_CONNECT=1 "$linked"
		probed native 9 FI_OFI_RPMEM_METHOD=native
		printf '%s\n' '[host]' 'limit native = no' >/tmp/operator
		probed agent-clwb 9 FI_OFI_RPMEM_OPERATOR=/tmp/operator
	else
		probed agent-clwb 9
		fails "verbs, native is forced where there is none" \
			$over FI_OFI_RPMEM_CONNECT=1 FI_OFI_RPMEM_METHOD=native \
			LINKED_ONLY=writes "$linked"
	fi
}

# pingpong PROVIDER: messages between two connected endpoints of it
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
# What is not layered over is the base's own, and works as it does there.
if [ "$domain" = adr ]; then
	long "verbs, connected endpoints" pingpong verbs
	long "verbs, connected endpoints, under us" pingpong "verbs;ofi_rpmem"
fi
# Commits over a program's own connections.
# shellcheck disable=SC2086
{
	tap "verbs, connected endpoints of ours" $over \
		"$here/fabtests/functional/connected"
	if [ "$domain" = adr ]; then
		tap "verbs, connected endpoints, power cuts" $over "$faulty" \
			RPMEM_MSG=1 RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" \
			"$cut" -n 5
		printf '%s\n' '[host]' 'assert placement = dma-memory' \
			'assert fence = yes' >/tmp/operator
		tap "verbs, the same, fenced" $over "$faulty" \
			FI_OFI_RPMEM_OPERATOR=/tmp/operator RPMEM_MSG=1 \
			RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" "$cut" -n 5
		tap "verbs, connected endpoints, without the flush" $over \
			"$faulty" RPMEM_MSG=1 RPMEM_FAULT=skip-flush \
			RPMEM_EXPECT_LOSS=1 \
			RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" "$cut" -n 10
	else
		tap "verbs, connected endpoints, power cuts" $over RPMEM_MSG=1 \
			"$cut" -c -n 5
	fi
}
# shellcheck disable=SC2086
{
	tap "verbs" $over "$device"
	if [ "$domain" = adr ]; then
		tap "verbs, basic" $over "$basic"
		tap "verbs, bad input" $over "$here/fabtests/fault/badinput"
		tap "verbs, power cuts" $over FI_OFI_RPMEM_INLINE=0 \
			RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" "$cut" -n 5
		tap "verbs, power cuts, stores past the caches" $over "$faulty" \
			RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" "$cut" -n 5
		tap "verbs, power cuts without the flush" $over "$faulty" \
			RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" \
			RPMEM_FAULT=skip-flush RPMEM_EXPECT_LOSS=1 "$cut" -n 10
		# Without connections that tell of breaks nothing is fenced.
		row delivery power 'assert domain = cpu-caches'
		row delivery power 'assert domain = system'
		row agent-clwb power 'assert placement = dma-cache' \
			'assert fence = yes'
		row agent-clwb power 'assert placement = dma-memory' \
			'assert fence = yes'
		row agent-sfence power 'assert placement = dma-cache' \
			'assert fence = yes' 'assert domain = cpu-caches'
		row delivery power 'assert placement = dma-memory' \
			'assert domain = system'
		# With connections of our own it is.
		row fence power 'assert placement = dma-memory' \
			'assert fence = yes' "$own"
		row agent-clwb power 'assert placement = dma-cache' \
			'assert fence = yes' "$own"
		row fence power 'assert placement = dma-cache' \
			'assert fence = yes' 'assert domain = cpu-caches' "$own"
		row delivery power 'assert domain = cpu-caches' "$own"
		printf '%s\n' '[host]' 'assert placement = dma-memory' \
			'assert fence = yes' >/tmp/operator
		tap "verbs, connections of our own, fence" $over \
			FI_OFI_RPMEM_OPERATOR=/tmp/operator EXPECT=fence \
			FI_OFI_RPMEM_CONNECT=1 FI_OFI_RPMEM_INLINE=0 \
			FI_OFI_RPMEM_NATIVE=0 "$linked"
		for inside in 0 4096; do
			tap "verbs, connections of our own, agent, $inside" \
				$over EXPECT=agent-clwb FI_OFI_RPMEM_CONNECT=1 \
				FI_OFI_RPMEM_NATIVE=0 \
				FI_OFI_RPMEM_INLINE=$inside "$linked"
			tap "verbs, the same, power cuts" $over "$faulty" \
				FI_OFI_RPMEM_CONNECT=1 FI_OFI_RPMEM_NATIVE=0 \
				FI_OFI_RPMEM_INLINE=$inside \
				RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" \
				"$cut" -n 5
		done
		tap "verbs, the same without the flush" $over "$faulty" \
			RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" \
			FI_OFI_RPMEM_CONNECT=1 FI_OFI_RPMEM_NATIVE=0 \
			RPMEM_FAULT=skip-flush RPMEM_EXPECT_LOSS=1 "$cut" -n 10
		# What the device FLUSHes by itself.
		by_device
		row agent-clwb none 'limit domain = none'
		row agent-clwb process 'limit class = process'
	else
		tap "verbs, power cuts" $over "$cut" -c -n 5
		tap "verbs, connections of our own, delivery" $over \
			FI_OFI_RPMEM_CONNECT=1 FI_OFI_RPMEM_INLINE=0 \
			FI_OFI_RPMEM_NATIVE=0 "$linked"
	fi
}
