#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A replicated key-value store, three servers, one client, 16 B keys and 64 B
# values, two stores in turns:
#   files  librpmem_raft on three fi_rpmemd, and libraft's own files, both on the
#          file system of this folder
#   lines  librpmem_raft on three fi_rpmemd with emulated persistent memory
#          (pools in /dev/shm), and libraft with a log in memory alone, which a
#          crash loses
# usage, in the build folder: raft.sh [ROUNDS [PORT]]
set -u
rounds=${1:-41} port=${2:-9700}
src=$(cd "${srcdir:-..}" && pwd)
dir=$(mktemp -d ./raftbench.XXXXXX) || exit 1
shm=$(mktemp -d /dev/shm/raftbench.XXXXXX) || exit 1
top=$PWD
cd "$dir" || exit 1
export FI_PROVIDER_PATH="$top/prov/rpmem/.libs" FI_TCP_IFACE=lo
export LD_LIBRARY_PATH="$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
pids=

end_all()
{
	# shellcheck disable=SC2086 # a list
	[ -z "$pids" ] || kill -9 $pids 2>/dev/null
	pids=
}

finish()
{
	end_all
	cd "$top" && rm -rf "$dir" "$shm"
}
trap finish EXIT
. "$src/util/trust.sh"
trust_folder "$top/util/fi_rpmem_info" .

# build NAME ARG...: build raft_kv
build()
{
	name=$1
	shift
	gcc -O2 -D_GNU_SOURCE -I"$src/include" -o "$name" "$@" \
		"$src/docs/examples/raft_kv.c" \
		-L"$top/util/.libs" -lrpmem_raft -lraft -luv || exit 1
}
build raft_kv
gcc -O2 -I"$src/include" -c "$src/fabtests/benchmarks/raft_memory.c" || exit 1
build raft_memory -Draft_uv_init=raft_memory_init \
	-Drpmem_raft_init=raft_lines_init raft_memory.o

# pools FOLDER: start three daemons
pools()
{
	rm -f port?
	for i in 1 2 3; do
		"$top/util/fi_rpmemd" --port 0 --port-file port$i \
			--create 16M "$1/pool$i" >daemon$i.out 2>&1 &
		pids="$pids $!"
	done
	for i in 1 2 3; do
		for _ in $(seq 400); do
			[ -s port$i ] && break
			sleep 0.05
		done
	done
	grep -h '^pool1 ' daemon1.out
}

# server PROGRAM STORAGE ID PORT: start a server; clients connect to port PORT + ID.
server()
{
	"./$1" "$3" "$2" $(($4 + $3)) 127.0.0.1:$(($4 + 11)) \
		127.0.0.1:$(($4 + 12)) 127.0.0.1:$(($4 + 13)) \
		>"server$4-$3.out" 2>&1 &
	pids="$pids $!"
}

# compare PROGRAM FOLDER PORT: servers on the pools, and on folders, in turns
compare()
{
	for i in 1 2 3; do
		mkdir -p "$2/files$i"
		server "$1" 127.0.0.1:"$(cat port$i)":pool$i $i "$3"
		server "$1" "uv:$2/files$i" $i $(($3 + 20))
	done
	for out in server"$3"-?.out server$(($3 + 20))-?.out; do
		for _ in $(seq 400); do
			grep -q ready "$out" && break
			sleep 0.05
		done
	done
	"$top/fabtests/benchmarks/raft" $(($3 + 1)) $(($3 + 21)) "$rounds"
	end_all
}

echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
pools .
printf 'files: '
compare raft_kv . "$port"
export FI_OFI_RPMEM_EMULATE=1
pools "$shm"
printf 'lines: '
compare raft_memory "$shm" $((port + 40))
