#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The configuration of fi_rpmemd: rights of secrets, and SIGHUP, which changes
# pools, secrets and rights while clients are connected.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter reload
cp=../util/fi_rpmem_cp

# said N TEXT: wait until the daemon has printed N lines with the text.
said()
{
	for _ in $(seq 600); do
		[ "$(grep -c -- "$2" daemon.out)" -ge "$1" ] && return
		sleep 0.05
	done
	fail "the daemon did not say '$2' $1 times"
}

reloads=0
# reload: send SIGHUP, and wait until the daemon has read the configuration.
reload()
{
	reloads=$((reloads + 1))
	kill -HUP $daemon
	said $reloads 'SIGHUP: '
}

# expect CODE TEXT COMMAND...: check the exit code and the output.
expect()
{
	code=$1 text=$2
	shift 2
	"$@" >out 2>&1
	got=$?
	[ $got = "$code" ] || { fail "$*: exit code $got, not $code"; cat out; }
	[ -z "$text" ] || grep -q -- "$text" out || { fail "$*: no '$text' in:"; cat out; }
}

for s in app backup ops new; do
	(umask 077 && head -c 32 /dev/urandom | base64 >$s.secret)
done
head -c 300000 /dev/urandom >file

# config RIGHTS-OF-A [LINE...]: write the configuration
config()
{
	{
		printf '%s\n' 'port = 0' '[secret app]' 'file = app.secret' \
			'[secret backup]' 'file = backup.secret' \
			'[secret ops]' 'file = ops.secret' \
			'[pool a]' 'path = a' 'create = 4M'
		printf '%b\n' "$@"
	} >conf
}
b='[pool b]\npath = sub/b\ncreate = 1M\nadmin = ops'
mkdir sub
config 'write = app\nread = backup' "$b"
serve --config conf
a=127.0.0.1:$(cat port):a b_at=127.0.0.1:$(cat port):b

# Rights of secrets.
expect 0 '' $cp --secret app.secret file "$a"
expect 0 '' $cp --secret backup.secret "$a" copy
cmp file copy || fail "the copy differs"
expect 7 'only allows to read pool' $cp --secret backup.secret file "$a"
expect 6 "no pool 'b' is exported here for this secret; there is 'a'" \
	$cp --secret app.secret file "$b_at"
expect 6 "there is 'b'" $cp --secret ops.secret file "$a"
expect 7 "not the daemon's" $cp --secret new.secret file "$a"
expect 0 'may write$' ../fabtests/functional/read_only "$a" app.secret
expect 0 'may only read' ../fabtests/functional/read_only "$a" backup.secret
expect 0 'only allows to read' ../util/fi_rpmem_info --target "$a" \
	--secret backup.secret

# A check of the configuration opens no pool and no port: these may be in use.
fd=$(ls sub)
sed "s/^port = 0/port = $(cat port)/; s/sub\/b/sub\/new/" conf >checked
expect 0 "^listen 127.0.0.1, port $(cat port), base tcp, metrics none$" \
	../util/fi_rpmemd --config checked --check
grep -q '^pool a: path a, create 4 MiB, read backup, write app$' out &&
	grep -q '^pool b: path sub/new, create 1 MiB, admin ops$' out &&
	grep -q '^secret ops: file ops.secret$' out || { fail "check"; cat out; }
[ "$fd" = "$(ls sub)" ] || fail "a check has made $(ls sub)"
echo 'path = twice' >>checked
expect 2 'fi_rpmemd: checked:17: path is given twice, first in line 14; remove' \
	../util/fi_rpmemd --config checked --check
sed '1i metrics = 10.0.0.1:1' conf >checked
expect 6 'not a loopback address' ../util/fi_rpmemd --config checked --check
expect 2 'check needs --config' ../util/fi_rpmemd --check a

# A wrong configuration changes nothing.
config 'write = nobody'
kill -HUP $daemon
said 1 'SIGHUP changes nothing: conf:11: there is no section \[secret nobody\]'
config 'write = app'
sed -i 's/^port = 0/port = 1/' conf
kill -HUP $daemon
said 1 "SIGHUP changes nothing: 'conf' changes listen, port, base or metrics; restart"
expect 0 '' $cp --secret backup.secret "$a" copy

