#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_raft: its page, its example, errors, and raft_lives.py.
# usage: raft.sh [KILLS]
set -u
kills=${1:-4}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-400}
[ -z "${RP_SANITIZE:-}" ] || kills=1
src=$(cd "${srcdir:-.}" && pwd)
top=$PWD
cc=${CC:-cc}
failed=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
[ -e "$top/util/librpmem_raft.la" ] || {
	echo "SKIP: built without librpmem_raft; on Debian: apt-get install libraft-dev libuv1-dev"
	exit 77
}
dir=$(mktemp -d ./raft.XXXXXX) || exit 99
cd "$dir" || exit 99
daemon=
finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd "$top" && rm -rf "$dir"
}
trap finish EXIT

fail()
{
	echo "FAIL: $*"
	failed=1
}

# says TEXT COMMAND...: it fails with this text.
says()
{
	text=$1
	shift
	if "$@" >out 2>&1; then
		fail "$* succeeded"
	elif ! grep -q -- "$text" out; then
		fail "$*: no '$text' in: $(cat out)"
	fi
}

# The example of the page and the one in docs, in C; the header as C++.
awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
     on && /^\.Bd -literal$/ { text = 1; next }
     /^\.Ed/ { text = 0 }
     text { gsub(/\\e/, "\\"); print }' "$src/man/rpmem_raft.3" >page.c
cp "$src/docs/examples/raft_kv.c" .
libs=$top/util/.libs
for example in page raft_kv; do
	# shellcheck disable=SC2086 # flags are lists
	$cc ${CFLAGS:-} -D_GNU_SOURCE -Wall -Wextra -Werror -I"$src/include" \
		-o $example $example.c -L"$libs" -lrpmem_raft -lraft -luv ||
		fail "$example does not compile"
done
if command -v "${CXX:-c++}" >/dev/null; then
	echo '#include <rpmem_raft.h>' | ${CXX:-c++} -x c++ -Wall -Wextra \
		-Werror -I"$src/include" -fsyntax-only - || fail "header as C++"
fi
[ "$(nm -D --defined-only "$libs/librpmem_raft.so" | sed -n 's/.* T //p' |
	grep -v '^_')" = rpmem_raft_init ] || fail "what the library exports"

export LD_LIBRARY_PATH="$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
../util/fi_rpmemd --port 0 --port-file port --create 64K vol small used \
	>daemon.out 2>&1 &
daemon=$!
for _ in $(seq 400); do
	[ -s port ] && break
	kill -0 $daemon 2>/dev/null || break
	sleep 0.05
done
grep -q '^vol .* power ' daemon.out || {
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}
P=$(cat port)
# Ports below those that the kernel gives away.
base=$((10000 + $$ % 20000))
says "no pool" ./raft_kv 1 127.0.0.1:"$P":none $base 127.0.0.1:$((base + 1))
says "is a group" ./page 127.0.0.1:"$P":vol,127.0.0.1:"$P":small 127.0.0.1:$base
says "no connections are accepted" ./page 127.0.0.1:"$P":vol localhost:$base
printf used | dd of=used bs=1 seek=65536 conv=notrunc 2>/dev/null
says "holds something else" ./page 127.0.0.1:"$P":used 127.0.0.1:$base
says "usage" ./raft_kv 2 127.0.0.1:"$P":vol $base 127.0.0.1:$((base + 1))
# A server alone elects itself, and has its entries after a restart.
for run in 1 2; do
	./page 127.0.0.1:"$P":vol 127.0.0.1:$((base + 1)) >page.out 2>&1 ||
		fail "page: $(cat page.out)"
	grep -q "^$run committed\$" page.out || fail "page: $(cat page.out)"
done
kill $daemon && wait $daemon
daemon=
python3 "$src/fabtests/functional/raft_lives.py" "$PWD/raft_kv" \
	"$top/util/fi_rpmemd" "$top/fabtests/fault/.libs/libshadow.so" \
	"$kills" "$base" || fail "raft_lives.py"
exit $failed
