#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# nbdkit's rpmem plugin: what it refuses at the start, what the disk offers, and
# what each right of a secret allows.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter nbd_open
# shellcheck source=fabtests/functional/nbd_disk.sh
. "$src/fabtests/functional/nbd_disk.sh"

serve --port 0 --create 8M vol
skip_without_disk vol daemon.out
port=$P at=target=127.0.0.1:$P
for s in reads writes admins other; do
	(umask 077 && head -c 32 /dev/urandom | base64 >$s)
done

refuses "give target=" pool=vol
refuses "unknown parameter 'tagret'" tagret=x
refuses "class=strong: give power" target=x pool=vol class=strong
refuses "nothing listens on port 1 " target=127.0.0.1:1 pool=vol
refuses "no pool 'absent'" "$at" pool=absent
refuses "no.such.host.invalid" target=no.such.host.invalid pool=vol
refuses "does not ask for the secret" "$at" pool=vol secret=other

nbdkit --dump-plugin "$plugin" | grep -qx thread_model=parallel ||
	fail "requests do not run in parallel"
export_pool
for feature in write multi-conn fua flush zero fast-zero cache; do
	nbdinfo --can $feature "$uri" || fail "no $feature"
done
nbdinfo --can trim "$uri" && fail "trim is offered"
nbdinfo --json "$uri" >json
for size in 'minimum": 1' 'preferred": 4096' 'maximum": 4294967295'; do
	grep -q "\"block_size_$size,$" json || { fail "no $size"; cat json; }
done
cat >cache.py <<'P'
import sys
import nbd
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.cache(4096, 1 << 20)
P
nbdinfo --map "$uri" | grep -q '^ *0 *8388608 *0 *data$' ||
	fail "not all blocks are allocated"
/usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.zero(1 << 20, 4096)
h.flush()' "$uri" || fail "zeros that may be a hole"
[ $(($(stat -c %b vol) * 512)) -ge $((8 << 20)) ] || fail "zeros make a hole"
[ "$(nbdinfo --size "$uri")" -eq $((8 << 20)) ] || fail "another size"
stop_export

# shellcheck disable=SC2016 # the shell of --run expands it
timeout 60 nbdkit -v -U - "$plugin" "$at" pool=vol \
	--run '/usr/bin/python3 cache.py "$uri"' >out 2>&1 ||
	{ fail "a request to cache"; cat out; }
grep -q "rpmem: pread count=4096 offset=1048576" out ||
	fail "a request to cache reads nothing"

# TLS is nbdkit's: a client with the key gets the disk, one without TLS none.
if ! nbdkit --dump-config | grep -qx tls=yes; then
	echo "ok - TLS # SKIP this nbdkit is built without it"
elif ! /usr/bin/python3 -c 'import nbd, sys; sys.exit(not nbd.NBD().supports_tls())'; then
	echo "ok - TLS # SKIP this libnbd is built without it"
else
	(umask 077 && printf 'client:%s\n' "$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')" >psk)
	rm -f sock
	nbdkit -f -U "$PWD/sock" --tls=require --tls-psk="$PWD/psk" "$plugin" "$at" \
		pool=vol 2>nbdkit.out &
	server=$!
	pids="$pids $server"
	tls="nbds+unix://client@/?socket=$PWD/sock&tls-psk-file=$PWD/psk"
	await $server nbdinfo --size "$tls" >/dev/null 2>&1 ||
		{ fail "nbdkit with TLS"; cat nbdkit.out; }
	head -c 1M /dev/urandom >image
	nbdcopy --flush image "$tls" || fail "nbdcopy over TLS"
	cmp -n 1M -i 65536:0 vol image || fail "the pool has other bytes"
	says "requires TLS" nbdinfo --size "$uri"
	stop_export
fi

# nbdkit opens the pool twice: in front of its fork, when its errors are seen, and
# behind it. A proxy tells the daemon late that the first opening has ended.
cat >proxy.py <<'P'
import os
import socket
import sys
import threading
import time


