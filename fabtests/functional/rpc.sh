#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_rpc: its examples, its page, errors, and 64 clients of one server.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter rpc

# ok NAME: print this result, unless a step has failed
ok()
{
	[ $failed != 0 ] || echo "ok - $1"
}

# skip NAME FILE: print a skip; its reason is the last line of FILE
skip()
{
	echo "ok - $1 # SKIP $(tail -n 1 "$2")"
}

check_library rpc 'rpc_server rpc_client'

edges=../fabtests/functional/rpc_edges
$edges refuse ./refused || fail "a server that must be refused"
ok "the library, its page and its errors"
$edges away ./away >out 2>&1
case $? in
0) ok "the server ends while a client waits" ;;
77) skip "the server ends while a client waits" out ;;
*) fail "the server ends while a client waits: $(cat out)" ;;
esac
(
	ulimit -n 100
	./rpc_server ./few 0 sums.few
) >out 2>&1 && fail "64 clients with 100 descriptors"
grep -q '64 clients needs 320 descriptors, .* may have 100' out ||
	fail "few descriptors: $(cat out)"
[ -e few.0 ] && fail "few descriptors: a file was made"

# Methods that this memory can be forced to use, and secrets.
(umask 077 && echo a secret of calls >secret && echo another secret >other)
method()
{
	FI_OFI_RPMEM_METHOD=$2 $edges method "$1" "$2" ./secret ./other >out 2>&1
	case $? in
	0) ok "method $2" ;;
	77) skip "method $2" out ;;
	*) fail "method $2: $(cat out)" ;;
	esac
}
method ./disk agent-msync
if ! shm=$(mktemp -d /dev/shm/rpc.XXXXXX 2>out); then
	skip "methods on tmpfs" out
else
	printf '[path %s]\nassert fence = yes\n' "$shm" >operator
	chmod 600 operator
	for name in agent-clwb agent-sfence delivery fence; do
		FI_OFI_RPMEM_OPERATOR=$PWD/operator method "$shm/$name" $name
	done
fi

LD_PRELOAD=${RP_PRELOAD:-}$top/fabtests/functional/.libs/libearly_client.so \
	./rpc_server ./calls 0 sums >server.out 2>&1 &
server=$!
pids=$server
if ! await $server grep -q '^port' server.out; then
	grep -q 'weaker than required\|cannot be made durable' server.out || fail "$(cat server.out)"
	skip "64 clients" server.out
	exit $failed
fi
grep -q '^early client: connected' server.out ||
	fail "a client of a server that starts: $(cat server.out)"
where=127.0.0.1:$(sed -n 's/^port //p' server.out):calls
[ "$(./rpc_client "$where" 1 2 3)" = 6 ] || fail "sum"
./rpc_client "$where.0" 1 2>out && fail "another pool is taken for calls"
grep -q "calls.0.0" out || fail "$(cat out)"

# 64 clients call at the same time; a 65th is refused, and served later. ofi_rxm
# allocates 16 KiB for each queue entry of each client: use short queues.
FI_OFI_RXM_TX_SIZE=64 FI_OFI_RXM_RX_SIZE=64 FI_OFI_RXM_MSG_TX_SIZE=64 \
	FI_OFI_RXM_MSG_RX_SIZE=64 ../fabtests/functional/rpc_many "$where" 64 ||
	fail "64 clients"
# Too few descriptors for new clients: they get an error, the server goes on.
limit=$(ulimit -n)
if ! prlimit --pid $server --nofile=150:"$limit" 2>out; then
	skip "64 clients with 150 descriptors" out
else
	FI_OFI_RXM_TX_SIZE=64 FI_OFI_RXM_RX_SIZE=64 FI_OFI_RXM_MSG_TX_SIZE=64 \
		FI_OFI_RXM_MSG_RX_SIZE=64 ../fabtests/functional/rpc_many \
		"$where" 64 >out 2>&1 && fail "64 clients with 150 descriptors"
	grep -q 'server has too few file desc\|has file descriptors left' out ||
		fail "150 descriptors: $(cat out)"
	prlimit --pid $server --nofile="$limit:$limit"
	ok "64 clients with 150 descriptors"
fi
[ "$(./rpc_client "$where" 4)" = 4 ] || fail "a place that was given up"
ok "64 clients"
exit $failed
