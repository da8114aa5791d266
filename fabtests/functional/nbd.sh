#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# nbdkit's rpmem plugin: what NBD's clients may rely on.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter nbd
# shellcheck source=fabtests/functional/nbd_disk.sh
. "$src/fabtests/functional/nbd_disk.sh"

# holds FILE OFFSET TEXT: the file has TEXT at OFFSET of the data area.
holds()
{
	[ "$(dd if="$1" bs=1 skip=$((65536 + $2)) count=${#3} 2>/dev/null)" = \
		"$3" ]
}

serve_safe

export_pool timeout=2
head -c $((8 << 20)) /dev/urandom >image
nbdcopy --flush image "$uri" || fail "nbdcopy to the pool"
nbdcopy "$uri" back || fail "nbdcopy from the pool"
cmp image back || fail "what comes back differs"

# One client has two connections: a FLUSH of one covers the writes of the other.
cat >client.py <<'P'
import sys
import nbd


def connect():
    h = nbd.NBD()
    h.connect_uri(sys.argv[1])
    return h


a, b = connect(), connect()
for verb in sys.argv[2:]:
    if verb == "own":
        a.pwrite(b"by itself", 8192)
        a.flush()
    elif verb == "write":
        a.pwrite(b"by the other connection", 4096)
    elif verb == "flush":
        b.flush()
    elif verb == "fua":
        a.pwrite(b"by FUA", 40960, nbd.CMD_FLAG_FUA)
    elif verb == "plain":
        a.pwrite(b"not flushed", 81920)
    elif verb == "last":
        a.pwrite(b"before the end", 286720)
        a.zero(8, 286720)
    elif verb == "former":
        a.pwrite(b"by a former owner", 122880)
    elif verb == "zero":
        a.pwrite(b"x" * 32, 163840, nbd.CMD_FLAG_FUA)
        a.zero(8, 163848, nbd.CMD_FLAG_FUA)
        a.zero(8, 163864)
        assert bytes(b.pread(32, 163840)) == 2 * (8 * b"x" + 8 * b"\0")
    elif verb == "far":
        assert bytes(b.pread(11, 81920)) == b"not flushed"
    elif verb == "eio":
        # A write before the server knows of the loss fails with the FLUSH.
        try:
            a.pwrite(b"x", 0)
        except nbd.Error as e:
            assert e.errno == "EIO", e
        for call in b.flush, lambda: a.pread(1, 0), lambda: a.pwrite(b"x", 0):
            try:
                call()
            except nbd.Error as e:
                assert e.errno == "EIO", e
            else:
                raise AssertionError("no error")
    elif verb == "secret":
        a.pwrite(b"under a lost secret", 327680)
    elif verb == "refused":
        try:
            b.flush()
        except nbd.Error as e:
            assert e.errno == "EIO", e
        else:
            raise AssertionError("no error")
    elif verb == "grown":
        a.pwrite(b"behind the former end", 12 << 20, nbd.CMD_FLAG_FUA)
    elif verb == "beyond":
        try:
            a.pwrite(b"x", 8 << 20)
        except nbd.Error:
            pass
        else:
            raise AssertionError("no error")
P
client()
{
	timeout 120 /usr/bin/python3 client.py "$uri" "$@" >out 2>&1 ||
		{ fail "client $*"; cat out nbdkit.out; }
}
client own write flush fua plain beyond zero
holds vol.safe 8192 "by itself" ||
	fail "a flush does not cover its own connection"
holds vol.safe 4096 "by the other connection" ||
	fail "a flush does not cover the other connection"
holds vol.safe 40960 "by FUA" || fail "a write with FUA is not durable"
holds vol.safe 81920 "not flushed" &&
	fail "everything is flushed: nothing was tested"
# zeros_at FILE: bytes 8 to 15 are zeros by FUA, 24 to 31 by a plain request.
zeros_at()
{
	dd if="$1" bs=1 skip=$((65536 + 163840)) count=32 2>/dev/null |
		tr '\0x' '0x'
}
[ "$(zeros_at vol.safe)" = xxxxxxxx00000000xxxxxxxxxxxxxxxx ] ||
	fail "zeros with FUA are not durable, or plain ones are: $(zeros_at vol.safe)"

