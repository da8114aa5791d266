#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A replicated key-value store, three servers, one client, 16 B keys and 64 B
# values: librpmem_raft on three fi_rpmemd, and libraft's own files on the file
# system of this folder, in turns.
# usage, in the build folder: raft.sh [ROUNDS [PORT]]
set -u
rounds=${1:-41} port=${2:-9700}
src=$(cd "${srcdir:-..}" && pwd)
dir=$(mktemp -d ./raftbench.XXXXXX) || exit 1
top=$PWD
cd "$dir" || exit 1
export FI_PROVIDER_PATH="$top/prov/rpmem/.libs" FI_TCP_IFACE=lo
export LD_LIBRARY_PATH="$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
pids=

finish()
{
	# shellcheck disable=SC2086 # a list
	kill -9 $pids 2>/dev/null
	cd "$top" && rm -rf "$dir"
}
trap finish EXIT
. "$src/util/trust.sh"
trust_folder "$top/util/fi_rpmem_info" .
gcc -O2 -D_GNU_SOURCE -I"$src/include" -o raft_kv "$src/docs/examples/raft_kv.c" \
	-L"$top/util/.libs" -lrpmem_raft -lraft -luv || exit 1
for i in 1 2 3; do
	"$top/util/fi_rpmemd" --port 0 --port-file port$i --create 16M pool$i \
		>daemon$i.out 2>&1 &
	pids="$pids $!"
	mkdir files$i
done
for i in 1 2 3; do
	for _ in $(seq 400); do
		[ -s port$i ] && break
		sleep 0.05
	done
done
# server STORAGE ID PORT: start a server; clients connect to port PORT + ID.
server()
{
	./raft_kv "$2" "$1" $(($3 + $2)) 127.0.0.1:$(($3 + 11)) \
		127.0.0.1:$(($3 + 12)) 127.0.0.1:$(($3 + 13)) \
		>"server$3-$2.out" 2>&1 &
	pids="$pids $!"
}
for i in 1 2 3; do
	server 127.0.0.1:"$(cat port$i)":pool$i $i "$port"
	server uv:files$i $i $((port + 20))
done
for out in server*.out; do
	for _ in $(seq 400); do
		grep -q ready "$out" && break
		sleep 0.05
	done
done
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
"$top/fabtests/benchmarks/raft" $((port + 1)) $((port + 21)) "$rounds"
