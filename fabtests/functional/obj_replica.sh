#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem.so.1 under an unchanged libpmemobj and pmempool: a replica in a pool
# of fi_rpmemd, through kills of the program, of the target, and of both, with
# the pool cut to what msync has covered, and the loss of either copy.
# usage: obj_replica.sh [PROGRAM TARGET BOTH]    kills of each kind
set -u
# shellcheck source=fabtests/functional/obj_suite.sh
. "${srcdir:-.}/fabtests/functional/obj_suite.sh"
[ $# = 3 ] || set -- 1 1 1
[ "${RP_LONG:-0}" != 1 ] || set -- 100 30 30
obj_enter objrep
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "RP_SEED=$RP_SEED"

die()
{
	kill -9 "$1"
	wait "$1" 2>/dev/null
}

serve_again()
{
	serve_vol --create 10M
}

# below N: set chance to the next pseudo-random number below N
state=$RP_SEED
below()
{
	state=$(((state * 1103515245 + 12345) % 2147483648))
	chance=$((state / 65536 % $1))
}

# some: run transactions in the background until a random number has completed
some()
{
	below 60
	begin $((chance + 1))
}

# survived WHAT: each copy has every completed transaction, also alone
survived()
{
	has "$1"
	equal "$1"
	rm part
	does tool sync set
	has "$1, the replica"
}

# kill_program COUNT, kill_target COUNT, kill_both COUNT: one kind of kill each.
# Whatever is left must be bounded, too.
kill_program()
{
	for _ in $(seq "$1"); do
		some
		die "$program"
		survived "program killed"
	done
}
kill_target()
{
	for _ in $(seq "$1"); do
		some
		die "$daemon"
		serve_again
		# The program waits for the target, and goes on.
		if ! await "$program" acknowledged $(($(wc -l <acks) + 5)) ||
			! kill -0 "$program"; then
			fail "target killed: the program stops: $(cat err)"
		fi
		die "$program"
		survived "target killed"
	done
}
kill_both()
{
	for _ in $(seq "$1"); do
		some
		die "$daemon"
		die "$program"
		cp vol.safe vol
		serve_again
		survived "both killed"
	done
}

serve_again
printf 'PMEMPOOLSET\n9M %s/part\nREPLICA 127.0.0.1:%s vol\n' \
	"$PWD" "$port" >set
does obj create set || exit 1
does obj flush set
rm -f part
refuses "a replica is overwritten" obj create set
does tool rm -r -f set
rm -f part
does tool create obj --layout replica set || exit 1
does tool info set
grep -q "node  *: 127.0.0.1:$port" out || fail "no replica: $(cat out)"

kill_program "$1"
kill_target "$2"
kill_both "$3"
# A power cut of the target, and loss of the first copy: flushed bytes survive.
some
die "$daemon"
die "$program"
cp vol.safe vol
serve_again
rm part
does tool sync set
has "first copy lost in a power cut"
# The replica is lost: the pool set is refused until pmempool makes a new one.
stop
rm -f vol vol.safe
serve_again
refuses "a replica that is lost goes unnoticed" obj check set
does tool sync set
has "replica lost"
equal "replica lost"
# A replica is removed and added again; pmempool checks the pool set without it.
printf 'PMEMPOOLSET\n9M %s/part\n' "$PWD" >alone
does tool transform set alone
refuses "the replica is there behind transform" obj check set
does tool check alone
does tool transform alone set
has "transform"
equal "transform"
rm part
does tool sync set
refuses "pmempool check takes a replica: librpmem(7)" tool check set
has "first copy lost behind transform"
echo "kills: $1 of the program, $2 of the target, $3 of both, with a power cut"

# Error messages name what is missing.
cat >wrong_lib.py <<'P'
import ctypes
import errno
import os
import sys

lib = ctypes.CDLL("librpmem.so.1", use_errno=True)
lib.rpmem_create.restype = lib.rpmem_open.restype = ctypes.c_void_p
lib.rpmem_errormsg.restype = lib.rpmem_check_version.restype = ctypes.c_char_p
lib.rpmem_close.argtypes = [ctypes.c_void_p]
lib.rpmem_set_attr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.rpmem_drain.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
lib.rpmem_flush.argtypes = [ctypes.c_void_p, ctypes.c_size_t,
                            ctypes.c_size_t, ctypes.c_uint, ctypes.c_uint]
lib.rpmem_persist.argtypes = [ctypes.c_void_p, ctypes.c_size_t,
                              ctypes.c_size_t, ctypes.c_uint, ctypes.c_uint]
lib.rpmem_deep_persist.argtypes = [ctypes.c_void_p, ctypes.c_size_t,
                                   ctypes.c_size_t, ctypes.c_uint]
lib.rpmem_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                           ctypes.c_size_t, ctypes.c_uint]
where, weak = (f"127.0.0.1:{port}".encode() for port in sys.argv[1:3])
memory = ctypes.create_string_buffer(1 << 20)


