#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_pool: its examples, the Python module, errors, threads, its pages.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter pool
check_library pool pool
lines=$(sed -n '/^int main/,$p' pool.c | wc -l)
[ "$lines" -le 25 ] || fail "the first program has $lines lines"

preload=${RP_PRELOAD:-}$top/fabtests/functional/.libs/libearly_client.so
serve --port 0 --create 4M vol
preload=
grep -q '^early client: connected' daemon.out ||
	fail "a client of a daemon that starts: $(grep early daemon.out)"
skip_without_disk vol daemon.out
programs="page pool"
if ! echo | ${CC:-cc} -x c++ -fsyntax-only - 2>/dev/null; then
	echo "ok - a program in C++ # SKIP ${CC:-cc} compiles no C++"
else
	# shellcheck disable=SC2086 # flags are lists
	${CC:-cc} ${CFLAGS:-} -Wall -Wextra -Werror -I"$src/include" -o pool_cxx \
		-fno-exceptions -x c++ pool.c -x none -L../util/.libs -lrpmem_pool ||
		fail "pool.c as a program in C++"
	programs="$programs pool_cxx"
fi
for program in $programs; do
	dd if=/dev/zero of=vol bs=65536 seek=1 count=1 conv=notrunc 2>/dev/null
	[ "$(./$program 127.0.0.1:"$P":vol)" = \
		"survives a power cut at the target" ] || fail "$program"
	[ "$(dd if=vol bs=8 skip=8192 count=1 2>/dev/null)" = durable ] ||
		fail "$program wrote nothing"
done

# The endpoint below a pool takes posts of the program.
timeout 60 "$top/fabtests/functional/pool_fabric" 127.0.0.1:"$P":vol >out 2>&1 ||
	{ fail "posts on the endpoint of a pool"; cat out; }

# An error names the thing and the remedy.
says "does not begin with a host" ./pool :vol
says "names no pool" ./pool 127.0.0.1:"$P"
says "nothing listens on port 1 of" ./pool 127.0.0.1:1:vol
says "absent" ./pool 127.0.0.1:"$P":absent
# A sanitizer's runtime has to be the first library of a program.
if command -v python3 >/dev/null && [ -z "${RP_SANITIZE:-}" ]; then
	timeout 120 python3 - 127.0.0.1:"$P":vol "$src/util/python" >out 2>&1 <<'P' ||
import errno
import os
import resource
import socket
import sys
import threading
import time

sys.path.insert(0, sys.argv[2])
import rpmem_pool

where = sys.argv[1]


def fails(code, text, call, *args, **kw):
    try:
        call(*args, **kw)
    except OSError as e:
        assert e.errno == code and text in str(e), e
    else:
        raise AssertionError("no error: " + text)


