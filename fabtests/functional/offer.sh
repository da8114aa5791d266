#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmemd offers a pool with the class that its region has now: a class that
# was lowered stays lowered after the fact is restored, until a restart. Clients
# that have the pool open are refused their next commit, with the cause, or go on,
# as they require.
set -u
src=$(cd "${srcdir:-.}" && pwd)
dir=$(mktemp -d ./offer.XXXXXX) || exit 99
cd "$dir" || exit 99
daemon='' clients='' n=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
export FI_OFI_RPMEM_OPERATOR="$PWD/operator"

finish()
{
	for pid in $daemon $clients; do
		kill -9 "$pid" 2>/dev/null
	done
	cd .. && rm -rf "$dir"
}
trap finish EXIT

# state LINE...: write the operator's file, and replace it at once
state()
{
	printf '%s\n' "$@" >operator.new && mv operator.new operator
}

offered()
{
	../util/fi_rpmem_info --target "127.0.0.1:$(cat port)" | grep -q "^vol .* $1 "
}

# ok WHAT COMMAND...: the command must succeed
ok()
{
	what=$1 n=$((n + 1))
	shift
	if "$@"; then
		echo "ok $n - $what"
		return
	fi
	echo "not ok $n - $what"
	../util/fi_rpmem_info --target "127.0.0.1:$(cat port)"
	cat daemon.out power.out process.out 2>/dev/null
	exit 1
}

# soon COMMAND...: repeat the command for up to a minute
soon()
{
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	return 1
}

state '# nothing'
FI_LOG_LEVEL=warn ../util/fi_rpmemd --port 0 --port-file port --create 1M vol \
	>daemon.out 2>&1 &
daemon=$!
until [ -e port ]; do
	if ! kill -0 $daemon 2>/dev/null; then
		cat daemon.out
		exit 1
	fi
	sleep 0.02
done
if ! grep -q '^vol .* power ' daemon.out; then
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
fi
ok "the class of the registration is offered" offered power

# client CLASS: open the pool, commit, wait for the file go, and commit 5 times
cat >client.py <<'P'
import os, sys, time
sys.path.insert(0, sys.argv[1])
import rpmem_pool
name, at = sys.argv[3], int(sys.argv[4])
with rpmem_pool.open(sys.argv[2], required=getattr(rpmem_pool, name.upper())) as pool:
    pool.write(b"x" * 64, at, durable=True)
    print("is open", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.02)
    try:
        for i in range(5):
            pool.write(b"y" * 64, at)
            pool.commit()
            print("committed", pool.info()["reached"], flush=True)
    except OSError as e:
        print("refused:", e, flush=True)
P
client()
{
	LD_LIBRARY_PATH=../util/.libs:${LD_LIBRARY_PATH:-} timeout 120 \
		python3 client.py "$src/util/python" "127.0.0.1:$(cat port):vol" \
		"$1" "$2" >"$1.out" 2>&1 &
	clients="$clients $!"
}
with_clients=
if command -v python3 >/dev/null && [ -z "${RP_SANITIZE:-}" ]; then
	with_clients=1
	client power 0
	client process 4096
	ok "a client that requires power opens it" soon grep -q 'is open' power.out
	ok "so does one that requires process" soon grep -q 'is open' process.out
else
	echo "ok - # SKIP the clients are Python programs, which a sanitizer cannot run"
fi
state '[host]' 'limit class = process'
ok "then the weaker class that the region has" soon offered process
if [ -n "$with_clients" ]; then
	: >go
	for pid in $clients; do
		wait "$pid"
	done
	clients=
	change='class was power, now process: operator was # nothing, now \[host\] limit class = process'
	ok "the next commit of the first is refused, with the change and the remedy" \
		grep -q "^refused: .*its class is weaker than required: $change.*or require less" \
		power.out
	ok "and none is acknowledged" eval '! grep committed power.out'
	client power 0
	wait $clients
	clients=
	ok "a later client is refused, with the change" \
		grep -q "is of class process, weaker than required (power): $change" power.out
	ok "the second goes on" [ "$(grep -c '^committed process$' process.out)" = 5 ]
fi
state '# nothing again'
sleep 1
ok "also when the fact is strong again" offered process
ok "with the log's line and its cause" grep -q \
	'class power .* has become process (.*): operator was # nothing, now \[host\] limit class = process' daemon.out
echo "1..$n"