def pump(source, to, pause):
    while data := source.recv(65536):
        to.sendall(data)
    time.sleep(pause)
    to.shutdown(socket.SHUT_WR)


listener = socket.create_server(("127.0.0.1", 0))
with open("proxy.port.new", "w", encoding="ascii") as f:
    f.write(str(listener.getsockname()[1]))
os.rename("proxy.port.new", "proxy.port")
n = 0
while True:
    client = listener.accept()[0]
    daemon = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=pump, args=(client, daemon, 0 if n else 0.5)).start()
    threading.Thread(target=pump, args=(daemon, client, 0)).start()
    n += 1
P
/usr/bin/python3 proxy.py "$port" &
proxy=$!
pids="$pids $proxy"
await $proxy [ -s proxy.port ]
rm -f sock
nbdkit -P pidfile -U "$PWD/sock" "$plugin" \
	target=127.0.0.1:"$(cat proxy.port)" pool=vol || fail "in the background"
await $proxy [ -s pidfile ]
server=$(cat pidfile)
pids="$pids $server"
await "$server" nbdinfo --size "$uri" >/dev/null 2>&1 ||
	fail "the disk is not served in the background"
kill "$server" "$proxy"
stop

shm=$(mktemp -d /dev/shm/rpmem-nbd.XXXXXX 2>/dev/null) && {
	serve --port 0 --create 4M "$shm/vol"
	refuses "weaker than required" target=127.0.0.1:"$P" pool=vol
	port=$P
	head -c 1M /dev/urandom >image
	export_pool class=process
	nbdcopy --flush image "$uri" || fail "a pool of class process"
	nbdcopy "$uri" back || fail "from a pool of class process"
	cmp -n 1M image back || fail "bytes of a pool of class process"
	stop_export
	stop
}

# Rights. With the right to read the disk is read-only and shared, with the right
# to write it is exclusive, and only with the right admin it is taken.
printf '%s\n' 'port = 0' '[secret r]' 'file = reads' '[secret w]' 'file = writes' \
	'[secret a]' 'file = admins' \
	'[pool vol]' 'path = vol' 'read = r' 'write = w' 'admin = a' >conf
serve --config conf
port=$P at=target=127.0.0.1:$P
refuses "asks for a secret" "$at" pool=vol
refuses "not the daemon's" "$at" pool=vol secret=other
export_pool secret=reads
nbdinfo --can write "$uri" && fail "a secret for reading can write"
cat >write.py <<'P'
import sys
import nbd
h = nbd.NBD()
h.set_strict_mode(0)
h.connect_uri(sys.argv[1])
try:
    h.pwrite(b"x", 0)
    h.flush()
except nbd.Error as e:
    sys.exit(f"refused: {e.errno}")
P
says "refused: " timeout 60 /usr/bin/python3 write.py "$uri"
cp_out=$(../util/fi_rpmem_cp --quiet --secret reads 127.0.0.1:"$P":vol copy 2>&1)
case $? in 0) ;; *) fail "a read-only disk is not shared: $cp_out" ;; esac
refuses "does not allow to write to pool 'vol'" "$at" pool=vol secret=reads \
	take=true
stop_export

export_pool secret=writes
timeout 60 /usr/bin/python3 write.py "$uri" || fail "a secret for writing"
refuses "open exclusively at a client on 127.0.0.1" "$at" pool=vol secret=reads
refuses "open exclusively at a client on 127.0.0.1" "$at" pool=vol secret=admins
refuses "does not allow to administer pool 'vol'" "$at" pool=vol secret=writes \
	take=true
timeout 60 /usr/bin/python3 write.py "$uri" || fail "the disk was taken"
first=$server
mv nbdkit.out first.out
mv sock sock1
export_pool secret=admins take=true
timeout 60 /usr/bin/python3 write.py "$uri" || fail "the taken disk"
says "refused: EIO" timeout 60 /usr/bin/python3 write.py \
	"nbd+unix:///?socket=$PWD/sock1"
grep -q "another client has opened pool 'vol' meanwhile" first.out ||
	{ fail "no reason"; cat first.out; }
stop_export
server=$first
stop_export
exit $failed
