# SPDX-License-Identifier: BSD-2-Clause
# The verbs shim: runs one program over every kind of flush, and compares the
# logs.
# shellcheck shell=sh

shim=$here/fabtests/vm/shim
mount -t tracefs trace $trace 2>/dev/null

# over MODE [VARIABLE=VALUE...]: run the cases, and check what the kernel wrote
# back
over() {
	mode=$1
	shift
	flushed 14 env "$@" "$shim" "$mode" rxe0 1 "$dax" \
		$trace/trace_marker /tmp/log.$mode >/tmp/flushed 2>&1
	code=$?
	tap "shim, $mode" sh -c "cat /tmp/flushed; exit $code"
}

note "the shim"
# On this device a read makes bytes durable only if the operator states it.
printf '[host]\nassert domain = cpu-caches\n' >/tmp/operator
chmod 644 /tmp/operator
believe=FI_OFI_RPMEM_OPERATOR=/tmp/operator
if [ -x flush ]; then
	over raw
	over native
fi
over read $believe
over send $believe
# The agent gets requests if no cheaper method suffices, or if it is forced.
agent=
[ "$domain" = adr ] || agent=FI_OFI_RPMEM_METHOD=agent-sfence
over agent A=1 $agent
over agent-send A=1 $agent
# A spin budget longer than these cases, so that the agent does not park.
over agent A=1 $agent FI_OFI_RPMEM_SPIN=2000000
for mode in raw native read agent agent-send; do
	if [ "$mode" != raw ] && [ "$mode" != native ] || [ -x flush ]; then
		t "shim, the log of $mode and of send" \
			diff /tmp/log.$mode /tmp/log.send
	fi
done
is "shim, lines of the log" "$(wc -l </tmp/log.send)" 42
if [ "$domain" = adr ]; then
	is "shim, no read stands for a persistent flush" "$(
		"$shim" read rxe0 1 "$dax" /dev/null /dev/null |
			grep -o "Operation not supported"
	)" "Operation not supported"
else
	over read A=1
	t "shim, the same without a statement" diff /tmp/log.read /tmp/log.send
fi

# Programs built with another release's libibverbs run with this one.
for other in bookworm trixie; do
	[ -x shim.$other ] || continue
	shim=$here/shim.$other
	[ ! -x flush ] || over native
	over send $believe
	over agent A=1 $agent
	for mode in native send agent; do
		[ "$mode" = native ] && [ ! -x flush ] ||
			t "shim, built on $other, the log of $mode" \
				diff /tmp/log.$mode /tmp/log.read
	done
done

# example WANTED NAME ARG...: compare the initiator's output; the target must
# end with the initiator
example() {
	want=$1 name=$2
	shift 2
	# shellcheck disable=SC2086
	env ${agent:-A=1} timeout 60 "$here/examples/$name" rxe0 1 7471 \
		"$dax" >$out.target 2>&1 &
	target=$!
	for _ in $(seq 100); do
		grep -q ':1D2F 00000000:0000 0A' /proc/net/tcp && break
		sleep 0.1
	done
	# shellcheck disable=SC2086
	env ${agent:-A=1} timeout 60 "$here/examples/$name" rxe0 1 7471 \
		127.0.0.1 "$@" >$out 2>&1
	wait $target || echo "the target ended with $?" >>$out
	note "$(head -1 $out)"
	is "the example $name" "$(sed 1d $out | tr '\n' ' ')" "$want "
}
example durable write_flush "something to keep"
example "durable up to byte 12 durable up to byte 16" append one two
example "durable up to byte 22" append three