# The target dies: the server writes unflushed writes again, and the client gets
# no error.
cut_power
serve_vol
client far flush
holds vol.safe 81920 "not flushed" || fail "a write is lost over a restart"
[ "$(zeros_at vol.safe)" = xxxxxxxx00000000xxxxxxxx00000000 ] ||
	fail "zeros are lost over a restart: $(zeros_at vol.safe)"

# The target stays away: errors, no hang, and no write is lost when it is back.
client write plain
cut_power
client eio
serve_vol
client far flush
holds vol.safe 81920 "not flushed" || fail "a write is lost over a long absence"
cut_power
serve_vol
holds vol 81920 "not flushed" || fail "the pool lacks it"
client far

# An orderly stop keeps writes that no FLUSH has covered, as nbdkit's file plugin
# does. If they cannot be kept, nbdkit says so.
head -c 1M /dev/urandom >plain
nbdcopy plain "$uri" || fail "nbdcopy without --flush"
client last
cmp -sn 1M -i 65536:0 vol.safe plain && fail "it is durable: nothing was tested"
stop_export
cat plain >kept && printf '\0\0\0\0\0\0\0\0he end' |
	dd of=kept bs=1 seek=286720 conv=notrunc 2>/dev/null
cmp -n 1M -i 65536:0 vol.safe kept || fail "a stop of nbdkit loses writes"
lost="what no FLUSH has covered is lost"
grep "$lost" nbdkit.out && fail "a stop reports a loss"
export_pool timeout=2
client plain flush
cut_power
stop_export
grep "$lost" nbdkit.out && fail "a stop without writes reports a loss"
serve_vol
export_pool timeout=2
client last
cut_power
stop_export
grep -q "$lost: .*127.0.0.1" nbdkit.out ||
	{ fail "nothing reports lost writes"; cat nbdkit.out; }
serve_vol
export_pool timeout=2

# One server for each pool: a second one is refused, and so is fi_rpmem_cp.
refuses "open exclusively at a client on 127.0.0.1" \
	target=127.0.0.1:"$port" pool=vol
../util/fi_rpmem_cp --quiet 127.0.0.1:"$port":vol copied >out 2>&1
code=$?
[ $code = 4 ] ||
	fail "fi_rpmem_cp, of what another client has in its buffers: $code"
grep -q "open exclusively" out || { fail "no reason"; cat out; }
client far

# A server is stopped while another one has the pool and the target restarts:
# afterwards it writes nothing any more, and says so.
client former
first=$server first_uri=$uri
kill -STOP $first
cut_power
serve_vol
# For some seconds the restarted target keeps the pool for its owner.
../util/fi_rpmem_cp --wait 0 --quiet 127.0.0.1:"$port":vol copied >out 2>&1 &&
	fail "a pool is given away while its owner comes back"
grep -q "the last client of pool 'vol' may come back" out ||
	{ fail "no reason"; cat out; }
uri="nbd+unix:///?socket=$PWD/sock2"
nbdkit -f -U "$PWD/sock2" "$plugin" target=127.0.0.1:"$port" pool=vol \
	2>nbdkit2.out &
server=$!
for _ in $(seq 400); do
	nbdinfo --size "$uri" >/dev/null 2>&1 && break
	sleep 0.05
done
client write flush
kill $server && wait $server
server=$first uri=$first_uri
kill -CONT $first
client eio
grep -q "another client has opened pool 'vol' meanwhile" nbdkit.out ||
	{ fail "no reason"; cat nbdkit.out; }
holds vol.safe 4096 "by the other connection" || fail "the follower's write"
holds vol 122880 "by a former owner" && fail "a former owner has written again"
stop_export
export_pool timeout=2

# The server dies with unflushed writes; they are durable once the next server
# has opened the pool, as a flush of a disk covers the writes of all hosts.
client former
holds vol.safe 122880 "by a former owner" &&
	fail "it is durable already: nothing was tested"
kill -9 $server
wait $server 2>/dev/null
export_pool timeout=2
holds vol.safe 122880 "by a former owner" ||
	fail "the next server reads what is not durable"