# One pool is added, another one removed, and a secret replaced in two steps.
config 'write = app\nread = backup' '[pool c]\npath = c\ncreate = 2M\nwrite=app'
sed -i '/app.secret/a file = new.secret' conf
reload
said 1 "pool 'b' is no longer exported"
said 1 "pool 'c' is exported"
expect 0 '' $cp --secret new.secret file "${a%a}c"
expect 0 '' $cp --secret app.secret "${a%a}c" copy
expect 6 "no pool 'b'" $cp --secret ops.secret file "$b_at"
said 1 "pool 'b' is written back and closed"
expect 0 '' flock -n sub/b true
# hold SECRET: fetch a key of pool a, and use it at end_hold
hold()
{
	mkfifo line
	../fabtests/functional/read_only "$a" "$1" wait <line >held.out 2>&1 &
	holder=$!
	pids="$pids $holder"
	exec 3>line
	await $holder grep -q 'has the key' held.out ||
		{ fail "no key"; cat held.out; }
}
# end_hold TEXT: what the key can do by now
end_hold()
{
	echo >&3
	exec 3>&-
	wait $holder
	grep -q "^$1\$" held.out || { fail "a key of before: no '$1'"; cat held.out; }
	rm line
}
# refused_keys: print how many keys the daemon has refused
refused_keys()
{
	../util/fi_rpmem_info --stats=$daemon --prometheus |
		sed -n 's/^ofi_rpmem_refused_keys_total{.*} //p'
}
hold app.secret
end_hold 'may write'
hold app.secret
sed -i '/app.secret/d' conf
reload
[ "$(refused_keys)" = 0 ] || fail "refused keys: $(refused_keys), not 0"
end_hold 'may do nothing'
# Each of four writes and four reads is refused.
[ "$(refused_keys)" -ge 8 ] || fail "refused keys: $(refused_keys), not 8"
expect 7 "not the daemon's" $cp --secret app.secret file "$a"
expect 0 '' $cp --secret new.secret file "$a"
# A right is removed, and given again.
hold new.secret
sed -i 's/^write = app/read = app backup/; /^read = backup/d' conf
reload
end_hold 'may do nothing'
expect 7 'only allows to read pool' $cp --secret new.secret file "$a"
sed -i 's/^read = app backup/write = app\nread = backup/' conf
reload
expect 0 '' $cp --secret new.secret file "$a"

# A pool that has grown is removed and added, also within one reload.
cp conf whole.conf
sed '/^\[pool c\]/,$d' conf >less.conf
leave_and_return()
{
	cp less.conf conf
	reload
	cp whole.conf conf
	reload
}
truncate -s +2M c
reload
said 1 "pool 'c' has 4 MiB now"
leave_and_return
said 2 "pool 'c' is exported"
truncate -s +2M c
leave_and_return
said 3 "pool 'c' is exported"
expect 0 'pool  *6 MiB' ../util/fi_rpmem_info --target "${a%a}c" \
	--secret new.secret

# Another file has the path of a pool: a reload serves the new file.
mv c c.old
cp c.old c
reload
said 4 "pool 'c' is exported"
expect 0 '' flock -n c.old true
expect 1 '' flock -n c true

# A pool that cannot be opened does not affect the others.
printf '%s\n' '[pool bad]' 'path = no/such' 'write = app' >>conf
reload
said 1 'made longer 0; pools named above are not exported'
said 1 "pool 'no/such' does not exist"
expect 0 '' $cp --secret new.secret file "${a%a}c"
cp whole.conf conf
reload

# Clients have a pool open during reloads.
if command -v python3 >/dev/null && [ -z "${RP_SANITIZE:-}" ]; then
	timeout 120 python3 - "$a" "$src/util/python" $daemon >out 2>&1 <<'P' ||
import errno
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, sys.argv[2])
import rpmem_pool

where = sys.argv[1]
with open("conf", encoding="utf-8") as f:
    whole = f.read()


def said(text):
    with open("daemon.out", encoding="utf-8") as f:
        return f.read().count(text)


def reload(text):
    """Write this configuration, and reload."""
    before = said("SIGHUP: ")
    with open("conf", "w", encoding="utf-8") as f:
        f.write(text)
    os.kill(int(sys.argv[3]), signal.SIGHUP)
    while said("SIGHUP: ") == before:
        time.sleep(0.02)


def fails(number, text, call, *args, **named):
    try:
        call(*args, **named)
    except OSError as e:
        assert e.errno == number and text in str(e), e
        return
    raise AssertionError(f"no error '{text}'")