with rpmem_pool.open(where) as pool:
    info = pool.info()
    assert info["length"] == 4 << 20 and info["reached"] == "power", info
    pool.write(b"bytes", 100)
    pool.write(bytearray(b"array"), 105, durable=True)
    assert pool.info()["kept"] > 0
    pool.commit()
    assert pool.info()["kept"] == 0
    assert pool.read(10, 100) == b"bytesarray"
    pool.zero(4, 101)
    assert pool.info()["kept"] == 4
    assert pool.read(10, 100) == b"b\0\0\0\0array"
    pool.zero(3 << 20, 1 << 19, durable=True)
    pool.commit()
    assert pool.info()["kept"] == 0
    assert not any(pool.read(3 << 20, 1 << 19))
    fails(errno.ERANGE, "go beyond its end", pool.zero, 2, (4 << 20) - 1)
    pool.write(b"", 4 << 20)
    assert pool.read(0, 4 << 20) == b""
    fails(errno.ERANGE, "go beyond its end", pool.write, b"x", 4 << 20)
    fails(errno.ERANGE, "go beyond its end", pool.read, 2, (4 << 20) - 1)
    fails(errno.ERANGE, "go beyond its end", pool.write, b"x", (1 << 64) - 1)
    fails(errno.EINVAL, "either durable or buffered", pool.write, b"x", 0,
          durable=True, buffered=True)
    # Buffered writes: this handle reads them, other handles after a commit.
    with rpmem_pool.open(where) as other:
        for i in range(2000):
            pool.write(bytes([i % 251]) * 5000, 997 * i % 3000000,
                       buffered=True)
            if i % 100 == 0:
                assert pool.read(5000, 997 * i % 3000000) == (
                    bytes([i % 251]) * 5000)
        pool.zero(100, 3 << 20, buffered=True)
        pool.write(b"newer", 3 << 20, buffered=True)
        pool.commit()
        assert pool.info()["kept"] == 0
        assert other.read(7, 3 << 20) == b"newer\0\0"
        for i in range(1996, 2000):
            assert other.read(900, 997 * i % 3000000) == bytes([i % 251]) * 900
    # Write more than one post can carry, and than one commit can cover.
    big = bytes(range(256)) * 12288
    for i in range(40):
        pool.write(big, i)
    pool.commit()
    assert pool.read(len(big), 39) == big

    # Without waiting: each operation is returned once, with its context.
    def ended(n):
        ops = []
        while len(ops) < n:
            ops += pool.poll(most=7)
        return {op.context: op for op in ops}

    for i in range(20):
        pool.submit_write(bytes([i]) * 4096, 4096 * i, context=i)
    pool.submit_zero(4096, 4096 * 20, context="zero")
    pool.submit_commit(then=(4096 * 30, 0x6e6568742d), context="commit")
    done = ended(22)
    assert done.keys() == {*range(20), "zero", "commit"}, done
    assert not any(op.error for op in done.values())
    assert pool.info()["kept"] == 0 and pool.poll(timeout_ms=0) == []
    pool.submit_read(8192, 4096 * 19, context="read")
    pool.submit_read(8, 4096 * 30, context="then")
    pool.submit_read(0, 0, context="nothing")
    done = ended(3)
    assert done["read"].data == bytes([19]) * 4096 + bytes(4096)
    assert done["then"].data == b"-then\0\0\0", done["then"].data
    assert done["nothing"].data == b"" and not pool._ops
    fails(errno.ERANGE, "go beyond its end", pool.submit_read, 2, (4 << 20) - 1)
    fails(errno.EINVAL, "multiple of 8", pool.submit_commit, then=(4, 1))
    fails(errno.EINVAL, "either durable or buffered", pool.submit_write, b"x", 0,
          durable=True, buffered=True)
    fails(errno.EINVAL, "room for no operation", pool.poll, 0)
    assert not pool._ops

    def work(n):
        for i in range(50):
            pool.write(bytes([n]) * 1000, n * 1000)
            if i % 5 == n % 5:
                pool.commit()
            assert pool.read(1000, n * 1000) == bytes([n]) * 1000

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    pool.commit()
    assert pool.info()["kept"] == 0
fails(errno.EINVAL, "no failure class", rpmem_pool.open, where, required=7)
fails(errno.EINVAL, "has no port from 1", rpmem_pool.open, "127.0.0.1:1x:vol")
fails(errno.EINVAL, "has no port from 1", rpmem_pool.open, "[::1]:-1:vol")
fails(errno.EACCES, "no/secret", rpmem_pool.open, where, secret="no/secret")
# With too few descriptors each call says so, until there are enough.
hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for more in range(40):
    resource.setrlimit(resource.RLIMIT_NOFILE, hard)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + more, hard[1]))
    try:
        rpmem_pool.open(where, timeout=5).close()
    except OSError as e:
        if e.errno not in (errno.EMFILE, errno.EIO, errno.ETIMEDOUT):
            raise
        if e.errno == errno.EMFILE:
            assert "Too many open files" in str(e), e
    else:
        break
else:
    raise AssertionError("no number of descriptors is enough")
resource.setrlimit(resource.RLIMIT_NOFILE, hard)
lib = rpmem_pool._lib
assert lib.rpmem_pool_open(None, where.encode(), None) == -errno.EINVAL
with rpmem_pool.open(where) as pool:
    handle = pool._pool
    assert lib.rpmem_pool_query(handle, None) == -errno.EINVAL
    # Callers of earlier releases have a shorter struct.
    for size, uuid in (64, [7, 7]), (72, [7, 7]), (88, None), (80, [7, 7]):
        info = rpmem_pool._Info(size=size, length=5, uuid=(7, 7))
        ret = lib.rpmem_pool_query(handle, rpmem_pool.ctypes.byref(info))
        assert ret == (-errno.EINVAL if size == 80 else 0), size
        assert info.length == (5 if size == 80 else 4 << 20)
        assert uuid is None or list(info.uuid) == uuid, size
    with rpmem_pool.open(where) as other:
        assert other.info()["uuid"] == pool.info()["uuid"] != bytes(16)
    assert lib.rpmem_pool_write(handle, None, 1, 0, 0) == -errno.EINVAL
    assert lib.rpmem_pool_read(handle, None, 1, 0) == -errno.EINVAL
    assert lib.rpmem_pool_write(handle, None, 0, 0, 0) == 0