def opened(target, name, size, lanes=4):
    n = ctypes.c_uint(lanes)
    return lib.rpmem_open(target, name, memory, ctypes.c_size_t(size),
                          ctypes.byref(n), None)


def fails(code, text, ret):
    assert ret in (None, -1), ret
    assert ctypes.get_errno() == getattr(errno, code), ctypes.get_errno()
    assert text in lib.rpmem_errormsg().decode(), lib.rpmem_errormsg()
P
cat >wrong.py <<'P'
from wrong_lib import *

assert lib.rpmem_check_version(1, 3) is None
assert b"2.0 is required" in lib.rpmem_check_version(2, 0)
fails("ENOENT", "absent", opened(where, b"absent", 1 << 20))
fails("ECONNREFUSED", "ssh starts fi_rpmemd", opened(b"127.0.0.1:1", b"vol", 8192))
fails("EFBIG", "are needed", opened(where, b"vol", 1 << 30))
fails("EINVAL", "too small", opened(where, b"vol", 4096))
r = opened(where, b"vol", 1 << 20)
assert r, lib.rpmem_errormsg()
fails("EINVAL", "go beyond", lib.rpmem_persist(r, (1 << 20) - 8, 9, 0, 0))
fails("EINVAL", "attributes", lib.rpmem_persist(r, 4088, 16, 0, 0))
fails("EINVAL", "lane 4 of 4", lib.rpmem_persist(r, 8192, 8, 4, 0))
fails("EINVAL", "unknown", lib.rpmem_persist(r, 8192, 8, 0, 2))
fails("EINVAL", "go beyond", lib.rpmem_read(r, memory, 2**64 - 8, 16, 0))
assert lib.rpmem_flush(r, 8192, 8, 0, 1) == 0
fails("EINVAL", "go beyond", lib.rpmem_deep_persist(r, (1 << 20) - 8, 9, 0))
assert lib.rpmem_drain(r, 1, 0) == 0
fails("EINVAL", "lane 4 of 4", lib.rpmem_drain(r, 4, 0))
assert lib.rpmem_close(r) == 0


class Take(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("secret", ctypes.c_char_p),
                ("required", ctypes.c_int), ("timeout", ctypes.c_uint),
                ("exclusive", ctypes.c_int), ("parts", ctypes.c_uint),
                ("part", ctypes.c_uint), ("wait", ctypes.c_int)]


class Attr(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 104)]


def created(attr):
    n = ctypes.c_uint(4096)
    r = lib.rpmem_create(where, b"vol", memory, ctypes.c_size_t(1 << 20),
                         ctypes.byref(n), attr and ctypes.byref(attr))
    assert not r or n.value == 1024, n.value
    return r


def attributes():
    n, attr = ctypes.c_uint(1), Attr()
    r = lib.rpmem_open(where, b"vol", memory, ctypes.c_size_t(1 << 20),
                       ctypes.byref(n), ctypes.byref(attr))
    if r:
        assert lib.rpmem_close(r) == 0
    return r and bytes(attr)


first, second = (Attr((ctypes.c_ubyte * 104)(*range(k, k + 104)))
                 for k in (1, 2))
fails("EEXIST", "remove it with", created(first))
assert lib.rpmem_remove(where, b"vol", 0) == 0
fails("ENOENT", "has no replica", attributes())
r = created(first)
assert r and attributes() is None  # one user at a time
assert lib.rpmem_close(r) == 0
assert attributes() == bytes(first)
n = ctypes.c_uint(1)
r = lib.rpmem_open(where, b"vol", memory, ctypes.c_size_t(1 << 20),
                   ctypes.byref(n), None)
assert lib.rpmem_set_attr(r, ctypes.byref(second)) == 0
memory.raw = b"\5" * (1 << 20)
assert lib.rpmem_persist(r, 4096, 100000, 0, 0) == 0
back = ctypes.create_string_buffer(100008)
assert lib.rpmem_read(r, back, 4096, 100008, 0) == 0
assert back.raw[:100000] == b"\5" * 100000
# vol.safe has what msync has covered, from byte 65536 on.
memory.raw = b"\6" * (1 << 20)
assert lib.rpmem_deep_persist(r, 200000, 3, 0) == 0
with open("vol.safe", "rb") as f:
    f.seek(65536 + 200000)
    assert f.read(4) == b"\6\6\6\0"
assert lib.rpmem_close(r) == 0
assert attributes() == bytes(second)
os.environ["RPMEM_SECRET"] = "no/secret"
fails("EACCES", "no/secret", lib.rpmem_remove(where, b"vol", 1))
del os.environ["RPMEM_SECRET"]
assert attributes() == bytes(second)
os.environ["RPMEM_CLASS"] = "disk"
fails("EINVAL", "RPMEM_CLASS=disk: give power, process or none",
      opened(where, b"vol", 1 << 20))
