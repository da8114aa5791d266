#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Tests librpmem_raft: its page, its example, its errors, and raft_lives.py.
# usage: raft.sh [KILLS]
set -u
kills=${1:-4}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-400}
[ -z "${RP_SANITIZE:-}" ] || kills=1
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
[ -e util/librpmem_raft.la ] || {
	echo "SKIP: built without librpmem_raft; on Debian: apt-get install libraft-dev libuv1-dev"
	exit 77
}
enter raft
check_library raft raft_kv -D_GNU_SOURCE -lraft -luv
serve --port 0 --create 64K vol small used
skip_without_disk vol daemon.out
# Ports below the range from which the kernel chooses.
base=$((10000 + $$ % 20000))
says "no pool" ./raft_kv 1 127.0.0.1:"$P":none $base 127.0.0.1:$((base + 1))
says "is a group" ./page 127.0.0.1:"$P":vol,127.0.0.1:"$P":small 127.0.0.1:$base
says "no connections are accepted" ./page 127.0.0.1:"$P":vol localhost:$base
printf used | dd of=used bs=1 seek=65536 conv=notrunc 2>/dev/null
says "holds something else" ./page 127.0.0.1:"$P":used 127.0.0.1:$base
says "usage" ./raft_kv 2 127.0.0.1:"$P":vol $base 127.0.0.1:$((base + 1))
# A single server elects itself, and has its entries after a restart.
for run in 1 2; do
	./page 127.0.0.1:"$P":vol 127.0.0.1:$((base + 1)) >page.out 2>&1 ||
		fail "page: $(cat page.out)"
	grep -q "^$run committed\$" page.out || fail "page: $(cat page.out)"
done
stop
python3 "$src/fabtests/functional/raft_lives.py" "$PWD/raft_kv" \
	"$top/util/fi_rpmemd" "$top/fabtests/fault/.libs/libshadow.so" \
	"$kills" "$base" || fail "raft_lives.py"
exit $failed