# Requests wait for a target that is away: 30 attempts to connect fail, before fi_rpmemd
# returns. The pauses between so many attempts are longer than one second in all.
cat >closes.py <<'P'
import socket
import sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as s:
    for _ in range(30):
        s.accept()[0].close()
P
stop_export
export_pool
client plain
cut_power
timeout 120 /usr/bin/python3 closes.py "$port" >closes.out 2>&1 &
closes=$!
timeout 120 /usr/bin/python3 client.py "$uri" far flush >waits.out 2>&1 &
waits=$!
pids="$pids $closes $waits"
wait $closes || { fail "no 30 attempts to connect"; cat closes.out; }
kill -0 $waits 2>/dev/null || fail "a request ends while the target is away"
serve_vol
wait $waits || { fail "requests do not wait for the target"; cat waits.out nbdkit.out; }
holds vol.safe 81920 "not flushed" || fail "the write is lost"

# Compare checksums after restarts of the target, with and without fsync.
restarts=3 bytes=24M
[ "${RP_LONG:-0}" != 1 ] || restarts=20 bytes=800M
if ! command -v fio >/dev/null; then
	echo "ok - checksums over restarts # SKIP fio is missing; on Debian: apt-get install fio"
else
	for sync in 0 1; do
		fio --name=verify --ioengine=nbd --uri="$uri" --rw=randwrite \
			--bs=4k --size=4M --io_size=$bytes --fsync=$sync \
			--iodepth=8 --verify=crc32c --randseed=7 \
			--output-format=json --output=fio.out >/dev/null 2>&1 &
		fio=$!
		for _ in $(seq $restarts); do
			kill -0 $fio 2>/dev/null || fail "fio ended too soon"
			n=$(wc -l <daemon.out)
			cut_power
			serve_vol
			# The client has connected again, or has ended.
			while [ "$(wc -l <daemon.out)" -le $((n + 3)) ] &&
				kill -0 $fio 2>/dev/null; do
				sleep 0.05
			done
		done
		wait $fio || { fail "fio, fsync=$sync"; cat fio.out nbdkit.out; }
		verified=$(/usr/bin/python3 -c '
import json
text = open("fio.out").read()
print(json.loads(text[text.index("{"):])["jobs"][0]["read"]["io_bytes"])')
		[ "${verified:-0}" -ge $((4 << 20)) ] ||
			{ fail "fio has verified ${verified:-0} bytes"; cat fio.out; }
	done
fi
stop_export

# The target's disk fails: every flush returns an error. Once the target has a
# disk that works, the bytes are durable although the client does not write them
# again.
mkdir fault
ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" fault/
cut_power
provider=$FI_PROVIDER_PATH
RPMEM_FAULT=fail-flush
FI_PROVIDER_PATH=$PWD/fault
export RPMEM_FAULT
serve_vol
FI_PROVIDER_PATH=$provider
unset RPMEM_FAULT
export_pool timeout=20
timeout 60 /usr/bin/python3 - "$uri" >out 2>&1 <<'P' || { fail "a disk that fails"; cat out; }
import sys
import nbd
a, b = nbd.NBD(), nbd.NBD()
for h in a, b:
    h.connect_uri(sys.argv[1])
a.pwrite(b"on a bad disk", 204800)
for call in (a.flush, b.flush,
             lambda: a.pwrite(b"x", 262144, nbd.CMD_FLAG_FUA), b.flush,
             lambda: a.zero(8, 262200, nbd.CMD_FLAG_FUA), b.flush):
    # Writes without a flush succeed, also small writes and zeros.
    a.pwrite(b"small", 270336)
    a.zero(2, 270336)
    try:
        call()
    except nbd.Error as e:
        assert e.errno == "EIO", e
    else:
        raise AssertionError("success on a disk that fails")
assert bytes(b.pread(13, 204800)) == b"on a bad disk"
assert bytes(b.pread(5, 270336)) == b"\0\0all"
P
holds vol.safe 204800 "on a bad disk" && fail "it is flushed: nothing was tested"
cut_power
serve_vol
client flush
holds vol.safe 204800 "on a bad disk" ||
	fail "a write of before the disk failed is not replayed"
[ "$(dd if=vol.safe bs=1 skip=$((65536 + 270336 + 2)) count=3 2>/dev/null)" = all ] ||
	fail "a write to the bad disk is not replayed"
stop_export

# The file of the pool grows while nbdkit serves the pool. nbdkit learns the new size by
# its next request, and tells it to the next client.
export_pool timeout=2
cp vol shorter
truncate -s +8M vol
kill -HUP $daemon
await $daemon grep -q "pool 'vol' has 16 MiB now" daemon.out ||
	{ fail "the pool does not grow"; cat daemon.out; }
client own
[ "$(nbdinfo --size "$uri")" -eq $((16 << 20)) ] || fail "the disk does not grow"
client grown
holds vol.safe $((12 << 20)) "behind the former end" ||
	fail "no durable write behind the former end"

# Behind a restart the pool has another size: a copy of before the growth took its
# place. Each request fails, and nothing is written to the copy.
cut_power
cp shorter vol
cp shorter vol.safe
serve_vol
client eio
grep -q "pool 'vol' on 127.0.0.1 has shrunk from 16777216 to 8388608 bytes" \
	nbdkit.out || { fail "no reason: another size"; cat nbdkit.out; }
cmp -i 65536 vol shorter || fail "nbdkit writes to a copy of before the growth"
stop_export

# The secret becomes wrong under nbdkit. Requests fail when timeout= is over; with
# the right secret in its file nbdkit comes back, and writes what it has kept.
stop
(umask 077 && head -c 32 /dev/urandom | base64 >known)
cp -p known given
serve_vol --secret known
export_pool timeout=2 secret=given
client secret
cut_power
head -c 32 /dev/urandom | base64 >known
serve_vol --secret known
client refused
grep -q "the secret is not the daemon's" nbdkit.out ||
	{ fail "no reason: the secret"; cat nbdkit.out; }
holds vol 327680 "under a lost secret" && fail "a wrong secret suffices"
cat known >given
client flush
holds vol.safe 327680 "under a lost secret" ||
	fail "a write is lost over a wrong secret"
stop_export
stop
serve_vol

# The file of the pool is truncated under load of two connections: an error at both
# ends for each request that is outstanding, and no hang.
export_pool timeout=2
n=$(wc -l <daemon.out)
timeout 60 /usr/bin/python3 - "$uri" >out 2>&1 <<'P' || { fail "a pool that is cut short under load"; cat out; }
import os
import random
import sys
import nbd

handles = [nbd.NBD(), nbd.NBD()]
for h in handles:
    h.connect_uri(sys.argv[1])
data = nbd.Buffer.from_bytearray(bytearray(b"x" * 4096))
done = failed = 0


def complete(error):
    global done, failed
    assert error.value in (0, 5), os.strerror(error.value)
    done += 1
    failed += error.value != 0
    return 1


def start(h):
    at = random.randrange(2048) * 4096
    if random.random() < 0.1:
        h.aio_flush(completion=complete)
    elif random.random() < 0.3:
        h.aio_pread(nbd.Buffer(4096), at, completion=complete)
    else:
        h.aio_pwrite(data, at, completion=complete)


before = outstanding = 0
while failed < 64:
    for h in handles:
        while h.aio_in_flight() < 16:
            start(h)
        h.poll(-1)
    if not before and done > 500:
        os.truncate("vol", 1 << 20)
        before, outstanding = done, sum(h.aio_in_flight() for h in handles)
for h in handles:
    while h.aio_in_flight():
        h.poll(-1)
assert before and outstanding >= 16, outstanding
P
tail -n +$((n + 1)) daemon.out | grep -q "pool 'vol'.* was cut short" ||
	{ fail "the daemon does not say it"; cat daemon.out out; }
# The daemon withdraws the pool and ends: nbdkit names what it met first.
grep -qE "pool 'vol' is withdrawn: its file was cut short|nothing listens on port [0-9]+ of" \
	nbdkit.out || { fail "nbdkit does not say it"; cat nbdkit.out; }
stop_export
exit $failed
