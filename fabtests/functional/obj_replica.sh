#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem.so.1 under an unchanged libpmemobj and pmempool: a replica in a pool
# of fi_rpmemd, through kills of the program, of the target, and of both, with
# the pool cut to what msync has covered, and the loss of either copy.
# usage: obj_replica.sh [KILLS]
set -u
kills=${1:-3}
[ "${RP_LONG:-0}" != 1 ] || kills=${1:-100}
case ${RP_SANITIZE:-} in ?*)
	echo "SKIP: libpmemobj loads the library without a sanitizer's runtime"
	exit 77 ;;
esac
command -v pmempool >/dev/null && [ -x fabtests/functional/obj_replica ] || {
	echo "SKIP: no libpmemobj 1.12 with its tools"
	exit 77
}
dir=$(mktemp -d ./objrep.XXXXXX) || exit 99
cd "$dir" || exit 99
top=$(cd .. && pwd)
obj=$top/fabtests/functional/obj_replica
LD_LIBRARY_PATH=$top/util/.libs
export LD_LIBRARY_PATH
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
daemon= program= failed=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS

finish()
{
	for pid in $daemon $program; do
		kill -9 "$pid" 2>/dev/null
	done
	cd .. && rm -rf "$dir"
}
trap finish EXIT

fail()
{
	echo "FAIL: $* (RP_SEED=$RP_SEED)"
	failed=1
}

# serve PORT: start a daemon; its shadow vol.safe has what msync has covered
serve()
{
	rm -f port
	LD_PRELOAD=$top/fabtests/fault/.libs/libshadow.so \
		RPMEM_SHADOW=vol:vol.safe "$top/util/fi_rpmemd" \
		--port "$1" --port-file port --create 10M vol >daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 400); do
		[ -e port ] && break
		kill -0 $daemon 2>/dev/null || break
		sleep 0.05
	done
	[ -e port ] || { fail "no daemon"; cat daemon.out; exit 1; }
	P=$(cat port)
}

die()
{
	kill -9 "$1"
	wait "$1" 2>/dev/null
}

# below N: set chance to the next pseudo-random number below N
state=$RP_SEED
below()
{
	state=$(((state * 1103515245 + 12345) % 2147483648))
	chance=$((state / 65536 % $1))
}

# begin: run transactions in the background until some more have completed
begin()
{
	: >acks
	$obj run set >>acks 2>err &
	program=$!
	below 30
	more=$((chance + 1))
	for _ in $(seq 2000); do
		[ "$(wc -l <acks)" -ge $more ] && return
		kill -0 $program 2>/dev/null || break
		sleep 0.01
	done
	fail "no transactions"
	cat acks err daemon.out
}

# has WHAT: the pool set has every transaction that has completed
has()
{
	if ! $obj check set >out 2>&1; then
		fail "$1: not consistent"
		cat out
	elif [ "$(tail -n 1 out)" -lt "$(tail -n 1 acks)" ]; then
		fail "$1: $(tail -n 1 acks) completed, $(cat out) are there"
	fi
}

# The copy that pmempool makes from the remaining one is the same except for the
# first 8 KiB: the header, and bytes that only one process uses.
equal()
{
	cmp -n $((9 * 1048576 - 8192)) -i 8192:$((65536 + 8192)) part vol ||
		fail "$1: the copies differ"
}

# survived WHAT: each copy has every completed transaction, also alone
survived()
{
	has "$1"
	rm part
	pmempool sync set >out 2>&1 || { fail "$1: sync"; cat out; }
	equal "$1"
	has "$1, the replica"
}

serve 0
cat >set <<S
PMEMPOOLSET
9M $PWD/part
REPLICA 127.0.0.1:$P vol
S
$obj create set >out 2>&1 || { fail "create"; cat out; exit 1; }
$obj flush set >out 2>&1 || { fail "flush"; cat out; }
rm -f part
$obj create set >out 2>&1 && fail "a replica is overwritten"
pmempool rm -r -f set || fail "pmempool rm"
rm -f part
$obj create set >out 2>&1 || { fail "create after rm"; cat out; exit 1; }
pmempool info set >out 2>&1 || fail "pmempool info"
grep -q "node  *: 127.0.0.1:$P" out || { fail "no replica"; cat out; }

cuts=0
for i in $(seq "$kills"); do
	begin

	case $((i % 3)) in
	0) # the program
		die $program
		survived "program killed"
		;;
	1) # the target, under the program, which waits for it
		die $daemon
		serve "$P"
		more=$(($(wc -l <acks) + 5))
		while [ "$(wc -l <acks)" -lt $more ] && kill -0 $program; do
			sleep 0.01
		done
		die $program
		survived "target killed"
		;;
	2) # both, with a power cut of the target
		die $daemon
		die $program
		cp vol.safe vol
		serve "$P"
		survived "both killed"
		cuts=$((cuts + 1))
		;;
	esac
	program=
done
# A power cut of the target, and loss of the first copy: flushed bytes survive.
begin
die $daemon
die $program
program=
cp vol.safe vol
serve "$P"
rm part
pmempool sync set >out 2>&1 || { fail "sync"; cat out; }
has "first copy lost in a power cut"
# The replica is lost: the pool set is refused until pmempool makes a new one.
kill $daemon && wait $daemon
rm -f vol vol.safe
serve "$P"
$obj check set >out 2>&1 && fail "a replica that is lost goes unnoticed"
pmempool sync set >out 2>&1 || { fail "sync of the replica"; cat out; }
equal "replica lost"
has "replica lost"
# A replica is removed and added again; pmempool checks the pool set without it.
printf 'PMEMPOOLSET\n9M %s/part\n' "$PWD" >alone
pmempool transform set alone >out 2>&1 || { fail "transform"; cat out; }
$obj check set >out 2>&1 && fail "the replica is there behind transform"
pmempool check alone >out 2>&1 || { fail "pmempool check"; cat out; }
pmempool transform alone set >out 2>&1 || { fail "transform back"; cat out; }
equal "transform"
has "transform"
rm part
pmempool sync set >out 2>&1 || { fail "sync behind transform"; cat out; }
pmempool check set >out 2>&1 && fail "pmempool check takes a replica: librpmem(7)"
has "first copy lost behind transform"
echo "$kills kills, $cuts of them power cuts"

# Error messages name what is missing.
cat >wrong.py <<'P'
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
lib.rpmem_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                           ctypes.c_size_t, ctypes.c_uint]
where = sys.argv[1].encode()
memory = ctypes.create_string_buffer(1 << 20)


def opened(target, name, size, lanes=4):
    n = ctypes.c_uint(lanes)
    return lib.rpmem_open(target, name, memory, ctypes.c_size_t(size),
                          ctypes.byref(n), None)


def fails(code, text, ret):
    assert ret in (None, -1), ret
    assert ctypes.get_errno() == getattr(errno, code), ctypes.get_errno()
    assert text in lib.rpmem_errormsg().decode(), lib.rpmem_errormsg()


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
assert lib.rpmem_close(r) == 0
assert attributes() == bytes(second)
os.environ["RPMEM_SECRET"] = "no/secret"
fails("EACCES", "no/secret", lib.rpmem_remove(where, b"vol", 1))
del os.environ["RPMEM_SECRET"]
assert attributes() == bytes(second)
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
python3 wrong.py 127.0.0.1:"$P" >out 2>&1 || { fail "errors"; cat out; }
exit $failed