drop = 3  # connections that relay() closes unanswered
forwarded = []  # sockets of the other ones


def relay(listener, port):
    """Forwards connections, and closes the first ones unanswered."""
    global drop
    while True:
        near, _ = listener.accept()
        if drop > 0:
            drop -= 1
            near.close()
            continue
        far = socket.create_connection(("127.0.0.1", port))
        forwarded.extend((near, far))
        for a, b in (near, far), (far, near):
            threading.Thread(target=forward, args=(a, b), daemon=True).start()


def forward(a, b):
    try:
        while data := a.recv(4096):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


# The daemon ends during a request: the library repeats the request later.
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=relay, daemon=True,
                 args=(listener, int(where.split(":")[1]))).start()
through = f"127.0.0.1:{listener.getsockname()[1]}:vol"
fails(errno.EIO, "", rpmem_pool.open, through, wait=-1)
with rpmem_pool.open(through, wait=600) as pool:
    pool.write(b"again", 0, durable=True)
    assert pool.read(5, 0) == b"again"

# Clients share a pool, or one client has it exclusively.
with rpmem_pool.open(where) as a, rpmem_pool.open(where) as b:
    a.write(b"shared", 0)
    assert b.read(6, 0) == b"shared"
    fails(errno.EBUSY, "is open at a client on 127.0.0.1", rpmem_pool.open,
          where, exclusive=True)


def until_free(place=where, **kw):
    """Open the pool: the daemon notices a closed pool soon, not at once."""
    while True:
        try:
            return rpmem_pool.open(place, **kw)
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise


def lose_lease(more):
    """Close the relay's connections, and the next `more` ones, too."""
    global drop
    drop = more
    while forwarded:
        try:
            forwarded.pop().shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


# Parts of a pool; and a client that only reads, beside an exclusive one.
with until_free(exclusive=True) as alone:
    alone.divide(2)
    alone.write(b"of the second part", 2 << 20, durable=True)
    with rpmem_pool.open(where, exclusive=rpmem_pool.OBSERVE) as observer:
        assert observer.read(18, 2 << 20) == b"of the second part"
        fails(errno.EACCES, "RPMEM_POOL_OBSERVE only allows to read",
              observer.write, b"x", 0)
        fails(errno.EACCES, "RPMEM_POOL_OBSERVE only allows to read",
              observer.submit_write, b"x", 0)
fails(errno.ENXIO, "has 2 part(s), not 3", until_free, parts=3, part=1)
fails(errno.EINVAL, "part 2 of 2", rpmem_pool.open, where, parts=2, part=2)
with until_free(parts=2, part=1, exclusive=True) as part:
    assert part.info()["length"] == 2 << 20
    assert part.read(18, 0) == b"of the second part"
with until_free(exclusive=True) as alone:
    alone.divide(1)

for exclusive in True, False:
    alone = until_free(through, exclusive=True)
    fails(errno.EBUSY, "is open exclusively", rpmem_pool.open, where)
    alone.write(b"first", 0)
    # Without another client, a lost connection does no harm.
    lose_lease(0)
    while not alone.info()["reconnects"]:
        time.sleep(0.01)
    alone.write(b"still", 0)
    alone.commit()
    alone.write(b"kept", 16)
    lose_lease(1 << 30)
    # If another client has opened the pool, the former owner can change nothing
    # and gets an error; its kept bytes do not replace those of the other
    # client.
    with until_free(exclusive=exclusive) as follower:
        follower.write(b"follower", 0, durable=True)
        follower.write(b"newer", 16)
        follower.commit()
        drop = 0
        fails(errno.ESTALE, "another client has opened pool 'vol'",
              alone.write, b"former", 0)
        fails(errno.ESTALE, "another client has opened pool 'vol'",
              alone.commit)
        assert follower.read(8, 0) == b"follower"
        assert follower.read(5, 16) == b"newer"
    alone.close()