# A client that may only read.
with rpmem_pool.open(where, secret="backup.secret") as pool:
    assert pool.info()["read_only"]
    fails(errno.EACCES, "only allows to read", pool.write, b"x", 0)
    fails(errno.EACCES, "only allows to read", pool.zero, 1, 0)
    assert len(pool.read(100, 0)) == 100
fails(errno.EACCES, "allow to write", rpmem_pool.open, where,
      secret="backup.secret", exclusive=True)

# Uncommitted bytes survive when a pool is removed for a while.
with rpmem_pool.open(where, secret="new.secret", exclusive=True) as pool:
    pool.write(b"kept", 0)
    reload(whole.replace("[pool a]\npath = a\n", "[pool z]\npath = z\n"))
    while said("pool 'a' is no longer exported") < 1:
        time.sleep(0.02)
    done = []
    thread = threading.Thread(target=lambda: done.append(pool.commit()))
    thread.start()
    reload(whole)
    thread.join()
    assert done == [None], done
    assert pool.info()["reconnects"] >= 1, pool.info()
    assert pool.read(4, 0) == b"kept"

# A client loses the right to write to its open pool, and then its secret.
with rpmem_pool.open(where, secret="new.secret", timeout=2) as pool:
    pool.write(b"before", 0)
    reload(whole.replace("write = app\nread = backup", "read = app backup"))
    fails(errno.ETIMEDOUT, "only allows to read now", pool.commit)
    reload(whole)
    pool.commit()
    assert pool.read(6, 0) == b"before"
    reload(whole.replace("file = new.secret", "file = app.secret"))
    fails(errno.ETIMEDOUT, "not the daemon's", pool.read, 1, 0)
    reload(whole)
    assert pool.read(6, 0) == b"before"
    # A client reads the file of its secret again when the file was replaced.
    with open("new.secret", encoding="utf-8") as f:
        old = f.read()
    reload(whole.replace("file = new.secret", "file = app.secret"))
    with open("app.secret", encoding="utf-8") as f, \
         open("new.secret", "w", encoding="utf-8") as to:
        to.write(f.read())
    assert pool.read(6, 0) == b"before"
    with open("new.secret", "w", encoding="utf-8") as to:
        to.write(old)
    reload(whole)
    assert pool.read(6, 0) == b"before"
    # A client without the right to write does not exclude others from the pool.
    reload(whole.replace("file = new.secret", "file = app.secret"))
    rpmem_pool.open(where, secret="app.secret", exclusive=True).close()

# A key revoked between the set-up and its first use is not reported as a weaker
# class: a proxy delays the daemon's reply until a reload has revoked the key.
reload(whole)
less = whole.replace("write = app\nread = backup", "read = app backup")
replies = 0


def pump(source, to, from_daemon):
    global replies
    messages = 0
    while data := source.recv(65536):
        messages += from_daemon
        if messages == 2:  # after CHALLENGE
            messages = 3
            replies += 1
            if replies == 2:
                reload(less)
                reload(whole)
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)


def serve(listener):
    while True:
        client = listener.accept()[0]
        daemon = socket.create_connection(("127.0.0.1", port))
        for pair in ((client, daemon, False), (daemon, client, True)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


port = int(where.split(":")[1])
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=serve, args=(listener,), daemon=True).start()
with rpmem_pool.open(f"127.0.0.1:{listener.getsockname()[1]}:a",
                     secret="new.secret", timeout=20) as pool:
    pool.write(b"kept again", 0)
    reload(less)
    reload(whole)
    pool.commit()
    assert replies >= 3, replies
    assert pool.read(10, 0) == b"kept again"

# An administrator displaces a client that hangs.
reload(whole.replace("write = app\nread = backup", "write = app\nadmin = ops"))
with rpmem_pool.open(where, secret="new.secret", exclusive=True) as pool:
    pool.write(b"hangs", 0)
    fails(errno.EBUSY, "open exclusively", rpmem_pool.open, where,
          secret="ops.secret", exclusive=True)
    fails(errno.EACCES, "allow to administer", rpmem_pool.open, where,
          secret="new.secret", exclusive=rpmem_pool.TAKE)
    with rpmem_pool.open(where, secret="ops.secret",
                         exclusive=rpmem_pool.TAKE) as other:
        other.write(b"taken", 0, durable=True)
        fails(errno.ESTALE, "another client has opened", pool.commit)
        assert other.read(5, 0) == b"taken"

