#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmemd and fi_rpmem_cp: copies in both directions, during a restart of the
# daemon, resumed copies, and refused ones.
set -u
dir=$(mktemp -d ./cp.XXXXXX) || exit 99
cd "$dir" || exit 99
bin=../util
daemon=
relay=
P=
failed=0
exec 3>&1
# The printed command has the path of the program that libtool's script starts.
LD_LIBRARY_PATH=$PWD/../util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

unset FI_PROVIDER FI_PROVIDER_PATH FI_TCP_IFACE
unset FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	[ -z "$relay" ] || kill -9 "$relay" 2>/dev/null
	cd .. && rm -rf "$dir" "$shm"
}
shm=$(mktemp -d /dev/shm/rpmem-cp.XXXXXX 2>/dev/null) || shm=
trap finish EXIT

fail()
{
	echo "FAIL: $*" >&3
	failed=1
}

# Basic options: without them no later test makes sense.
die()
{
	fail "$@"
	cat daemon.out >&3
	exit 1
}

# serve ARG...: start a daemon and wait until it is ready; its pid in $daemon,
# its port in $P.
serve()
{
	rm -f port
	$bin/fi_rpmemd --port-file port "$@" >daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 200); do
		[ -e port ] && break
		kill -0 $daemon 2>/dev/null || die "fi_rpmemd $* ended"
		sleep 0.05
	done
	P=$(cat port 2>/dev/null) || die "fi_rpmemd $* is not ready"
}

# stop SIGNAL CODE: stop the daemon; its exit code must be CODE.
stop()
{
	kill -"$1" $daemon
	wait $daemon
	code=$?
	daemon=
	[ $code -eq "$2" ] || fail "fi_rpmemd ended with $code after SIG$1"
}

# expect CODE COMMAND...: check the command's exit code; its output is in out.
expect()
{
	want=$1
	shift
	timeout 120 "$@" >out 2>&1
	code=$?
	[ $code -eq "$want" ] && return
	fail "$*: exit code $code, not $want"
	cat out >&3
}

# says TEXT: the output of the last command has this text.
says()
{
	grep -q -- "$1" out && return
	fail "no '$1' in what was said:"
	cat out >&3
}

# holds OFFSET LENGTH FILE: LENGTH bytes of the pool are the first ones of FILE.
holds()
{
	cmp -s -n "$2" -i "$((65536 + $1)):0" vol0 "$3"
}

head -c 20000001 /dev/urandom >src
head -c 5000 /dev/urandom >small

