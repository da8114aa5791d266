#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_rpc: its examples, its page, errors, and 64 clients of one server.
set -u
src=$(cd "${srcdir:-.}" && pwd)
dir=$(mktemp -d ./rpc.XXXXXX) || exit 99
top=$PWD
cd "$dir" || exit 99
cc=${CC:-cc}
server= failed=0 shm=
unset FI_PROVIDER FI_OFI_RPMEM_CLASS

finish()
{
	[ -z "$server" ] || kill -9 "$server" 2>/dev/null
	cd "$top" && rm -rf "$dir" ${shm:+"$shm"}
}
trap finish EXIT

fail()
{
	echo "FAIL: $*"
	failed=1
}

awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
     on && /^\.Bd -literal$/ { text = 1; next }
     /^\.Ed/ { text = 0 }
     text { gsub(/\\e/, "\\"); print }' "$src/man/rpmem_rpc.3" >page.c
cp "$src/docs/examples/rpc_server.c" "$src/docs/examples/rpc_client.c" .
for example in page rpc_server rpc_client; do
	# shellcheck disable=SC2086 # flags are lists
	$cc ${CFLAGS:-} -Wall -Wextra -Werror -I"$src/include" -o $example \
		$example.c -L../util/.libs -lrpmem_rpc ||
		fail "$example does not compile"
done
if command -v "${CXX:-c++}" >/dev/null; then
	echo '#include <rpmem_rpc.h>' | ${CXX:-c++} -x c++ -Wall -Wextra \
		-Werror -I"$src/include" -fsyntax-only - || fail "header as C++"
fi

# Each call of the header has its place on the page, and is exported.
sed -n 's/^[a-z].*[ *]\(rpmem_rpc_[a-z_]*\)(.*/\1/p' "$src/include/rpmem_rpc.h" |
	sort -u >header
sed -n 's/^\.Nm \(rpmem_rpc_[a-z_]*\).*/\1/p' "$src/man/rpmem_rpc.3" |
	sort -u >page.names
diff header page.names || fail "the header and its page differ"
nm -D --defined-only ../util/.libs/librpmem_rpc.so | sed -n 's/.* T //p' |
	grep -v '^_' | sort >exported
diff header exported || fail "the header and the library differ"
sed -n 's/^ \(rpmem_rpc_[a-z_]*\)@.*/\1/p' "$src/debian/librpmem-rpc0.symbols" |
	sort >packaged
diff header packaged || fail "the header and the package differ"

edges=../fabtests/functional/rpc_edges
$edges refuse ./refused || fail "a server that must be refused"
$edges away ./away || [ $? = 77 ] || fail "the server ends while a client waits"
(
	ulimit -n 100
	LD_LIBRARY_PATH=$top/util/.libs ./rpc_server ./few 0 sums.few
) >out 2>&1 && fail "64 clients with 100 descriptors"
grep -q '64 clients needs 320 descriptors, .* may have 100' out ||
	fail "few descriptors: $(cat out)"
[ -e few.0 ] && fail "few descriptors: a file was made"

# Each method that this memory can be forced to, and secrets.
(umask 077 && echo a secret of calls >secret && echo another secret >other)
method()
{
	FI_OFI_RPMEM_METHOD=$2 $edges method "$1" "$2" ./secret ./other >out 2>&1
	case $? in
	0) ;;
	77) echo "$2 is not tried: $(cat out)" ;;
	*) fail "method $2: $(cat out)" ;;
	esac
}
method ./disk agent-msync
shm=$(mktemp -d /dev/shm/rpc.XXXXXX 2>/dev/null)
if [ -n "$shm" ]; then
	printf '[path %s]\nassert fence = yes\n' "$shm" >operator
	chmod 600 operator
	for name in agent-clwb agent-sfence delivery fence; do
		FI_OFI_RPMEM_OPERATOR=$PWD/operator method "$shm/$name" $name
	done
fi

export LD_LIBRARY_PATH=$top/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
LD_PRELOAD=${RP_PRELOAD:-}$top/fabtests/functional/.libs/libearly_client.so \
	./rpc_server ./calls 0 sums >server.out 2>&1 &
server=$!
for _ in $(seq 1200); do
	grep -q '^port' server.out && break
	kill -0 $server 2>/dev/null || break
	sleep 0.05
done
if ! grep -q '^port' server.out; then
	server=
	grep -q 'weaker than required' server.out || fail "$(cat server.out)"
	[ $failed = 0 ] || exit 1
	echo "SKIP: $(cat server.out)"
	exit 77
fi
grep -q '^early client: connected' server.out ||
	fail "a client of a server that starts: $(cat server.out)"
where=127.0.0.1:$(sed -n 's/^port //p' server.out):calls
[ "$(./rpc_client "$where" 1 2 3)" = 6 ] || fail "sum"
./rpc_client "$where.0" 1 2>out && fail "another pool is taken for calls"
grep -q "calls.0.0" out || fail "$(cat out)"

# 64 clients call at one time; a 65th is refused, and served later.
# ofi_rxm has 16 KiB for each entry of its queues, for each client.
FI_OFI_RXM_TX_SIZE=64 FI_OFI_RXM_RX_SIZE=64 FI_OFI_RXM_MSG_TX_SIZE=64 \
	FI_OFI_RXM_MSG_RX_SIZE=64 ../fabtests/functional/rpc_many "$where" 64 ||
	fail "64 clients"
# Descriptors that run out later: clients see an error, and the server goes on.
limit=$(ulimit -n)
if prlimit --pid $server --nofile=150:"$limit" 2>/dev/null; then
	FI_OFI_RXM_TX_SIZE=64 FI_OFI_RXM_RX_SIZE=64 FI_OFI_RXM_MSG_TX_SIZE=64 \
		FI_OFI_RXM_MSG_RX_SIZE=64 ../fabtests/functional/rpc_many \
		"$where" 64 >out 2>&1 && fail "64 clients with 150 descriptors"
	grep -q 'the server has too few file descriptors' out ||
		fail "150 descriptors: $(cat out)"
	prlimit --pid $server --nofile="$limit:$limit"
fi
[ "$(./rpc_client "$where" 4)" = 4 ] || fail "a place that was given up"
exit $failed
