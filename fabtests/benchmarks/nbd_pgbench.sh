#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# pgbench (TPC-B-like) with data on the local disk, and pg_wal, in turns: on the
# local disk; on a pool of the same disk; on a pool in memory that emulates
# persistent memory (clwb). Prints medians of transactions a second and their ratios.
# usage: fabtests/benchmarks/nbd_pgbench.sh --build DIR [--rounds N] [--seconds N]
set -u
rounds=3 seconds=8 scale=5 clients=4
bin=/usr/lib/postgresql/15/bin

die() { echo "nbd_pgbench.sh: $*" >&2; exit 2; }

# as_postgres COMMAND...: run a command of PostgreSQL as its user.
as_postgres() {
	runuser -u postgres -- "$@" >>"$work/log" 2>&1 && return
	tail -n 20 "$work/log" >&2
	die "$* failed"
}

# start NAME, stop NAME: the cluster of this name.
start() {
	as_postgres $bin/pg_ctl -w -D "$work/$1" -l "$work/$1/log" \
		-o "-k $work/$1 -c listen_addresses=" start
}

stop() {
	as_postgres $bin/pg_ctl -w -D "$work/$1" -m fast stop
}

# create NAME [WAL]: make a cluster whose pg_wal is in the folder WAL.
create() {
	install -d -o postgres -g postgres "$work/$1" ${2:+"$2"}
	as_postgres $bin/initdb -A trust -D "$work/$1" ${2:+--waldir "$2/wal"}
	start "$1"
	as_postgres pgbench -h "$work/$1" -i -q -s $scale postgres
	stop "$1"
}

# measure NAME: print NAME and the transactions a second.
measure() {
	start "$1"
	runuser -u postgres -- pgbench -h "$work/$1" -c $clients -j 2 \
		-T "$seconds" -n postgres >"$work/out" 2>&1 ||
		{ cat "$work/out" >&2; die "pgbench failed"; }
	sed -n "s/^tps = \([0-9.]*\) .*/$1 \1/p" "$work/out"
	stop "$1"
}

# The part that runs while both pools are mounted: $RPMEM_MOUNT is the emulated one.
if [ "${1-}" = mounted ]; then
	disk=$2 work=$3 rounds=$4 seconds=$5
	create local
	create pool "$disk/pg"
	create clwb "$RPMEM_MOUNT/pg"
	for _ in $(seq "$rounds"); do
		for name in local pool clwb; do
			measure $name
		done
	done | tee "$work/results"
	exit "${PIPESTATUS[0]}"
fi

takes="rounds seconds"
# shellcheck source=fabtests/benchmarks/options.sh
. "$(dirname "$0")/options.sh"
[ "$(id -u)" = 0 ] || die "a mount needs root"
for tool in $bin/initdb pgbench runuser unshare; do
	command -v "$tool" >/dev/null ||
		die "$tool is missing; on Debian: apt-get install postgresql-15 postgresql-client-15"
done
if [ -z "${RP_UNSHARED-}" ]; then
	RP_UNSHARED=1 exec unshare --mount --pid --fork --kill-child --mount-proc \
		"$0" --build "$build" --rounds "$rounds" --seconds "$seconds"
fi
on=$(cd "$(dirname "$0")/../.." && pwd)/util/on_rpmem.sh
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d /var/tmp/pgbench.XXXXXX) || exit 99
memory=$(mktemp -d /dev/shm/pgbench.XXXXXX) || exit 99
trap 'rm -rf --one-file-system "$work" "$memory"' EXIT
chmod 755 "$work"
install -m 666 /dev/null "$work/log"
export RPMEM_BUILD=$build FI_TCP_IFACE=lo
# shellcheck disable=SC2016 # for the shell behind the first mount
"$on" --size 512M "$work/disk" -- sh -c '
	disk=$RPMEM_MOUNT
	export FI_OFI_RPMEM_EMULATE=1
	exec "$0" --class none --size 512M "$1" -- "$2" mounted "$disk" "$3" "$4" "$5"' \
	"$on" "$memory/pool" "$self" "$work" "$rounds" "$seconds" || exit 1
uptime
python3 - "$work/results" <<'P'
import statistics
import sys

got = {}
for line in open(sys.argv[1], encoding="ascii"):
    name, value = line.split()
    got.setdefault(name, []).append(float(value))
local = statistics.median(got["local"])
for name, bar in ("pool", 0.80), ("clwb", 2.0):
    tps = statistics.median(got[name])
    print(f"pg_wal {name:5} {tps:8.0f} tps  local {local:8.0f}  "
          f"pgbench_{name}_vs_local {tps / local:5.2f}  bar {bar:.2f}")
P
