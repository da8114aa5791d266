#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_pool over restarts of its target: fi_rpmemd is killed, its pool
# becomes what msync had covered, and fi_rpmemd starts again. The client reads
# back every byte that it wrote, and every committed byte survives the last
# kill.
# usage: pool_restart.sh [KILLS]
set -u
kills=${1:-6}
[ -z "${RP_SANITIZE:-}" ] || kills=2
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter pool_restart
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export RP_SEED

die()
{
	echo "FAIL: $* (RP_SEED=$RP_SEED)"
	cat daemon.out writer.out
	exit 1
}

: >vol.safe
serve_vol --create 64M
skip_without_disk vol daemon.out
stop
cp vol vol.safe
serve_vol
: >writer.out
../fabtests/fault/pool_writer 127.0.0.1:"$port":vol power \
	$((kills * 100 + 100)) write >writer.out 2>&1 &
writer=$!
pids="$pids $writer"
for i in $(seq "$kills"); do
	while ! grep -q "^round $((i * 100))$" writer.out; do
		kill -0 $writer 2>/dev/null || die "the writer ended"
		sleep 0.02
	done
	cut_power
	serve_vol
done
wait $writer || die "writer"
n=$(sed -n 's/^\([0-9]*\) reconnects.*/\1/p' writer.out)
[ "${n:-0}" -ge 1 ] || die "no connection was lost: nothing was tested"
cut_power
serve_vol
../fabtests/fault/pool_writer 127.0.0.1:"$port":vol power \
	$((kills * 100 + 100)) check >writer.out 2>&1 || die "after the last kill"
echo "$n reconnects, seed $RP_SEED"

# Closing frees outstanding operations: the address sanitizer checks that.
for _ in $(seq 5); do
	../fabtests/fault/pool_writer 127.0.0.1:"$port":vol power 0 drop \
		>writer.out 2>&1 || die "closing with operations outstanding"
done

# Durable writes that were outstanding when the target died are durable when
# they complete, not only placed again. The script kills both ends at the first
# such completion.
for i in $(seq 3); do
	: >writer.out # the writer may truncate the file after the read below
	../fabtests/fault/pool_writer 127.0.0.1:"$port":vol power 16000 \
		ledger >writer.out 2>&1 &
	writer=$!
	pids="$pids $writer"
	while ! grep -q "^acked $((i * 50))$" writer.out; do
		kill -0 $writer 2>/dev/null || die "the writer ended"
		sleep 0.02
	done
	cut_power
	before=$(wc -l <writer.out)
	serve_vol
	while [ "$(wc -l <writer.out)" -eq "$before" ]; do
		kill -0 $writer 2>/dev/null || die "the writer ended"
	done
	kill -9 $daemon $writer
	wait $daemon $writer 2>/dev/null
	cp vol.safe vol
	serve_vol
	# A partial last line has the number of an earlier record.
	grep "^acked [0-9]*$" writer.out |
		../fabtests/fault/pool_writer 127.0.0.1:"$port":vol power 0 \
			found >found.out 2>&1 || {
		cat found.out
		die "a durable write is lost"
	}
	cat found.out
done