print("all of it")
P
		fail "the Python module"
	grep -q "^all of it" out || { fail "the Python module"; cat out; }
fi
stop

# The pool's file grows while a client has uncommitted bytes: after SIGHUP to
# the daemon the client gets the new length. If the disk has no room for the new
# blocks, the daemon cuts the file to its former length.
serve --port 0 vol
if command -v python3 >/dev/null && [ -z "${RP_SANITIZE:-}" ]; then
	timeout 120 python3 - 127.0.0.1:"$P":vol "$src/util/python" $daemon >out 2>&1 <<'P' ||
import os
import signal
import sys
import time

sys.path.insert(0, sys.argv[2])
import rpmem_pool


def hang_up(text):
    """Send SIGHUP, and wait for a line of the daemon."""
    os.kill(int(sys.argv[3]), signal.SIGHUP)
    while True:
        with open("daemon.out", encoding="utf-8") as f:
            if text in f.read():
                return
        time.sleep(0.02)


with rpmem_pool.open(sys.argv[1], exclusive=True) as pool:
    pool.write(b"not committed", 0)
    short = os.stat("vol").st_size
    os.truncate("vol", short + (4 << 20) - 100)
    hang_up("pool 'vol' has 8 MiB now")
    pool.write(b"kept", (4 << 20) - 4)
    assert pool.info()["length"] == 8 << 20, pool.info()
    pool.write(b"beyond the former end", 6 << 20)
    pool.commit()
    assert pool.read(13, 0) == b"not committed"
    assert pool.read(21, 6 << 20) == b"beyond the former end"
    there = os.statvfs(".")
    # More than the whole disk: what others free meanwhile is not enough.
    os.truncate("vol", short + (4 << 20) + there.f_blocks * there.f_frsize)
    hang_up("pool 'vol' cannot grow by")
    assert os.stat("vol").st_size == short + (4 << 20)
    pool.write(b"after", 7 << 20, durable=True)
print("all of it")
P
		fail "a pool that grows"
	grep -q "^all of it" out || { fail "a pool that grows"; cat out daemon.out; }
	stop
	serve --port 0 vol
	grep -q '^vol  *8 MiB' daemon.out || { fail "its size"; cat daemon.out; }
fi
stop

# While the daemon is away, another pool gets the name of its pool, or an older
# and shorter copy does. A client with uncommitted bytes gets an error, and the new
# pool none of these bytes.
serve --port 0 --create 8M other
stop
serve --port 0 --create 8M fresh
stop
serve --port 0 --create 4M first
stop
cp first shorter
serve --port 0 first
truncate -s +4M first
kill -HUP $daemon
await $daemon grep -q "pool 'first' has 8 MiB now" daemon.out || fail "it grows"
stop
if command -v python3 >/dev/null && [ -z "${RP_SANITIZE:-}" ]; then
	timeout 120 python3 - "$src/util/python" >out 2>&1 <<'P' ||
import errno
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, sys.argv[1])
import rpmem_pool


def serve(port):
    """Start a daemon of vol; returns it and its port."""
    open("ready", "w").close()
    daemon = subprocess.Popen(["../util/fi_rpmemd", "--port", port,
                               "--port-file", "ready", "vol"])
    while not os.path.getsize("ready"):
        assert daemon.poll() is None
        time.sleep(0.02)
    with open("ready", encoding="ascii") as f:
        return daemon, f.read().strip()


def refused(new, sentence, **attr):
    """The file new takes the place of the pool: the client has to refuse it."""
    shutil.copy("first", "vol")
    daemon, port = serve("0")
    try:
        with rpmem_pool.open(f"127.0.0.1:{port}:vol", **attr) as pool:
            pool.write(b"uncommitted", 4096)
            daemon.kill()
            daemon.wait()
            os.rename(new, "vol")
            daemon, _ = serve(port)
            pool.submit_commit(context="commit")
            op, = pool.poll()
            assert op.context == "commit" and op.error, "a commit succeeds"
            assert op.error.errno == errno.ESTALE and sentence in str(op.error)
            for call in pool.commit, lambda: pool.write(b"later", 0):
                try:
                    call()
                except OSError as e:
                    assert e.errno == errno.ESTALE and sentence in str(e), e
                else:
                    raise AssertionError("no error: " + sentence)
    finally:
        daemon.kill()
        daemon.wait()
    with open("vol", "rb") as f:
        found = f.read()
    assert b"uncommitted" not in found and b"later" not in found, sentence


