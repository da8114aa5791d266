#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The disk of one pool hangs, first when the pool's file grows, then when a
# client opens the pool exclusively: clients of other pools are served
# meanwhile. The disk is a fault injection point, which opens a fifo: the disk
# hangs until a reader opens the fifo.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter hung_disk

# until_true COMMAND...: repeat the command until it succeeds.
until_true()
{
	for _ in $(seq 600); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.05
	done
	fail "never: $*"
}

# works N: the daemon has N threads, the permanent ones included.
works()
{
	# shellcheck disable=SC2012 # numbers
	[ "$(ls /proc/$daemon/task | wc -l)" -eq "$1" ]
}

# copied POOL: a client can copy to the pool.
copied()
{
	timeout 60 ../util/fi_rpmem_cp file "127.0.0.1:$(cat port):$1" >out 2>&1 ||
		{ fail "a client of pool $1, $2"; cat out; }
}

# open_exclusively: a client in the background opens pool y.
open_exclusively()
{
	rm -f opened
	python3 - "127.0.0.1:$(cat port):y" "$src/util/python" >python.out 2>&1 <<'P' &
import sys

sys.path.insert(0, sys.argv[2])
import rpmem_pool

with rpmem_pool.open(sys.argv[1], exclusive=True) as pool:
    pool.write(b"mine", 0, durable=True)
    open("opened", "w").close()
P
	client=$!
}

head -c 300000 /dev/urandom >file
mkfifo hung
RPMEM_FAULT=slow-grow,slow-settle RPMEM_FAULT_LOG=hung \
	../fabtests/fault/fi_rpmemd_faults --create 1M --port 0 --port-file port x y \
	>daemon.out 2>&1 &
daemon=$!
pids=$daemon
until_true test -e port
copied x 'at first'
# shellcheck disable=SC2012 # numbers
idle=$(ls /proc/$daemon/task | wc -l)

truncate -s +1M x
kill -HUP $daemon
until_true works $((idle + 1))
copied y 'while x grows'
copied x 'while it grows'
grep -q "pool 'x' has" daemon.out && fail "the fifo does not stop the growth"
exec 4<>hung
until_true grep "pool 'x' has 2 MiB now" daemon.out
copied x 'behind its growth'
exec 4<&-
echo "ok 1 - a pool grows while others are served"

if ! command -v python3 >/dev/null || [ -n "${RP_SANITIZE:-}" ]; then
	echo "ok 2 - an exclusive opening # SKIP no python3, or a sanitizer"
	exit $failed
fi
until_true works "$idle"
open_exclusively
until_true works $((idle + 1))
copied x 'while y is opened'
[ -e opened ] && fail "the fifo does not stop the opening"
# A client whose timeout is shorter than the set-up's own 7 seconds waits for
# these, so the exclusive client has waited for longer.
python3 - "127.0.0.1:$(cat port):y" "$src/util/python" >short.out 2>&1 <<'P' &&
import sys

sys.path.insert(0, sys.argv[2])
import rpmem_pool

rpmem_pool.open(sys.argv[1], timeout=1)
P
	fail "a client with a short timeout opens the pool"
grep -q 'has not replied in time; if it lives, it still writes back' short.out ||
	{ fail "the reason of a short timeout"; cat short.out; }
[ -e opened ] && fail "the opening waits for no disk"
exec 4<>hung
wait $client || { fail "the exclusive client"; cat python.out; }
[ -e opened ] || { fail "the opening"; cat python.out; }
copied y 'behind its owner'
exec 4<&-
echo "ok 2 - a pool is opened exclusively while others are served"

# The daemon ends only after its thread has ended.
until_true works "$idle"
open_exclusively
until_true works $((idle + 1))
kill $daemon
until_true grep 'stopping' daemon.out
sleep 1 # a daemon that does not wait ends meanwhile
grep -q '^State:.*[RSD]' /proc/$daemon/status ||
	fail "the daemon does not wait"
exec 4<>hung
wait $daemon || fail "exit code $? of a daemon that ends meanwhile"
daemon=''
kill $client 2>/dev/null
echo "ok 3 - the daemon ends behind the thread"
exit $failed
