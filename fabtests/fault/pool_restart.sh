#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_pool over restarts of its target: fi_rpmemd is killed, its pool
# becomes what msync had covered, and it starts again. Every byte that was
# written is read back, and every committed byte outlives the last kill.
# usage: pool_restart.sh [KILLS]
set -u
kills=${1:-6}
[ -z "${RP_SANITIZE:-}" ] || kills=2
dir=$(mktemp -d ./poolrestart.XXXXXX) || exit 99
cd "$dir" || exit 99
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export RP_SEED
daemon= writer=
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
shadow=$PWD/../fabtests/fault/.libs/libshadow.so

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	[ -z "$writer" ] || kill -9 "$writer" 2>/dev/null
	cd .. && rm -rf "$dir"
}
trap finish EXIT

die()
{
	echo "FAIL: $* (RP_SEED=$RP_SEED)"
	cat daemon.out writer.out
	exit 1
}

# serve: start the daemon, always on the same port.
serve()
{
	rm -f ready
	RPMEM_SHADOW=vol:vol.safe LD_PRELOAD="${RP_PRELOAD:-}$shadow" \
		../util/fi_rpmemd --port "$port" --port-file ready vol \
		>>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 400); do
		[ -e ready ] && break
		kill -0 $daemon 2>/dev/null || die "fi_rpmemd ended"
		sleep 0.05
	done
	[ -e ready ] || die "fi_rpmemd is not ready"
	port=$(cat ready)
}

# cut: the daemon dies, and of its pool only what msync covered is left.
cut()
{
	kill -9 $daemon
	wait $daemon 2>/dev/null
	cp vol.safe vol
}

: >daemon.out
port=0
../util/fi_rpmemd --port 0 --port-file ready --create 64M vol >daemon.out 2>&1 &
daemon=$!
for _ in $(seq 400); do
	[ -e ready ] && break
	sleep 0.05
done
class=power
grep -q '^vol .* power ' daemon.out || class=process
kill $daemon && wait $daemon
daemon=
if [ $class != power ]; then
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
fi
cp vol vol.safe
serve
: >writer.out
../fabtests/fault/pool_writer 127.0.0.1:"$port":vol $class \
	$((kills * 100 + 100)) write >writer.out 2>&1 &
writer=$!
for i in $(seq "$kills"); do
	while ! grep -q "^round $((i * 100))$" writer.out; do
		kill -0 $writer 2>/dev/null || die "the writer ended"
		sleep 0.02
	done
	cut
	serve
done
wait $writer || die "writer"
writer=
n=$(sed -n 's/^\([0-9]*\) reconnects.*/\1/p' writer.out)
[ "${n:-0}" -ge 1 ] || die "no connection was lost: nothing was tested"
cut
serve
../fabtests/fault/pool_writer 127.0.0.1:"$port":vol $class \
	$((kills * 100 + 100)) check >writer.out 2>&1 || die "after the last kill"
echo "$n reconnects, seed $RP_SEED"

# Closing frees what is outstanding: the address sanitizer looks.
for _ in $(seq 5); do
	../fabtests/fault/pool_writer 127.0.0.1:"$port":vol $class 0 drop \
		>writer.out 2>&1 || die "closing with operations outstanding"
done

# Durable writes that were outstanding when the target died are durable when
# they complete, not only placed again: the script kills both ends at the first
# such completion.
for i in $(seq 3); do
	: >writer.out # the writer may truncate it later than it is read below
	../fabtests/fault/pool_writer 127.0.0.1:"$port":vol $class 16000 \
		ledger >writer.out 2>&1 &
	writer=$!
	while ! grep -q "^acked $((i * 50))$" writer.out; do
		kill -0 $writer 2>/dev/null || die "the writer ended"
		sleep 0.02
	done
	cut
	before=$(wc -l <writer.out)
	serve
	while [ "$(wc -l <writer.out)" -eq "$before" ]; do
		kill -0 $writer 2>/dev/null || die "the writer ended"
	done
	kill -9 $daemon $writer
	wait $daemon $writer 2>/dev/null
	writer=
	cp vol.safe vol
	serve
	# A last line that is cut has the number of an earlier record.
	grep "^acked [0-9]*$" writer.out |
		../fabtests/fault/pool_writer 127.0.0.1:"$port":vol $class 0 \
			found >found.out 2>&1 || {
		cat found.out
		die "a durable write is lost"
	}
	cat found.out
done