del os.environ["RPMEM_CLASS"]
# The pool of the other daemon survives no power cut.
fails("ENOTSUP", "is of class process, weaker than required (power): file weak "
      "on tmpfs: outlives the process, not the machine; put it on storage of "
      "class power there, or require less (RPMEM_CLASS)",
      opened(weak, b"weak", 1 << 20))
os.environ["RPMEM_CLASS"] = "process"
r = opened(weak, b"weak", 1 << 20)
assert r and lib.rpmem_persist(r, 8192, 8, 0, 0) == 0, lib.rpmem_errormsg()
assert lib.rpmem_close(r) == 0
del os.environ["RPMEM_CLASS"]
os.environ["RPMEM_MAX_NLANES"] = "many"
fails("EINVAL", "RPMEM_MAX_NLANES", opened(where, b"vol", 1 << 20))
del os.environ["RPMEM_MAX_NLANES"]
assert lib.rpmem_remove(where, b"vol", 3) == 0
fails("ENOENT", "has no replica", lib.rpmem_remove(where, b"vol", 0))
assert lib.rpmem_remove(where, b"vol", 1) == 0
assert lib.rpmem_remove(where, b"absent", 1) == 0
r = created(None)
assert r and lib.rpmem_persist(r, 0, 4096, 0, 0) == 0
# After a failure all writes fail at once.
pool = ctypes.CDLL("librpmem_pool.so.0", use_errno=True)
other = ctypes.c_void_p()
take = Take(size=ctypes.sizeof(Take), exclusive=2)
assert pool.rpmem_pool_open(ctypes.byref(other), where + b":vol",
                            ctypes.byref(take)) == 0
fails("ESTALE", "another client", lib.rpmem_persist(r, 0, 8, 0, 0))
fails("ESTALE", "an earlier write", lib.rpmem_persist(r, 0, 8, 0, 0))
fails("ESTALE", "an earlier write", lib.rpmem_drain(r, 0, 0))
assert lib.rpmem_close(r) == 0
pool.rpmem_pool_close(other)
fails("EEXIST", "holds something else", created(None))
r = opened(where, b"vol", 1 << 20)
assert r, lib.rpmem_errormsg()
fails("EINVAL", "without attributes", lib.rpmem_set_attr(r, None))
assert lib.rpmem_close(r) == 0
fails("EEXIST", "holds something else", created(first))
fails("ENOENT", "has no replica", lib.rpmem_remove(where, b"vol", 0))
P
cat >failing.py <<'P'
# No write to this target becomes durable: the first one says so, and so do all
# later calls of this opening, until the replica is opened again.
from wrong_lib import *

how, code, text = sys.argv[3:6]
r = opened(where, b"vol", 1 << 20)
assert r, lib.rpmem_errormsg()
assert lib.rpmem_flush(r, 8192, 8, 0, 0) == 0, lib.rpmem_errormsg()
if how != "disk":
    os.kill(int(how), 9)
fails(code, text, lib.rpmem_persist(r, 8192, 8, 0, 0))
for _ in range(2):
    fails(code, "an earlier write", lib.rpmem_persist(r, 8192, 8, 1, 0))
fails(code, "an earlier write", lib.rpmem_flush(r, 8192, 8, 0, 0))
fails(code, "an earlier write", lib.rpmem_drain(r, 0, 0))
fails(code, "an earlier write", lib.rpmem_deep_persist(r, 8192, 8, 0))
fails(code, "an earlier write", lib.rpmem_read(r, memory, 8192, 8, 0))
assert lib.rpmem_close(r) == 0
P
# A daemon whose pool survives no power cut, on a file system in memory.
strong=$port
shm=$(mktemp -d /dev/shm/objrep.XXXXXX) || exit 99
strong_daemon=$daemon
launch weak.out weak.port --port 0 --create 2M "$shm/weak"
weak=$(cat weak.port)
does timeout $hang python3 wrong.py "$strong" "$weak"

# The target's disk fails, then the target stays away.
mkdir fault
ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" fault/
provider=$FI_PROVIDER_PATH
daemon=$strong_daemon
stop
FI_PROVIDER_PATH=$PWD/fault RPMEM_FAULT=fail-flush
export RPMEM_FAULT
serve_again
FI_PROVIDER_PATH=$provider
unset RPMEM_FAULT
does timeout $hang python3 failing.py "$port" "$weak" disk EIO \
	"the disk of pool 'vol' on 127.0.0.1 has failed"
if [ "${RP_LONG:-0}" = 1 ]; then
	die "$daemon"
	serve_again
	does timeout $hang python3 failing.py "$port" "$weak" "$daemon" \
		ETIMEDOUT \
		'not reached for 60 seconds: nothing listens on port'
fi
exit $failed