# An administrator displaces a copy, and the copy reports it. The copy waits at
# its second line, because its output is a full pipe. On a slow disk the commit
# of that line may have covered the rest of the file: then the copy is done, and
# another one is tried.
def drain(acks):
    while os.read(acks, 4096):
        pass


def displaced_copy(fifo):
    os.mkfifo(fifo)
    acks = os.open(fifo, os.O_RDWR)
    room = fcntl.fcntl(acks, fcntl.F_SETPIPE_SZ, 4096) - 8
    os.write(acks, b"\n" * room)
    with subprocess.Popen(["../util/fi_rpmem_cp", "--secret", "new.secret",
                           "--chunk", "4K", "--window", "1", "--ack-log",
                           fifo, "file", where], stderr=subprocess.PIPE,
                          text=True) as copy:
        while (struct.unpack("i", fcntl.ioctl(acks, termios.FIONREAD,
                                              b"1234"))[0]
               == room and copy.poll() is None):
            time.sleep(0.02)
        with rpmem_pool.open(where, secret="ops.secret",
                             exclusive=rpmem_pool.TAKE):
            threading.Thread(target=drain, args=[acks], daemon=True).start()
            return copy.communicate()[1], copy.wait()


for n in range(20):
    text, code = displaced_copy(f"acks{n}")
    if code:
        break
assert "another client has opened pool 'a' meanwhile" in text, text
assert "copy the whole file again" in text, text
assert code == 9, code

# A limit on the number of clients.
reload(whole.replace("[pool a]\n", "[pool a]\nclients = 1\n"))
with rpmem_pool.open(where, secret="new.secret") as pool:
    fails(errno.EBUSY, "open at 1 client, and its", rpmem_pool.open, where,
          secret="new.secret")
print("all of it")
P
		fail "clients during a reload"
	grep -q "^all of it" out || { fail "clients during a reload"; cat out; }
fi

# The daemon writes a removed pool back while it serves others. When it begins
# it writes a line to a fifo, which blocks until a reader opens the fifo.
kill $daemon
wait $daemon || fail "exit code $? behind the clients"
mkfifo closing
printf '%s\n' 'port = 0' '[pool y]' 'path = y' 'create = 1M' >less.conf
printf '%s\n' '[pool x]' 'path = x' 'create = 1M' | cat less.conf - >whole.conf
cp whole.conf conf
export RPMEM_FAULT=slow-close RPMEM_FAULT_LOG=closing
rpmemd=../fabtests/fault/fi_rpmemd_faults
serve --config conf --metrics unix:http
unset rpmemd RPMEM_FAULT RPMEM_FAULT_LOG
x=127.0.0.1:$(cat port):x y=127.0.0.1:$(cat port):y
cp less.conf conf
kill -HUP $daemon
said 1 "pool 'x' is no longer exported"
expect 0 '' $cp file "$y"
expect 6 "no pool 'x'" $cp file "$x"
expect 1 '' flock -n x true
cp whole.conf conf
kill -HUP $daemon
said 1 "pool 'x' is exported as soon as a pool that leaves is closed"
expect 0 '' $cp file "$y"
expect 6 "no pool 'x'" $cp file "$x"
grep -q 'is written back' daemon.out && fail "the fifo does not stop the write-back"
exec 4<>closing
said 1 "pool 'x' is written back and closed"
said 1 "pool 'x' is exported$"
expect 0 '' $cp file "$x"
# The end of the daemon waits for this write-back, too. The other pool is not
# written back.
exec 4<&-
rm y
said 1 "pool 'y' is withdrawn"
cp less.conf conf
kill -HUP $daemon
said 2 "pool 'x' is no longer exported"
kill $daemon
for _ in $(seq 600); do # the socket is removed before the pools
	[ -e http ] || break
	sleep 0.05
done
exec 4<>closing
wait $daemon
[ $? = 3 ] || fail "exit code of a daemon that closes a pool"
daemon=
serve --port 0 x
if grep -q 'was not closed' daemon.out; then
	fail "a pool that was removed was left open"
fi
exec 4<&-

# Another daemon serves a new pool before its creator has opened it: the creator
# fails, and the pool keeps its name.
kill $daemon
wait $daemon || fail "exit code $? behind a pool that was removed"
RPMEM_FAULT=slow-create RPMEM_FAULT_GATE=served \
	../fabtests/fault/fi_rpmemd_faults --port 0 --create 1M raced >raced.out 2>&1 &
