#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# pgbench against PostgreSQL with pg_wal on a 2-of-3 group of pools, and against
# PostgreSQL with two synchronous standbys, 'ANY 1 (a, b)', in turns: a commit is
# durable in two of three logs with both. "alone" is the second one's primary
# with synchronous_commit=local, which waits for no standby. All is on the file
# system of the build folder and on loopback. Needs root.
# usage: fabtests/benchmarks/pg_quorum.sh --build DIR [--rounds N] [--seconds N]
#                                         [--clients N]
set -u
rounds=3 seconds=8 clients=4 takes="rounds seconds clients"
src=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=fabtests/benchmarks/options.sh
. "$src/fabtests/benchmarks/options.sh"
[ "$(id -u)" = 0 ] || { echo "pg_quorum.sh: needs root" >&2; exit 2; }
bin=/usr/lib/postgresql/15/bin
[ -x $bin/pgbench ] || { echo "pg_quorum.sh: PostgreSQL 15 is missing" >&2; exit 2; }

export FI_TCP_IFACE=lo FI_PROVIDER_PATH=$build/prov/rpmem/.libs RPMEM_BUILD=$build
export LC_ALL=C
dir=$(mktemp -d /var/tmp/pgquorum.XXXXXX) || exit 99
chmod 755 "$dir"
cd "$dir" || exit 99
# shellcheck source=util/trust.sh
. "$src/util/trust.sh"
trust_folder "$build/util/fi_rpmem_info" .
daemons="" disk=""
as() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
stop() { [ ! -f "$1/postmaster.pid" ] || as $bin/pg_ctl -D "$1" -m fast -w stop >/dev/null; }
finish() {
	for d in a b primary; do
		stop "$dir/$d"
	done
	[ -z "$disk" ] || { kill $disk; wait $disk; } 2>/dev/null
	for p in $daemons; do
		kill "$p" && wait "$p"
	done 2>/dev/null
	cd / && rm -rf "$dir"
}
trap finish EXIT
fail() { echo "pg_quorum.sh: $*" >&2; tail -n 20 "$dir"/*.log >&2; exit 1; }

# start FOLDER OPTION...: start PostgreSQL there, and wait for it
start() {
	local folder=$1

	shift
	as $bin/pg_ctl -D "$folder" -l "$dir/$(basename "$folder").log" -w -o "$*" \
		start >/dev/null || fail "PostgreSQL in $folder"
}
setup() {
	for kv in listen_addresses= "unix_socket_directories=$dir" fsync=on \
		max_wal_size=96MB min_wal_size=80MB shared_buffers=64MB \
		wal_level=replica max_wal_senders=4; do
		echo "${kv%%=*} = '${kv#*=}'"
	done
}
port=$(python3 -c 'import socket
s = [socket.socket() for _ in range(4)]
for x in s: x.bind(("127.0.0.1", 0))
print(*(x.getsockname()[1] for x in s))')
read -r port_g port_p port_a port_b <<<"$port"

install -d -o postgres -g postgres pg
touch setup.log && chown postgres pg && chmod 777 "$dir"
as $bin/initdb -A trust -D pg/base >/dev/null || fail initdb
setup >>pg/base/postgresql.conf
start "$dir/pg/base" -p "$port_p"
as $bin/pgbench -h "$dir" -p "$port_p" -i -s 5 -q postgres >setup.log 2>&1 || fail pgbench -i
stop "$dir/pg/base"
as cp -a pg/base pg/group
mv pg/base primary && chown postgres primary

# The group: pg_wal is in the file system on it.
for pool in a b c; do
	"$build/util/fi_rpmemd" --port 0 --port-file port.$pool --create 256M \
		pool_$pool >daemon_$pool.log 2>&1 &
	daemons="$daemons $!"
	until [ -s port.$pool ]; do
		kill -0 $! 2>/dev/null || fail "fi_rpmemd"
		sleep 0.05
	done
done
group="127.0.0.1:$(cat port.a):pool_a,127.0.0.1:$(cat port.b):pool_b"
group="$group,127.0.0.1:$(cat port.c):pool_c;k=2"
cat >on_group <<U
mv $dir/pg/group/pg_wal \$RPMEM_MOUNT/ && ln -s \$RPMEM_MOUNT/pg_wal $dir/pg/group/ || exit
sync
setpriv --reuid postgres --regid postgres --init-groups $bin/postgres \\
	-D $dir/pg/group -p $port_g >$dir/group.log 2>&1 &
trap "kill -INT \$!" TERM
wait \$!
wait \$!
U
RPMEM_GROUP=$group "$src/util/on_rpmem.sh" -- sh "$dir/on_group" >on_rpmem.log 2>&1 &
disk=$!
until $bin/pg_isready -q -h "$dir" -p "$port_g"; do
	kill -0 $disk 2>/dev/null || fail "PostgreSQL on the group"
	sleep 0.2
done

# The rival: a primary with two standbys.
start "$dir/primary" "-p $port_p -c listen_addresses=127.0.0.1"
for standby in "a $port_a" "b $port_b"; do
	s=${standby% *}
	as $bin/pg_basebackup -h 127.0.0.1 -p "$port_p" -D "$dir/$s" -X stream -R \
		-d "application_name=$s" >>setup.log 2>&1 || fail "the standby $s"
	start "$dir/$s" "-p ${standby#* }"
done
sql() { as $bin/psql -XAtq -h "$dir" -p "$port_p" postgres -c "$1"; }
sql "alter system set synchronous_standby_names = 'ANY 1 (a, b)'" || fail standbys
sql "select pg_reload_conf()" >/dev/null
until [ "$(sql "select count(*) from pg_stat_replication where sync_state = 'quorum'")" = 2 ]; do
	sleep 0.2
done

# tps PORT [LEVEL]: transactions a second
tps() {
	PGOPTIONS="-c synchronous_commit=${2:-on}" as $bin/pgbench -h "$dir" \
		-p "$1" -c "$clients" -j 2 -T "$seconds" -n postgres 2>>setup.log |
		sed -n 's/^tps = \([0-9.]*\).*/\1/p'
}
grep -h '^pool_a ' daemon_a.log
echo "load $(cut -d' ' -f1-3 /proc/loadavg); $rounds rounds of $seconds s, $clients clients"
for _ in $(seq "$rounds"); do
	tps "$port_g" >>group.tps
	tps "$port_p" >>standbys.tps
	tps "$port_p" local >>alone.tps
done
median() { sort -n "$1.tps" | sed -n "$(((rounds + 1) / 2))p"; }
[ "$(cat ./*.tps | wc -l)" = $((3 * rounds)) ] || fail "a run of pgbench"
for n in group standbys alone; do
	echo "$n: $(paste -sd' ' $n.tps), median $(median $n)"
done
echo "group / standbys: $(awk "BEGIN { printf \"%.2f\", $(median group) / $(median standbys) }")"
echo "load $(cut -d' ' -f1-3 /proc/loadavg)"