def idle_client_comes_back():
    """The daemon dies while an exclusive client makes no calls."""
    shutil.copy("first", "vol")
    daemon, port = serve("0")
    where = f"127.0.0.1:{port}:vol"
    try:
        with rpmem_pool.open(where, exclusive=True) as pool:
            pool.write(b"uncommitted", 4096)
            daemon.kill()
            daemon.wait()
            daemon, _ = serve(port)
            while not pool.info()["reconnects"]:
                time.sleep(0.01)
            try:
                rpmem_pool.open(where)
            except OSError as e:
                assert e.errno == errno.EBUSY, e
                assert "is open exclusively at a client" in str(e), e
            else:
                raise AssertionError("a second writer is admitted")
            pool.commit()
            assert pool.read(11, 4096) == b"uncommitted"
    finally:
        daemon.kill()
        daemon.wait()


idle_client_comes_back()
refused("shorter", "pool 'vol' on 127.0.0.1 has shrunk from 8388608 to 4194304 "
        "bytes; what was not committed is lost: open the pool again")
refused("other", "pool 'vol' on 127.0.0.1 was replaced by another pool; what "
        "was not committed to the first one is lost: open the pool again")
refused("fresh", "pool 'vol' is a new one; what was not committed is lost: "
        "open the pool again", exclusive=True)
print("all of it")
P
		fail "a pool that was replaced"
	grep -q "^all of it" out || { fail "a pool that was replaced"; cat out; }
fi

# A slow disk is no absent target: a commit may take longer than the timeout.
if command -v python3 >/dev/null && [ -z "${RP_SANITIZE:-}" ]; then
	mkdir fault
	ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" fault/
	provider=$FI_PROVIDER_PATH
	FI_PROVIDER_PATH=$PWD/fault RPMEM_FAULT=slow-flush RPMEM_FAULT_MS=2500
	export RPMEM_FAULT RPMEM_FAULT_MS
	serve --port 0 vol
	FI_PROVIDER_PATH=$provider
	unset RPMEM_FAULT RPMEM_FAULT_MS
	timeout 120 python3 - 127.0.0.1:"$P":vol "$src/util/python" >out 2>&1 <<'P' ||
import sys

sys.path.insert(0, sys.argv[2])
import rpmem_pool

with rpmem_pool.open(sys.argv[1], timeout=1) as pool:
    pool.write(b"slowly", 0)
    pool.commit()
    pool.write(b"slowly", 0, durable=True)
P
		{ fail "a slow disk"; cat out daemon.out; }
	stop
fi

# A pool with a secret.
(umask 077 && head -c 32 /dev/urandom | base64 >secret)
serve --port 0 --secret secret vol
says "secret" ./pool 127.0.0.1:"$P":vol
stop

# A pool that does not reach power is refused.
shm=$(mktemp -d /dev/shm/rpmem-pool.XXXXXX) && {
	serve --port 0 --create 4M "$shm/weak"
	says "weaker than required" ./pool 127.0.0.1:"$P":weak
	# Required less, a durable write is still one request, without a commit.
	! command -v python3 >/dev/null || [ -n "${RP_SANITIZE:-}" ] ||
		timeout 60 python3 - 127.0.0.1:"$P":weak "$src/util/python" \
			"$top/util/fi_rpmem_info" >out 2>&1 <<'P' ||
import json
import os
import subprocess
import sys

sys.path.insert(0, sys.argv[2])
import rpmem_pool

with rpmem_pool.open(sys.argv[1], required=rpmem_pool.PROCESS) as pool:
    for i in range(9):
        pool.write(b"durable", 4096 * i, durable=True)
    stats = subprocess.check_output(
        [sys.argv[3], f"--stats={os.getpid()}", "--json"])
    done = json.loads(stats)[0]["initiator"]["operations"]
    assert done["write"]["count"] == 9, done
    assert done["commit"]["count"] == 0, done
P
		{ fail "durable writes of class process"; cat out; }
	stop
	rm -rf "$shm"
}
exit $failed