creator=$!
pids="$pids $creator"
await $creator [ -e raced ]
serve --port 0 raced
: >served
wait $creator
code=$?
[ $code = 4 ] || { fail "exit code $code of the creator"; cat raced.out; }
[ -e raced ] || fail "the creator removed the pool of another daemon"
expect 0 '' $cp file "127.0.0.1:$(cat port):raced"

# The examples of the page and the documentation are valid, with paths and an
# address of this machine.
kill $daemon
wait $daemon || fail "exit code $? behind the clients"
awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
     /^\.Ed/ { text = 0 }
     on && text
     on && /^\.Bd/ { text = 1 }' "$src/man/rpmemd.conf.5" >page.conf
cp "$src/docs/examples/rpmemd.conf" docs.conf
for example in page docs; do
	sed -i "s,/etc/ofi_rpmem/,$PWD/,; s,/var/lib/ofi_rpmem/,$PWD/,
		s,10\.0\.0\.5,127.0.0.1,; s,^port = 18620,port = 0,
		s,^create = .*,create = 8M," $example.conf
	grep -q '^port' $example.conf || sed -i '1i port = 0' $example.conf
	rm -f vol0
	serve --config $example.conf
	expect 0 '' $cp --secret app.secret file "127.0.0.1:$(cat port):vol0"
	kill $daemon
	wait $daemon || fail "exit code $? of $example"
done

# A SIGHUP while a starting daemon creates its pool does not end it.
rm -f port
../util/fi_rpmemd --port 0 --create 256M --port-file port early >daemon.out 2>&1 &
daemon=$!
pids="$pids $daemon"
until [ -n "$(ls .early.* early 2>/dev/null)" ] || ! kill -0 $daemon; do :; done
kill -HUP $daemon
await $daemon [ -s port ]
said 1 'SIGHUP: pools 1'
kill $daemon
wait $daemon || fail "exit code $? behind a SIGHUP at the start"
rm -f early

# A pool that is refused at the start does not stop the others from being
# served.
head -c 1M /dev/zero >bad
serve --port 0 bad a
said 1 "'bad'"
said 1 'pools named above are not exported'
expect 0 '' $cp file "127.0.0.1:$(cat port):a"
expect 6 "no pool 'bad' is exported here; there is 'a'" $cp file "127.0.0.1:$(cat port):bad"
rm bad
refuser=$daemon
launch made.out made --port 0 --create 1M bad
stop
daemon=$refuser
reloads=0
reload
expect 0 '' $cp file "127.0.0.1:$(cat port):bad"
kill $daemon
wait $daemon || fail "exit code $? behind a refused pool"
rm -f bad port
head -c 1M /dev/zero >bad
printf '%s\n' 'port = 0' '[pool bad]' 'path = bad' '[pool a]' 'path = a' >bad.conf
serve --config bad.conf
said 1 'pools named above are not exported'
expect 0 '' $cp file "127.0.0.1:$(cat port):a"
kill $daemon
wait $daemon || fail "exit code $? behind a refused pool of a configuration"
rm -f port
expect 3 "'bad'" ../util/fi_rpmemd --port 0 --port-file port bad
[ -e port ] && fail "a daemon without a pool serves"
rm bad
# A reload tries a pool of the command line again with --create: one of another
# size is refused, and one that does not exist is made.
head -c 1M /dev/zero >bad
serve --port 0 --create 4M bad a
refuser=$daemon
rm bad
launch made.out made --port 0 --create 1M bad
stop
daemon=$refuser
reloads=0
reload
said 1 "pool 'bad' exists with 1 MiB, not 4 MiB"
rm bad
reload
expect 0 '' $cp file "127.0.0.1:$(cat port):bad"
kill $daemon
wait $daemon || fail "exit code $? behind a pool that was made by a reload"
rm -f bad

# A daemon that ends closes its pools.
serve --port 0 --create 4M a
if grep -q 'was not closed' daemon.out; then
	fail "a pool was left open"
fi

# A secret from the command line is read again, too.
kill $daemon
wait $daemon
serve --port 0 --secret app.secret a
a=127.0.0.1:$(cat port):a
cp new.secret app.secret
expect 7 "not the daemon's" $cp --secret new.secret file "$a"
reloads=0
reload
expect 0 '' $cp --secret new.secret file "$a"
exit $failed
