# SPDX-License-Identifier: BSD-2-Clause
# A program that uses only libibverbs: over native FLUSH, and through
# libibvrpmem_preload.
# shellcheck shell=sh

lib=$here/prov/verbs/.libs/libibvrpmem_preload.so
broken=$here/fabtests/fault/.libs/libibvrpmem_preload-fault.so
shadow_lib=$here/fabtests/fault/.libs/libshadow.so
# Hide the device's FLUSH, and change nothing else.
without=FI_OFI_RPMEM_NATIVE=0

# flushes KIND VARIABLE=VALUE...: run both processes of the program
flushes() {
	kind=$1
	shift
	tap "wr_flush, $kind" env "$@" ./preload rxe0 1 "/tmp/wr.$kind" \
		./preload --target rxe0 1 "$dax"
	[ "$kind" = native ] || [ "$kind" = silence ] ||
		t "wr_flush, the log of $kind and of native" \
			diff "/tmp/wr.$kind" /tmp/wr.native
}

# judged LIBRARY VARIABLE=VALUE...: print arguments for env, which make the
# program compare with the bytes that the agent has flushed
judged() {
	rm -f /tmp/wr.shadow
	truncate -s 2M /tmp/wr.shadow
	judge_lib=$1
	shift
	echo "LD_PRELOAD=$shadow_lib:$judge_lib" $without "$@" \
		"RPMEM_SHADOW=$dax:/tmp/wr.shadow" SHADOW=/tmp/wr.shadow
}

# finds_loss: without the flush, only missing bytes are reported as wrong
finds_loss() {
	# shellcheck disable=SC2046
	env $(judged "$broken" RPMEM_FAULT=skip-flush) ./preload rxe0 1 \
		/tmp/wr.broken ./preload --target rxe0 1 "$dax" >/tmp/wr.said
	cat /tmp/wr.said
	grep -q '^not ok - flushed bytes are kept' /tmp/wr.said &&
		diff /tmp/wr.broken /tmp/wr.native
}

# stays_alone: the other end has no preload library, so no operation may succeed
stays_alone() {
	env LD_PRELOAD="$lib" $without ./preload rxe0 1 /tmp/wr.alone \
		env -u LD_PRELOAD ./preload --target rxe0 1 "$dax" \
		>/tmp/wr.said 2>&1
	cat /tmp/wr.said /tmp/wr.alone
	grep -q 'one line: 2 ours remote invalid request error' /tmp/wr.alone &&
		! grep -q 'success, opcode [89]' /tmp/wr.alone &&
		grep -q 'no process at .* has queue pair .* preloaded' /tmp/wr.said
}

note "the preload"
if [ -x preload ]; then
	flushes native A=1
	flushed 10 env LD_PRELOAD="$lib" ./flush rxe0 1 "$dax" \
		$trace/trace_marker >/tmp/flushed 2>&1
	tap "wr_flush, a device that has it" cat /tmp/flushed
	if [ "$domain" = adr ]; then
		# shellcheck disable=SC2046
		flushes agent $(judged "$lib")
		long "wr_flush, the agent's loss is found" finds_loss
		agent=A=1
	else
		flushes delivery LD_PRELOAD="$lib" $without
		agent=FI_OFI_RPMEM_METHOD=agent-sfence
		flushes agent LD_PRELOAD="$lib" $without $agent
	fi
	flushes silence LD_PRELOAD="$lib" $without $agent SILENCE=1 \
		FI_OFI_RPMEM_TIMEOUT=2000
	agent="LD_PRELOAD=$lib $without $agent"
	example durable native_flush "something to keep"
	long "wr_flush, the other end has no preload" stays_alone
else
	skip "the preload" "rdma-core of this release has no FLUSH"
fi
