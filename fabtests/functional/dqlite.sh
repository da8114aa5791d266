#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Tests librpmem_raft_preload with Debian's dqlite, which knows nothing of it:
# its errors, and dqlite_lives.py.
# usage: dqlite.sh [KILLS]
set -u
kills=${1:-4}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-200}
[ -z "${RP_SANITIZE:-}" ] || kills=1
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
[ -e util/librpmem_raft_preload.la ] || {
	echo "SKIP: built without librpmem_raft; on Debian: apt-get install libraft-dev libuv1-dev"
	exit 77
}
pkg-config --exists dqlite sqlite3 || {
	echo "SKIP: no dqlite; on Debian 12: apt-get install libdqlite-dev"
	exit 77
}
enter dqlite
preload_raft=${RP_PRELOAD:-}$top/util/.libs/librpmem_raft_preload.so
# shellcheck disable=SC2046,SC2086 # flags are lists
${CC:-cc} ${CFLAGS:-} -Wall -Wextra -Werror -o dqlite_server \
	"$src/fabtests/functional/dqlite_server.c" \
	$(pkg-config --cflags --libs dqlite sqlite3) || exit 1
nm -D --undefined-only "$(ldd dqlite_server | awk '/libdqlite/ { print $3 }')" |
	grep -q ' raft_uv_init$' || {
	echo "SKIP: this dqlite does not call libraft's raft_uv_init()"
	exit 77
}
# Ports below the range from which the kernel chooses.
base=$((10000 + $$ % 20000))
serve --port 0 --create 1M vol used other
skip_without_disk vol daemon.out
printf used | dd of=used bs=1 seek=65536 conv=notrunc 2>/dev/null
mkdir folder stock new

# server POOL ID FOLDER: a server with the preload
server()
{
	env ${1:+"RPMEM_RAFT_POOL=127.0.0.1:$P:$1"} LD_PRELOAD="$preload_raft" \
		timeout -s KILL 60 ./dqlite_server "$2" 127.0.0.1:"$base" "$3"
}

# lives FOLDER [NAME=VALUE]...: a server starts and ends in order
lives()
{
	folder=$1
	shift
	: >server.out
	env "$@" ./dqlite_server 1 127.0.0.1:"$base" "$folder" >server.out 2>&1 &
	pid=$!
	pids="$pids $pid"
	await $pid grep -q ready server.out || fail "$*: $(cat server.out)"
	kill $pid
	wait $pid || fail "$* ended with $?: $(cat server.out)"
}

says "RPMEM_RAFT_POOL is not set" server "" 1 folder
says "no pool" server none 1 folder
says "is a group" server "vol,127.0.0.1:$P:other" 1 folder
says "holds something else" server used 1 folder
says "none/metadata1: No such file" server vol 1 none
export RPMEM_CLASS=fire
says "RPMEM_CLASS is 'fire'" server vol 1 folder
unset RPMEM_CLASS
# Without the preload the pool stays as it is, and the folder has the state.
cksum vol >before
lives stock RPMEM_RAFT_POOL=127.0.0.1:"$P":vol
cksum vol | diff before - || fail "dqlite without the preload wrote to the pool"
says "has the files of a server" server vol 1 stock
# With it the same pool has the state, in two folders.
for folder in folder new; do
	lives $folder LD_PRELOAD="$preload_raft" RPMEM_RAFT_POOL=127.0.0.1:"$P":vol
	[ "$(ls $folder)" = metadata1 ] || fail "$folder has $(ls $folder)"
done
cksum vol | diff -q before - >/dev/null && fail "dqlite has not used the pool"
says "is that of server 1, and this is server 2" server vol 2 new
says "create: 12:" ./dqlite_server 1 127.0.0.1:"$base" folder # RAFT_CORRUPT
stop
# clusters KILLS [FAULT]
clusters()
{
	python3 "$src/fabtests/functional/dqlite_lives.py" "$PWD/dqlite_server" \
		"$top/util/.libs/librpmem_raft_preload.so" "$top/util/fi_rpmemd" \
		"$top/fabtests/fault/.libs/libshadow.so" "$1" "$base" ${2:+"$2"}
}
clusters "$kills" || fail "dqlite_lives.py"
# Acknowledged rows that no flush has reached are lost.
rm -rf pool* port* folder[123]
mkdir faulty
ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" faulty
says "acknowledged and lost" clusters 0 skip-flush
exit $failed
