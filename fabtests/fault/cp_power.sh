#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Bytes that fi_rpmem_cp reports as durable were flushed: the test compares them
# with a shadow of the pool that only a preloaded msync writes. Cases: the
# daemon is killed, and the copy is resumed by hand or by itself; SIGTERM stops
# the daemon; a flush fails.
set -u
rounds=6
[ "${RP_LONG:-0}" != 1 ] || rounds=60
[ -z "${RP_SANITIZE:-}" ] || rounds=2
dir=$(mktemp -d ./cp_power.XXXXXX) || exit 99
cd "$dir" || exit 99
bin=../util
libs=$PWD/../fabtests/fault/.libs
daemon=
P=0
failed=0
size=12000000
# The command that the copy prints names the program behind libtool's wrapper.
LD_LIBRARY_PATH=$PWD/../util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
unset FI_PROVIDER FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd .. && rm -rf "$dir"
}
trap finish EXIT

fail()
{
	echo "FAIL: $*"
	failed=1
}

# serve [VAR=VALUE...]: start a daemon for the pool, always on the same port.
# msync writes the pool's shadow.
serve()
{
	rm -f port
	env LD_PRELOAD="${RP_PRELOAD:-}$libs/libshadow.so" RPMEM_SHADOW=pool:shadow "$@" \
		$bin/fi_rpmemd --port $P --port-file port --create $size pool \
		>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 200); do
		[ -e port ] && break
		sleep 0.05
	done
	[ -e port ] || { fail "no daemon"; cat daemon.out; exit 1; }
	P=$(cat port)
	if ! grep -q '^pool .* power ' daemon.out; then
		echo "SKIP: not on a file system that ofi_rpmem lists"
		exit 77
	fi
}

# ended SIGNAL CODE: stop the daemon with SIGNAL; its exit code must be CODE
ended()
{
	kill -"$1" $daemon
	wait $daemon 2>/dev/null
	code=$?
	daemon=
	[ $code -eq "$2" ] || fail "the daemon ended with $code"
}

# Does the medium hold all acknowledged bytes?
survived()
{
	acked=$(tail -n 1 acks 2>/dev/null)
	[ "${acked:-0}" -eq 0 ] || cmp -s -n "$acked" -i 65536:0 shadow src
}

# broken_copy N [OPTION...]: start a copy, $job, and kill the daemon after N
# acknowledgements.
broken_copy()
{
	n=$1
	shift
	: >acks
	$bin/fi_rpmem_cp --chunk 64K --ack-log acks "$@" src 127.0.0.1:$P:pool \
		>out 2>&1 &
	job=$!
	while [ "$(wc -l <acks)" -lt "$n" ] && kill -0 $job 2>/dev/null; do
		sleep 0.002
	done
	ended KILL 137
}

# resumed: run the command that the interrupted copy has printed.
resumed()
{
	sh -c "$(sed -n 's/^resume:  //p' out)" >out 2>&1 ||
		{ fail "not resumed, $*"; cat out; }
}

mkdir fault || exit 99
ln -s "$libs/librpmem-fault-fi.so" fault/ || exit 99
# A short timeout saves time; a daemon under a sanitizer replies more slowly.
export FI_OFI_RPMEM_TIMEOUT=2000
[ -z "${RP_SANITIZE:-}" ] || export FI_OFI_RPMEM_TIMEOUT=10000

# The daemon is killed and restarted. In odd rounds the copy continues by
# itself; in even rounds it gives up and is resumed. The shadow holds only bytes
# flushed before the kill, so all other bytes must be written and flushed again.
for round in $(seq $rounds); do
	rm -f pool shadow
	head -c $size /dev/urandom >src
	serve
	if [ $((round % 2)) = 0 ]; then
		broken_copy $((round * 3 % 20 + 1)) --timeout 1
		wait $job
		survived || fail "round $round: $acked bytes acknowledged, not flushed"
		serve
		resumed "round $round"
	else
		broken_copy $((round * 3 % 20 + 1))
		survived || fail "round $round: $acked bytes acknowledged, not flushed"
		serve
		wait $job || { fail "round $round: not completed"; cat out; }
	fi
	ended TERM 0
	cmp -s -n $size -i 65536:0 shadow src ||
		fail "round $round: copied to the end, not all of it flushed"
done

# Negative control: without the flush the test must find bytes missing.
rm -f pool shadow
serve FI_PROVIDER_PATH="$PWD/fault" RPMEM_FAULT=skip-flush
broken_copy 3 --timeout 1
wait $job
survived && fail "nothing is flushed, and all acknowledged bytes survive"

# On SIGTERM the daemon replies to the commits that it has accepted. A small
# window leaves more bytes to copy. A flush logs its line before its delay, so a
# flush that begins after some acknowledgements leads to one more
# acknowledgement.
rm -f pool shadow
serve FI_PROVIDER_PATH="$PWD/fault" RPMEM_FAULT=slow-flush RPMEM_FAULT_MS=400 \
	RPMEM_FAULT_LOG=flushes
: >acks
$bin/fi_rpmem_cp --chunk 64K --window 4 --ack-log acks src 127.0.0.1:$P:pool \
	>out 2>&1 &
job=$!
while ! [ -s acks ] && kill -0 $job 2>/dev/null; do
	sleep 0.01
done
before=$(wc -l <acks)
flushes=$(wc -l <flushes)
while [ "$(wc -l <flushes)" -eq "$flushes" ] && kill -0 $job 2>/dev/null; do
	sleep 0.01
done
ended TERM 0
[ "$(wc -l <acks)" -gt "$before" ] || fail "accepted commits got no reply"
survived || fail "$acked bytes acknowledged while stopping, not flushed"
serve
wait $job || { fail "not completed behind SIGTERM"; cat out; }
ended TERM 0
cmp -s -n $size -i 65536:0 shadow src || fail "not all of it flushed behind SIGTERM"

# A failed flush ends the copy. The bytes flushed before are durable, and the
# rest is written again.
rm -f pool shadow acks
serve FI_PROVIDER_PATH="$PWD/fault" RPMEM_FAULT=fail-flush RPMEM_FAULT_EVERY=3
$bin/fi_rpmem_cp --chunk 64K --ack-log acks src 127.0.0.1:$P:pool >out 2>&1
[ $? -eq 9 ] || fail "a failed flush is not reported"
survived || fail "$acked bytes acknowledged before a failed flush, not flushed"
[ "${acked:-0}" -gt 0 ] && [ "$acked" -lt $size ] || fail "acknowledged: $acked"
grep -q "^durable: the first $acked of $size bytes" out || fail "another prefix"
grep -q "disk of pool 'pool' on 127.0.0.1 has failed" out || { fail "no reason"; cat out; }
ended KILL 137
serve
resumed "behind a failed flush"
ended TERM 0
cmp -s -n $size -i 65536:0 shadow src || fail "not all of it flushed again"

exit $failed