# Copies in each direction.
serve --port 0 --create 24M vol0
class=
grep -q '^vol0 .* power ' daemon.out || class='--class process'
cp="$bin/fi_rpmem_cp $class"
# shellcheck disable=SC2086 # $cp is a command and its options
{
# Copy by host name, too, if names resolve: a bare chroot lacks even this name.
host=localhost
getent hosts $host >/dev/null || host=127.0.0.1
expect 0 $cp src $host:$P:vol0
says '^durable: 19.1 MiB in .* class .* by '
holds 0 20000001 src || fail "the pool does not hold what was copied"
grep -q '% \[' out && fail "a progress bar without a terminal"
expect 0 script -qec "$cp src 127.0.0.1:$P:vol0" /dev/null
says 'copying  *[0-9]*% \[#*\.*\] .*B/s'
expect 0 script -qec "$cp --quiet src 127.0.0.1:$P:vol0" /dev/null
[ -s out ] && fail "--quiet is not"
expect 0 $cp --verify --length 20000001 127.0.0.1:$P:vol0 back
says "SHA-256 $(sha256sum <src | cut -c1-64)"
cmp src back || fail "what comes back differs"
expect 0 $cp --verify --json small "[127.0.0.1]:$P:vol0@1M"
says "\"sha256\": \"$(sha256sum <small | cut -c1-64)\""
says '"durable_bytes": 5000'
holds 1048576 5000 small || fail "not at its offset"
# A file name that is no UTF-8, which JSON cannot have.
name=$(printf 'caf\351')
cp small "$name"
expect 0 $cp --json "$name" 127.0.0.1:$P:vol0@1M
says '"result": "ok"'
says '"file": "caf?"'
rm "$name"
expect 3 $cp --json "$name" 127.0.0.1:$P:vol0@1M
says '"result": "failed"'
cmp -s -n 1048576 -i 65536:0 vol0 src || fail "bytes before the offset changed"
expect 0 $cp --quiet 127.0.0.1:$P:vol0@1M back
[ "$(stat -c %s back)" -eq $((20000001 - (1 << 20))) ] ||
	fail "not up to the end of the file that was copied to the pool"
cmp -n 5000 small back || fail "what comes back from an offset differs"
expect 0 $cp --quiet small 127.0.0.1:$P:vol0
expect 0 $cp --quiet 127.0.0.1:$P:vol0@0 back
cmp small back || fail "another length than that of the last file"
# The second connection to the daemon, which fetches that length, breaks: once, or
# each time.
# relay N: pass connections to the daemon, but break N ones behind the first; its
# port in $R
relay()
{
	rm -f relay
	python3 - "$P" "$1" <<'E' &
import os
import socket
import sys
import threading

def pump(source, to):
    try:
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass

listener = socket.create_server(("127.0.0.1", 0))
with open("relay.new", "w", encoding="utf-8") as f:
    print(listener.getsockname()[1], file=f)
os.rename("relay.new", "relay")
n = 0
while True:
    client = listener.accept()[0]
    n += 1
    if 1 < n <= 1 + int(sys.argv[2]):
        client.close()
        continue
    daemon = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for pair in ((client, daemon), (daemon, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
E
	relay=$!
	for _ in $(seq 500); do
		[ -e relay ] && break
		sleep 0.02
	done
	R=$(cat relay)
}
if command -v python3 >/dev/null; then
	relay 1
	expect 0 $cp --quiet 127.0.0.1:$R:vol0 back
	cmp small back || fail "another length after a connection that broke"
	kill $relay
	relay 1000000
	expect 9 $cp --timeout 1 127.0.0.1:$R:vol0 back
	says "^fi_rpmem_cp: "
	kill $relay
	relay=
fi
# An interrupted copy stores no length: copying back then reads the whole pool.
rm -f acks
$cp --quiet --chunk 4K --window 1 --ack-log acks src 127.0.0.1:$P:vol0 \
	>out 2>&1 &
cut=$!
while ! [ -s acks ] && kill -0 $cut 2>/dev/null; do
	sleep 0.01
done
kill -9 $cut 2>/dev/null
wait $cut 2>/dev/null
expect 0 $cp --quiet 127.0.0.1:$P:vol0 back
[ "$(stat -c %s back)" -eq $((24 << 20)) ] || fail "a length of a cut copy"
rm -f acks
expect 0 $cp src 127.0.0.1:$P:vol0
expect 0 $cp small 127.0.0.1:$P:vol0@1M
grep -q "^[0-9T:+-]* fi_rpmemd: a client at 127.0.0.1 opens pool 'vol0'" \
	daemon.out || fail "a client goes unnoticed"
expect 0 $bin/fi_rpmem_info --target 127.0.0.1:$P
says '^vol0 *24 MiB  power  *agent-msync\|^vol0 *24 MiB  process  *delivery'
: >empty
expect 0 $cp empty 127.0.0.1:$P:vol0

# Requests that are refused change nothing.
sum=$(sha256sum <vol0)
expect 5 $cp src 127.0.0.1:$P:vol0@16M
says "beyond its end"
expect 5 $cp small 127.0.0.1:$P:vol0@25M
expect 5 $cp --length 25M 127.0.0.1:$P:vol0 back
expect 6 $cp src 127.0.0.1:$P:vol1
says "'vol0'"
expect 6 $cp --wait 0 src 127.0.0.1:1:vol0
says "start fi_rpmemd"
expect 3 $cp no-such-file 127.0.0.1:$P:vol0
expect 3 $cp . 127.0.0.1:$P:vol0
expect 2 $cp src vol0
expect 2 $cp 127.0.0.1:$P:vol0 127.0.0.1:$P:vol0
expect 2 $cp src 127.0.0.1:$P:vol0@x
expect 2 $cp --class gold src 127.0.0.1:$P:vol0
expect 7 $cp --secret small src 127.0.0.1:$P:vol0
[ "$(sha256sum <vol0)" = "$sum" ] || fail "a refused copy changed the pool"

# A second daemon on the same pool is refused, and its error names the first
# one.
expect 4 $bin/fi_rpmemd --port 0 vol0
says "process $daemon (.*fi_rpmemd"
expect 2 $bin/fi_rpmemd
expect 2 $bin/fi_rpmemd a/vol0 b/vol0
expect 3 $bin/fi_rpmemd --port 0 small
says "no pool"
expect 3 $bin/fi_rpmemd --port 0 vol1
says "create"
expect 7 $bin/fi_rpmemd --port 0 --listen 192.0.2.1 vol9
says "secret FILE is needed"
head -c 32 /dev/urandom | base64 >key
chmod 600 key
for any in 0.0.0.0 0 0x0 0.0 :: ::0 ::ffff:0.0.0.0; do
	expect 2 $bin/fi_rpmemd --port 0 --secret key --listen $any vol9
	says "--listen $any: clients write to this address"
done

# The tools print their version, and an error for a wrong FI_PROVIDER.
for tool in fi_rpmemd fi_rpmem_cp fi_rpmem_info fi_rpmem_bench; do
	expect 0 $bin/$tool --version
	says "^$tool [0-9]"
	expect 0 $bin/$tool --help
	says "^Usage: $tool "
done
for filter in tcp ofi_rpmem ^tcp; do
	FI_PROVIDER=$filter expect 6 $cp small 127.0.0.1:$P:vol0
	says "FI_PROVIDER='.*' excludes .* set it to 'tcp;ofi_rpmem' with the"
done
expect 2 $bin/fi_rpmemd --create 12x vol9
says "'12x' is not a size"
for size in 0 10 4095; do
	expect 2 $bin/fi_rpmemd --port 0 --create $size vol9
	says "--create $size: .* at least 4K bytes; give a number with a unit"
done

# A failed start creates no pool.
expect 6 $bin/fi_rpmemd --port $P --create 1M vol9
says "port $P .* in use"
FI_OFI_RPMEM_PORTS=$P-$P expect 6 $bin/fi_rpmemd --port 0 --create 1M vol9
says "no free port for the data of pool 'vol9': .*(FI_OFI_RPMEM_PORTS)"
expect 6 $bin/fi_rpmemd --port 0 --base nosuch --create 1M vol9
says "nosuch"
expect 6 $bin/fi_rpmemd --port 0 --listen 192.0.2.1 --secret key \
	--create 1M vol9
says "no address of this host"
expect 7 $bin/fi_rpmemd --port 0 --secret no-such-file --create 1M vol9
[ -e vol9 ] && fail "a start that failed left a new pool"

# A file named - is given as ./-; standard input has no size.
cp small ./-
expect 2 $cp - 127.0.0.1:$P:vol0
says "name a file, or \./- for"
expect 2 $cp 127.0.0.1:$P:vol0 -
says "name a file, or \./- for"
expect 0 $cp ./- 127.0.0.1:$P:vol0@2M
rm ./-

# An idle daemon sleeps.
ticks()
{
	cut -d ' ' -f 14,15 /proc/$daemon/stat | tr ' ' '+'
}
before=$(($(ticks)))
sleep 1
[ $(($(ticks) - before)) -le 3 ] || fail "busy although idle"

# SIGUSR1 and SIGHUP neither stop the daemon nor close its pools.
kill -USR1 $daemon
kill -HUP $daemon
for _ in $(seq 200); do
	grep -q 'SIGHUP: pools 1, secrets 0' daemon.out && break
	sleep 0.05
done
grep -q 'SIGHUP: pools 1, secrets 0' daemon.out || fail "SIGHUP is not logged"
expect 0 $cp small 127.0.0.1:$P:vol0

# After SIGTERM the next daemon finds the pool unchanged.
stop TERM 0
[ -e port ] && fail "the port file still exists"
serve --port 0 --create 24M vol0
grep -q 'not closed' daemon.out && fail "not closed cleanly by SIGTERM"
expect 0 $cp --length 5000 127.0.0.1:$P:vol0@1M back
cmp small back || fail "the bytes are gone"
expect 0 $cp 127.0.0.1:$P:vol0 back
cmp small back || fail "the length is gone"
stop KILL 137
expect 3 $bin/fi_rpmemd --port 0 --create 25M vol0
says "exists with 24 MiB"

# kill_during_copy FILE OPTION...: kill the daemon when part of FILE is copied;
# the copy in the background is $job.
kill_during_copy()
{
	rm -f acks
	$cp --chunk 8K --window 1 --ack-log acks "$@" 127.0.0.1:$P:vol0 \
		>out 2>&1 &
	job=$!
	for _ in $(seq 1000); do
		[ -s acks ] && break
		sleep 0.01
	done
	stop KILL 137
	acked=$(tail -n 1 acks)
	[ "$acked" -lt 20000001 ] || fail "the copy ended before the daemon"
}

# The daemon is killed during a copy and started again: the copy completes.
serve --port $P vol0
grep -q 'was not closed' daemon.out || fail "a killed daemon goes unnoticed"
tr '\0-\377' '\1-\377\0' <src >new
kill_during_copy new
serve --port $P vol0
wait $job || { fail "no copy over a restart of its target"; cat out >&3; }
says "^durable: 19.1 MiB"
holds 0 20000001 new || fail "copied over a restart, but different"
[ "$(tail -n 1 acks)" = 20000001 ] || fail "the ack log ends early"

# The daemon is not started again in time: acknowledged bytes survive, and the
# printed command copies the rest.
kill_during_copy src --timeout 1
wait $job
code=$?
acked=$(tail -n 1 acks)
[ $code -eq 9 ] || fail "exit code $code of a copy that broke off"
says "gave up after 1 s: nothing listens"
says "durable: the first $acked of 20000001 bytes"
holds 0 "$acked" src || fail "$acked bytes were acknowledged: not in the pool"
says "^resume:  .* --skip $acked "
resume=$(sed -n 's/^resume:  //p' out | sed 's/--chunk 8K --window 1//')
serve --port $P vol0
expect 0 sh -c "$resume --verify"
says "of it already there and not sent"
says "verified: SHA-256 $(sha256sum <src | cut -c1-64)"
holds 0 20000001 src || fail "resumed, but different"
[ "$(tail -n 1 acks)" = 20000001 ] || fail "the ack log ends early"
expect 0 $cp --quiet 127.0.0.1:$P:vol0 back
cmp src back || fail "resumed, and another length"

# Only bytes after --skip are sent; --verify compares all bytes.
expect 0 $cp --json --skip 19000000 new 127.0.0.1:$P:vol0
says '"durable_bytes": 20000001'
says '"sent_bytes": 1000001'
holds 0 19000000 src || fail "skipped bytes were sent"
expect 10 $cp --verify --skip 20000001 new 127.0.0.1:$P:vol0
expect 2 $cp --skip 20000002 new 127.0.0.1:$P:vol0
expect 2 $cp --skip 1 127.0.0.1:$P:vol0 back
expect 0 $cp new 127.0.0.1:$P:vol0

# Zeros of a sparse file are not sent, and replace the bytes of the pool.
truncate -s 20000001 sparse
dd if=new of=sparse bs=1M seek=9 count=1 conv=notrunc 2>/dev/null
expect 0 $cp --verify sparse 127.0.0.1:$P:vol0
says "of it zeros and not sent"
holds 0 20000001 sparse || fail "the pool has other bytes than the sparse file"
expect 0 $cp --json --chunk 4096 sparse 127.0.0.1:$P:vol0
says '"zero_bytes": 18951425'

# The target hangs, before a copy and during a copy back.
kill -STOP $daemon
FI_OFI_RPMEM_TIMEOUT=500 expect 6 $cp small 127.0.0.1:$P:vol0
kill -CONT $daemon
expect 0 $cp small 127.0.0.1:$P:vol0
stop INT 0
serve --port 0 --create 512M wide
stop TERM 0
serve --port 0 vol0 wide
echo old >back
FI_OFI_RPMEM_TIMEOUT=500 $cp --timeout 2 --chunk 4K --window 1 \
	127.0.0.1:$P:wide back >out 2>&1 &
job=$!
for _ in $(seq 1000); do
	set -- .back.tmp.*
	[ -e "$1" ] && break
	sleep 0.01
done
kill -STOP $daemon
for _ in $(seq 1000); do
	[ -s out ] && break
	sleep 0.05
done
kill -CONT $daemon # an attempt to connect ends sooner
wait $job
code=$?
[ $code -eq 9 ] || fail "exit code $code of a copy from a target that hangs"
says "gave up after 2 s"
[ "$(cat back)" = old ] || fail "a file was replaced by half of another"
set -- .back.tmp.*
[ -e "$1" ] && fail "$1 is left behind"
expect 0 $cp small 127.0.0.1:$P:vol0 # others are served
stop TERM 0
rm wide

# Pools with a secret.
head -c 32 /dev/urandom | base64 >secret
head -c 32 /dev/urandom | base64 >wrong
chmod 644 secret
expect 7 $bin/fi_rpmemd --port 0 --secret secret vol0
says "chmod 600"
chmod 600 secret wrong
serve --port 0 --secret secret vol0
expect 7 $cp small 127.0.0.1:$P:vol0
says "secret FILE"
expect 7 $cp --secret wrong small 127.0.0.1:$P:vol0
says "not the daemon's"
expect 6 $cp --secret secret small 127.0.0.1:$P:vol8
expect 0 $cp --secret secret small 127.0.0.1:$P:vol0
grep -q "wrong secret" daemon.out || fail "the daemon does not log a wrong secret"
stop TERM 0
serve --port 0 vol0
expect 7 $cp --secret secret small 127.0.0.1:$P:vol0
stop TERM 0

# A client that starts before its daemon waits for it.
timeout 120 $cp --wait 60 small 127.0.0.1:$P:vol0 >out 2>&1 &
client=$!
serve --port $P vol0
wait $client || { fail "a client did not wait for the daemon"; cat out >&3; }
stop TERM 0
expect 6 $cp --wait 0 small 127.0.0.1:$P:vol0
says "start fi_rpmemd"

# The reported class is the class of the method that was used.
case $class in
'')
	serve --port 0 vol0
	expect 0 $cp --class process small 127.0.0.1:$P:vol0
	says "^durable: .* class process by delivery"
	expect 0 $cp --class none --json small 127.0.0.1:$P:vol0
	says '"class": "process"'
	says '"method": "delivery"'
	FI_OFI_RPMEM_CLASS=none expect 0 $bin/fi_rpmem_info --target \
		127.0.0.1:$P:vol0
	says "^  class  *process$"
	says "^  method  *delivery$"
	says "^  strongest  *power$"
	FI_OFI_RPMEM_CLASS=process expect 0 $bin/fi_rpmem_info --json \
		--target 127.0.0.1:$P:vol0
	says '"class": "process"'
	says '"strongest": "power"'
	stop TERM 0
	;;
*) echo "left out: no class power here" ;;
esac

# A pool whose file is removed is withdrawn, with a request from a client or
# without.
head -c 4000000 src >mid
serve --port 0 --create 4M stays gone late
mv stays moved # the pool still has a name
$cp --timeout 2 --chunk 4K --window 1 --ack-log acks2 mid 127.0.0.1:$P:late \
	>out2 2>&1 &
job=$!
for _ in $(seq 1000); do
	[ -s acks2 ] && break
	sleep 0.01
done
kill -STOP $job
rm late
for _ in $(seq 1000); do
	grep -q "^[0-9T:+-]* fi_rpmemd: pool 'late' is withdrawn: its file was" daemon.out &&
		break
	sleep 0.01
done
grep -q "'late' is withdrawn" daemon.out || fail "a removal goes unnoticed"
kill -CONT $job
wait $job
code=$?
[ $code -eq 9 ] || fail "exit code $code of a copy whose pool was withdrawn"
rm gone
expect 6 $cp small 127.0.0.1:$P:gone
says "withdrawn: its file was removed"
expect 3 $bin/fi_rpmem_info --target 127.0.0.1:$P:late
says "withdrawn"
expect 6 $cp small 127.0.0.1:$P:nowhere
says "there is 'stays'$"
expect 0 $cp small 127.0.0.1:$P:stays
stop TERM 3

# The file of a pool was truncated: the error names the remedy, and the pool is
# not served.
cp vol0 short
truncate -s 20M short
expect 3 $bin/fi_rpmemd --port 0 short
says "truncated"

# A daemon reports memory of a weaker class before it uses it.
if [ -n "$shm" ] && [ "$(stat -f -c %T "$shm")" = tmpfs ]; then
	serve --port 0 --create 1M "$shm/weak"
	sum=$(sha256sum <"$shm/weak")
	expect 8 $bin/fi_rpmem_cp small 127.0.0.1:$P:weak
	says "class process"
	[ "$(sha256sum <"$shm/weak")" = "$sum" ] || fail "written all the same"
	expect 0 $bin/fi_rpmem_cp --class process small 127.0.0.1:$P:weak
	says "class process by delivery"
	FI_OFI_RPMEM_CLASS=process expect 0 $bin/fi_rpmem_cp small \
		127.0.0.1:$P:weak
	stop TERM 0
	# Memory without persistence: commits succeed, and no output says
	# durable.
	FI_OFI_RPMEM_EMULATE=1 serve --port 0 --create 1M "$shm/none"
	grep -q '^none .* none  *agent-clwb ' daemon.out ||
		fail "the class of emulated memory"
	expect 0 $bin/fi_rpmem_cp --class none small 127.0.0.1:$P:none
	says "^copied: 4.9 KiB in .* class none by agent-clwb"
	grep -qi durable out daemon.out && fail "class none is called durable"
	expect 0 $bin/fi_rpmem_cp --class none --json small 127.0.0.1:$P:none
	says '"class": "none"'
	says '"acknowledged_bytes": 5000'
	grep -qi durable out && fail "class none is called durable in JSON"
	stop TERM 0
else
	echo "left out: /dev/shm is no tmpfs"
fi
}
exit $failed
