#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem.so.1 reaches its replica by ssh: a real sshd of this test on
# loopback, one fi_rpmemd for each session, no process left whatever is killed,
# and errors that name the cause.
# usage: obj_ssh.sh
set -u
# shellcheck source=fabtests/functional/obj_suite.sh
. "${srcdir:-.}/fabtests/functional/obj_suite.sh"
if ! sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) ||
	! command -v ssh >/dev/null; then
	echo "SKIP: no sshd, or no ssh (openssh-server, openssh-client)"
	exit 77
fi
obj_enter objssh
here=$PWD

# The sessions' processes, and this test's.
end_all()
{
	cat pids.* 2>/dev/null >left
	while read -r pid; do
		kill -9 "$pid" 2>/dev/null
	done <left
	finish
}
trap end_all EXIT

# --- both ends: an sshd with one key; ssh and the command record their pids
for key in host user other forced; do
	ssh-keygen -q -t ed25519 -N '' -C '' -f $key || exit 99
done
{
	cat user.pub
	echo "command=\"$here/command\" $(cat forced.pub)"
} >authorized
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
for _ in $(seq 20); do
	port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000))
	cat >sshd.conf <<S
Port $port
ListenAddress 127.0.0.1
HostKey $here/host
AuthorizedKeysFile $here/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
S
	"$sshd" -D -e -f "$here/sshd.conf" >sshd.log 2>&1 &
	server=$!
	if await $server grep -q 'Server listening' sshd.log; then
		pids="$pids $server"
		break
	fi
	wait $server
	server=
done
[ -n "$server" ] || { echo "SKIP: no sshd here: $(tail -n 1 sshd.log)"; exit 77; }
printf '[127.0.0.1]:%s %s\n' "$port" "$(cat host.pub)" >known
cat >ssh_config <<S
Host *
	IdentitiesOnly yes
	IdentityAgent none
	UserKnownHostsFile $here/known
	GlobalKnownHostsFile none
S
for key in user other forced; do
	cat >ssh.$key <<S
#!/bin/sh
echo \$\$ >>$here/pids.ssh
exec ssh -F $here/ssh_config -i $here/$key "\$@"
S
done
cat >command <<S
#!/bin/sh
echo \$\$ >>$here/pids.target
FI_PROVIDER_PATH=$FI_PROVIDER_PATH FI_TCP_IFACE=lo
FI_OFI_RPMEM_TRUST_FS=${FI_OFI_RPMEM_TRUST_FS:-}
export FI_PROVIDER_PATH FI_TCP_IFACE FI_OFI_RPMEM_TRUST_FS
exec $top/util/fi_rpmemd --one-shot=$here/target "\$@"
S
# Without a login: the command runs on this host, with pipes as over ssh.
cat >ssh.local <<S
#!/bin/sh
echo \$\$ >>$here/pids.ssh
for last; do :; done
exec sh -c "\$last"
S
# With another port in the reply, the daemon serves a pool that no client reaches.
cat >other_port <<S
#!/bin/sh
$here/command | sed -u "s/^\(.* serves [^ ]* [^ ]*\) [0-9]*/\1 \$1/"
S
chmod +x command other_port ssh.*
RPMEM_SSH=$here/ssh.user RPMEM_CMD=$here/command
export RPMEM_SSH RPMEM_CMD
me=$(id -un)
at=$me@127.0.0.1:$port
mkdir -p target/sub
printf 'PMEMPOOLSET\n# a comment\nOPTION SINGLEHDR\n10M %s/vol\n' "$here" >target/data.set

# ended SECONDS PID: wait without forks until the process has ended
ended()
{
	kill -0 "$2" 2>/dev/null || return 0
	timeout "$1" tail --pid="$2" -s 0.05 -f /dev/null
}

# gone WHAT: no process of a session is left, so no pool is in use
gone()
{
	left=
	for pid in $(cat pids.*); do
		ended 30 "$pid" || left="$left $pid"
	done
	[ -z "$left" ] || fail "$1: still there: $(ps -o pid=,args= -p "$(echo $left | tr ' ' ,)")"
	rm -f pids.*
}

# ends WHAT: the program that lost its replica ends by itself, with an error
ends()
{
	ended 45 "$program"
	kill -9 "$program" 2>/dev/null && fail "$1: the program hangs"
	wait "$program" && fail "$1: the program ends as if nothing were wrong"
	program=
}

# kept WHAT: the pool set has every completed transaction. No login is needed.
kept()
{
	login=$RPMEM_SSH
	RPMEM_SSH=$here/ssh.local
	has "$1"
	RPMEM_SSH=$login
}

printf 'PMEMPOOLSET\n9M %s/part\nREPLICA %s data.set\n' "$here" "$at" >set
refuses "a replica before its creation" obj check set
rm -f part
does obj create set || { cat sshd.log; exit 1; }
for kind in ssh target; do
	[ -s pids.$kind ] || fail "no process in pids.$kind was started"
done
gone "create"
begin 20
kill -9 "$program"
wait "$program" 2>/dev/null
gone "initiator killed"
kept "initiator killed"
equal "initiator killed"
begin 20
kill -9 "$(tail -n 1 pids.target)"
ends "target killed"
gone "target killed"
kept "target killed"
equal "target killed"
begin 20
kill -9 "$(tail -n 1 pids.ssh)"
ends "ssh killed"
gone "ssh killed"
kept "ssh killed"
equal "ssh killed"
# One copy is lost, and made again from the other. No login is needed.
RPMEM_SSH=$here/ssh.local
rm part
does tool sync set
kept "first copy lost"
rm vol
refuses "a lost replica goes unnoticed" obj check set
does tool sync set
gone "sync"
equal "sync"

# --- the calls by themselves
cat >common.py <<'P'
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys

lib = ctypes.CDLL("librpmem.so.1", use_errno=True)
lib.rpmem_create.restype = lib.rpmem_open.restype = ctypes.c_void_p
lib.rpmem_errormsg.restype = ctypes.c_char_p
lib.rpmem_close.argtypes = [ctypes.c_void_p]
lib.rpmem_persist.argtypes = [ctypes.c_void_p, ctypes.c_size_t,
                              ctypes.c_size_t, ctypes.c_uint, ctypes.c_uint]
lib.rpmem_flush.argtypes = lib.rpmem_persist.argtypes
lib.rpmem_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                           ctypes.c_size_t, ctypes.c_uint]
me, port, here = sys.argv[1:]
where = f"{me}@127.0.0.1:{port}".encode()
SIZE = 1 << 20
memory = ctypes.create_string_buffer(b"\7" * SIZE, SIZE)


class Attr(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 104)]


def call(f, target, name, attr=None):
    n = ctypes.c_uint(4)
    return f(target, name, memory, ctypes.c_size_t(SIZE), ctypes.byref(n),
             attr and ctypes.byref(attr))


def opened(name, target=where):
    return call(lib.rpmem_open, target, name)


def created(name, target=where):
    return call(lib.rpmem_create, target, name, Attr())


def fails(code, text, ret):
    message = lib.rpmem_errormsg().decode()
    assert ret in (None, -1), ret
    assert ctypes.get_errno() == getattr(errno, code), (
        ctypes.get_errno(), message)
    assert text in message, message


def refused(code, text, request):
    p = subprocess.run([here + "/command"], capture_output=True, text=True,
                       input=f"ofi_rpmem-1 {request}\n")
    assert p.returncode == code and text in p.stdout, p
    assert text in p.stderr, p


def pool_set(name, *lines):
    with open(f"{here}/target/{name}", "w") as f:
        f.write("\n".join(("PMEMPOOLSET",) + lines) + "\n")
P
cat >calls.py <<'P'
from common import *

# A path with ./ means ssh, as user@ and .set do; the user is optional.
pool_set("sub/plain", f"2M {here}/plain")
plain = f"127.0.0.1:{port}".encode()
fails("ENOENT", "does not exist", opened(b"sub/plain", plain))
r = created(b"sub/plain", plain)
assert r, lib.rpmem_errormsg()
assert lib.rpmem_persist(r, 4096, SIZE - 4096, 0, 0) == 0
# Each attempt to open, about ten, needs no login this way.
os.environ["RPMEM_SSH"] = here + "/ssh.local"
fails("EBUSY", "in use", opened(b"sub/plain"))
os.environ["RPMEM_SSH"] = here + "/ssh.user"
refused(4, "in use", "remove sub/plain")
back = ctypes.create_string_buffer(SIZE - 4096)
assert lib.rpmem_read(r, back, 4096, SIZE - 4096, 0) == 0
assert back.raw == b"\7" * (SIZE - 4096)
assert lib.rpmem_close(r) == 0
fails("EEXIST", "has a replica", created(b"sub/plain"))
# A path may name a pool instead of a set; output of a login shell is skipped.
os.symlink(f"{here}/plain", f"{here}/target/direct")
command = os.environ["RPMEM_CMD"]
os.environ["RPMEM_CMD"] = "echo Welcome; " + command
r = opened(b"./direct")
assert r, lib.rpmem_errormsg()
assert lib.rpmem_close(r) == 0
# Each session uses the next one of the commands.
os.environ["RPMEM_SSH"] = here + "/ssh.local"
os.environ["RPMEM_CMD"] = "/absent/fi_rpmemd|" + command
results = [opened(b"./direct") for _ in range(2)]
assert sorted(map(bool, results)) == [False, True], results
for r in filter(None, results):
    assert lib.rpmem_close(r) == 0
os.environ["RPMEM_SSH"] = here + "/ssh.user"
os.environ["RPMEM_CMD"] = "/absent/fi_rpmemd"
fails("EPROTO", "/absent/fi_rpmemd: No such file", opened(b"./direct"))
# A key that is restricted to one command runs no other.
os.environ["RPMEM_SSH"] = here + "/ssh.forced"
r = opened(b"./direct")
assert r, lib.rpmem_errormsg()
assert lib.rpmem_close(r) == 0
os.environ["RPMEM_CMD"] = command
# A key that is refused, and hosts that are down.
os.environ["RPMEM_SSH"] = here + "/ssh.other"
fails("EHOSTUNREACH", "Permission denied", opened(b"./direct"))
assert (f"{here}/ssh.other -T -oBatchMode=yes -p {port} {me}@127.0.0.1' must "
        "work without a question") in lib.rpmem_errormsg().decode()
os.environ["RPMEM_SSH"] = "/absent/ssh"
fails("EHOSTUNREACH", "set RPMEM_SSH", opened(b"./direct"))
os.environ["RPMEM_SSH"] = here + "/ssh.user"
fails("EHOSTUNREACH", "Connection refused",
      opened(b"./direct", b"127.0.0.1:1"))
for bad in ("-oProxyCommand=touch@x", "a@", "127.0.0.1:x", "[::1]x",
            "a@[::1]:99999"):
    fails("EINVAL", f"'{bad}' is no host for ssh",
          opened(b"./direct", bad.encode()))
# The remaining cases need no login.
os.environ["RPMEM_SSH"] = here + "/ssh.local"
# Replies that no release sends, and replies with terminal control characters.
for reply, code, text in (
        ("removed", "EPROTO", "'removed' is unknown"),
        ("error 3", "EIO", "127.0.0.1: "),
        ("error", "EPROTO", "'error' is unknown"),
        ("serves yes", "EPROTO", "damaged"),
        ("missing \\033[31mred", "ENOENT", "127.0.0.1: ?[31mred"),
        ("what \\033[31mred", "EPROTO", "'what ?[31mred' is unknown")):
    os.environ["RPMEM_CMD"] = f"read _; printf 'ofi_rpmem-1 {reply}\\n'"
    fails(code, text, opened(b"./direct"))
os.environ["RPMEM_CMD"] = "read _; echo 'ofi_rpmem-1 serves any 0 1 127.0.0.1 a'"
fails("EPROTO", "'serves' is unknown", lib.rpmem_remove(where, b"./direct", 0))
# The program may have closed its standard input and output.
os.environ["RPMEM_CMD"] = "echo the cause >&2; exit 255"
kept = [os.dup(fd) for fd in range(2)]
os.close(0)
os.close(1)
result = opened(b"./direct")
code = ctypes.get_errno()
for fd in range(2):
    os.dup2(kept[fd], fd)
    os.close(kept[fd])
ctypes.set_errno(code)
fails("EHOSTUNREACH", "the cause", result)
# If the program has reaped ssh, the error says that its exit status is unknown.
os.environ["RPMEM_CMD"] = command
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
r = opened(b"./direct")
assert r, lib.rpmem_errormsg()
fails("ECHILD", "exit status of ssh unknown", lib.rpmem_close(r))
os.environ["RPMEM_CMD"] = "echo the cause >&2; exit 255"
fails("EPROTO", "the cause; exit status unknown", opened(b"./direct"))
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
os.environ["RPMEM_CMD"] = command
# Paths and pool sets that are refused.
fails("EINVAL", "no path below", opened(b"../set"))
fails("EINVAL", "not a pool set path", opened(b"a/b\nc"))
fails("ENOENT", "absent.set", opened(b"absent.set"))
pool_set("two.set", f"2M {here}/a", f"2M {here}/b")
fails("EIO", "more than one part", created(b"two.set"))
refused(2, "no path below", "open sub/../../set")
refused(2, "no path below", f"open {here}/set")
pool_set("replica.set", f"2M {here}/a", f"REPLICA {me}@h x.set")
refused(3, "has a REPLICA", "create replica.set")
pool_set("none.set")
refused(3, "has no part", "create none.set")
for line in ("2M a", "2X /a", f"2M {here}/a 1", "AUTO /dev/dax0.0"):
    pool_set("line.set", line)
    refused(3, "one part with its size", "create line.set")
pool_set("option.set", "OPTION NOHDRS SINGLEHDR", f"2M {here}/a")
refused(3, "'SINGLEHDR' behind OPTION NOHDRS", "create option.set")
with open(f"{here}/target/first.set", "w") as f:
    f.write(f"PMEMPOOLSET 2M {here}/a\n")
refused(3, f"'2M {here}/a' behind PMEMPOOLSET", "create first.set")
assert not os.path.exists(f"{here}/a")
pool_set("short.set", f"64K {here}/a")
fails("EFBIG", "are needed", created(b"short.set"))
with open(f"{here}/foreign", "wb") as f:
    f.write(b"x" * 200000)
pool_set("foreign.set", f"64K {here}/foreign")
refused(3, "foreign", "create foreign.set")
fails("EIO", "foreign", lib.rpmem_remove(where, b"foreign.set", 1))
assert os.path.getsize(f"{here}/foreign") == 200000
# A NOHDRS replica has no attributes: calls refuse one kind in place of the
# other.
pool_set("bare.set", f"1M {here}/bare", "OPTION NOHDRS")
fails("EINVAL", "has the OPTION NOHDRS", created(b"bare.set"))
r = call(lib.rpmem_create, where, b"bare.set")
assert r and lib.rpmem_persist(r, 0, 4096, 0, 0) == 0, lib.rpmem_errormsg()
assert lib.rpmem_close(r) == 0
attr = Attr((ctypes.c_ubyte * 104)(*range(104)))
r = call(lib.rpmem_open, where, b"bare.set", attr)
assert r and bytes(attr) == bytes(104), lib.rpmem_errormsg()
assert lib.rpmem_close(r) == 0
assert lib.rpmem_remove(where, b"bare.set", 2) == 0
fails("EINVAL", "has no OPTION NOHDRS", call(lib.rpmem_create, where, b"data.set"))
if os.getuid():
    os.chmod(f"{here}/target/data.set", 0)
    fails("EACCES", "data.set", opened(b"data.set"))
    os.chmod(f"{here}/target/data.set", 0o600)
# Removal removes the file and, with its flag, the set.
assert lib.rpmem_remove(where, b"sub/plain", 0) == 0
assert not os.path.exists(f"{here}/plain")
fails("ENOENT", "plain", lib.rpmem_remove(where, b"sub/plain", 0))
assert os.path.exists(f"{here}/target/sub/plain")
assert lib.rpmem_remove(where, b"sub/plain", 1) == 0
assert lib.rpmem_remove(where, b"sub/plain", 3) == 0
assert not os.path.exists(f"{here}/target/sub/plain")
# The library leaves no child to wait for.
try:
    os.waitpid(-1, os.WNOHANG)
    raise AssertionError("a process is left")
except ChildProcessError:
    pass

# The daemon without the library: only the client of its ssh knows the secret.
p = subprocess.Popen([command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                     text=True)
p.stdin.write("ofi_rpmem-1 open data.set\n")
p.stdin.flush()
word, verb, header, secret, daemon, address, pool = p.stdout.readline().split()
assert (verb, header, address, pool) == ("serves", "yes", "127.0.0.1", "vol")
assert len(secret) == 64
cp = subprocess.run(["../util/fi_rpmem_cp", "set", f"{address}:{daemon}:{pool}"],
                    capture_output=True, text=True)
assert cp.returncode == 7, cp
if os.environ.get("RP_LONG") == "1":
    p.wait(timeout=120)  # as if the client's host had failed
else:
    p.stdin.close()
assert p.wait(timeout=60) == 0
for line, text in (("", "no request"), ("GET /\n", "same release"),
                   ("ofi_rpmem-1 shut data.set\n", "same release")):
    p = subprocess.run([command], input=line, capture_output=True, text=True)
    assert p.returncode == 2 and text in p.stderr and text in p.stdout, p
p = subprocess.run([command, "data.set"], capture_output=True, text=True)
assert p.returncode == 2 and "gets its pool over ssh" in p.stderr, p
P
# Calls that end when a time limit of the library or of ssh is over: they run
# beside each other and beside calls.py.
cat >silent.py <<'P'
from common import *

# A host that accepts, and is silent.
with socket.create_server(("127.0.0.1", 0)) as s:
    silent = f"127.0.0.1:{s.getsockname()[1]}".encode()
    fails("EHOSTUNREACH", "timed out", opened(b"./direct", silent))
P
cat >reset.py <<'P'
from common import *

# A write after the daemon has ended. Only this session writes to pids.reset.
pool_set("reset.set", f"2M {here}/reset")
os.environ["RPMEM_CMD"] = (f"echo $$ >>{here}/pids.reset; exec " +
                           os.environ["RPMEM_CMD"])
r = created(b"reset.set")
assert r, lib.rpmem_errormsg()
with open(f"{here}/pids.reset") as f:
    os.kill(int(f.read()), 9)
fails("ECONNRESET", "not reached for 10 seconds: ",
      lib.rpmem_persist(r, 4096, 8, 0, 0))
fails("ECONNRESET", "had ended before", lib.rpmem_close(r))
P
RPMEM_SSH=$here/ssh.user
timeout 300 python3 silent.py "$me" "$port" "$here" >silent.out 2>&1 &
silent=$!
timeout 300 python3 reset.py "$me" "$port" "$here" >reset.out 2>&1 &
reset=$!
does timeout 300 python3 calls.py "$me" "$port" "$here"
wait $silent || fail "silent.py: $(cat silent.out)"
wait $reset || fail "reset.py: $(cat reset.out)"
gone "calls"

# --- sessions that end, refuse and remove; each case reports by itself
cat >sessions.py <<'P'
import struct
import time
import traceback

from common import *

command = os.environ["RPMEM_CMD"]
target = here + "/target/"


def daemon():
    with open(f"{here}/pids.target") as f:
        return int(f.read().split()[-1])


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def closed(r):
    assert r, lib.rpmem_errormsg()
    assert lib.rpmem_close(r) == 0, lib.rpmem_errormsg()


def clean(pool):
    with open(pool, "rb") as f:
        copies = [f.read(4096) for _ in range(2)]
    newest = max(copies, key=lambda c: int.from_bytes(c[48:56], "little"))
    return newest[12] & 1


# Nothing can be removed from the folder.
def locked(folder, lock):
    if os.getuid():
        os.chmod(folder, 0o500 if lock else 0o700)
        return True
    p = subprocess.run(["chattr", "+i" if lock else "-i", folder],
                       capture_output=True)
    return p.returncode == 0


# fi_rpmemd that a signal has stopped in good order has not been told to.
def ended_early():
    pool_set("end.set", f"2M {here}/end")
    closed(created(b"end.set"))
    for sig, wait in ((signal.SIGTERM, True), (signal.SIGHUP, False)):
        r = opened(b"end.set")
        pid = daemon()
        os.kill(pid, sig)
        while wait and is_alive(pid):
            time.sleep(0.01)
        lib.rpmem_flush(r, 4096, 4096, 0, 0)
        fails("ECONNRESET", "had ended before", lib.rpmem_close(r))


def not_twice():
    pool_set("two.set", f"2M {here}/two", "OPTION NOHDRS")
    closed(call(lib.rpmem_create, where, b"two.set"))
    fails("EEXIST", "may have a replica",
          call(lib.rpmem_create, where, b"two.set"))
    fails("EINVAL", "has the OPTION NOHDRS", created(b"two.set"))
    pool_set("two.set", f"2M {here}/two")
    os.symlink(f"{here}/two", target + "bare")
    r = opened(b"./bare")
    assert lib.rpmem_persist(r, 0, 4096, 0, 0) == 0
    closed(r)
    fails("EEXIST", "not zero", call(lib.rpmem_create, where, b"./bare"))
    assert os.path.exists(f"{here}/two")


def removal_without_pool():
    pool_set("gone.set", f"2M {here}/absent")
    fails("ENOENT", "absent", lib.rpmem_remove(where, b"gone.set", 2))
    assert os.path.exists(target + "gone.set")
    os.makedirs(target + "fixed", exist_ok=True)
    pool_set("fixed/gone.set", f"2M {here}/absent")
    if locked(target + "fixed", True):
        try:
            fails("EIO", "cannot be removed",
                  lib.rpmem_remove(where, b"fixed/gone.set", 3))
        finally:
            locked(target + "fixed", False)
    assert lib.rpmem_remove(where, b"gone.set", 3) == 0
    assert not os.path.exists(target + "gone.set")


def refused_removal():
    os.makedirs(here + "/kept", exist_ok=True)
    pool_set("kept.set", f"2M {here}/kept/vol")
    closed(created(b"kept.set"))
    assert clean(here + "/kept/vol")
    if locked(here + "/kept", True):
        try:
            fails("EIO", "cannot be removed",
                  lib.rpmem_remove(where, b"kept.set", 2))
        finally:
            locked(here + "/kept", False)
    assert clean(here + "/kept/vol")
    assert os.path.exists(target + "kept.set")


def removal_behind_link():
    os.makedirs(here + "/real", exist_ok=True)
    os.symlink(here + "/kept.link", here + "/link")
    os.symlink(here + "/real/vol", here + "/kept.link")
    pool_set("real.set", f"2M {here}/real/vol")
    closed(created(b"real.set"))
    pool_set("real.set", f"2M {here}/link")
    assert lib.rpmem_remove(where, b"real.set", 2) == 0
    assert not os.path.exists(here + "/real/vol")
    assert not os.path.lexists(here + "/link")


def name_with_umlaut():
    name = "gr\u00f6\u00dfe.set"
    pool_set(name, f"2M {here}/umlaut")
    closed(created(name.encode()))
    assert lib.rpmem_remove(where, name.encode(), 2) == 0
    assert not os.path.exists(target + name)


def failed_creation():
    pool_set("less.set", f"64K {here}/less")
    fails("EFBIG", "larger size in the pool set file", created(b"less.set"))
    assert not os.path.exists(f"{here}/less")
    pool_set("less.set", f"2M {here}/less")
    closed(created(b"less.set"))
    pool_set("less.set", f"3M {here}/less")
    fails("EIO", "change the size there", created(b"less.set"))
    assert os.path.exists(f"{here}/less")
    # The daemon makes the file and serves it: to no client.
    pool_set("made.set", f"2M {here}/made")
    for port, code, text in ((1, "ECONNREFUSED", "nothing listens on port 1"),
                             (0, "EPROTO", "damaged")):
        os.environ["RPMEM_CMD"] = f"{here}/other_port {port}"
        fails(code, text, created(b"made.set"))
        assert not os.path.exists(f"{here}/made"), port
    os.environ["RPMEM_CMD"] = command
    closed(created(b"made.set"))
    os.environ["RPMEM_CMD"] = f"{here}/other_port 1"
    fails("ECONNREFUSED", "nothing listens", opened(b"made.set"))
    assert os.path.exists(f"{here}/made")


def bounded_log():
    os.environ["RPMEM_CMD"] = "head -c 1M /dev/zero >&2; exec " + command
    pool_set("log.set", f"2M {here}/log")
    r = created(b"log.set")
    sizes = [os.stat(f"/proc/self/fd/{fd}").st_size
             for fd in os.listdir("/proc/self/fd")
             if "rpmem-ssh" in os.path.realpath(f"/proc/self/fd/{fd}")]
    closed(r)
    assert len(sizes) == 1 and sizes[0] <= 65536, sizes


# A filter for this process replies to pidfd_open() as an older kernel does.
def without_pidfd():
    class Filter(ctypes.Structure):
        _fields_ = [("n", ctypes.c_ushort), ("ops", ctypes.c_char_p)]
    ops = b"".join(struct.pack("=HBBI", *op) for op in (
        (0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x50000 | 38),
        (0x06, 0, 0, 0x7fff0000)))
    pool_set("pidfd.set", f"2M {here}/pidfd")
    pid = os.fork()
    if not pid:
        libc = ctypes.CDLL(None)
        none = ctypes.c_ulong(0)
        code = 1
        if not libc.prctl(38, ctypes.c_ulong(1), none, none, none) and \
           not libc.prctl(22, ctypes.c_ulong(2),
                          ctypes.byref(Filter(4, ops)), none, none):
            r = created(b"pidfd.set")
            code = 0 if r and lib.rpmem_close(r) == 0 else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def fifo():
    os.mkfifo(target + "fifo")
    p = subprocess.Popen([command], stdin=subprocess.PIPE, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, _ = p.communicate("ofi_rpmem-1 open fifo\n", timeout=20)
        assert p.returncode == 3 and "not a regular file" in out, out
    finally:
        p.kill()
        p.communicate()


# A signal ends the wait for a request.
def stopped():
    p = subprocess.Popen([command], stdin=subprocess.PIPE, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    blocked = 0
    while not blocked & 1 << (signal.SIGTERM - 1):
        with open(f"/proc/{p.pid}/status") as f:
            blocked = int(f.read().split("SigBlk:")[1].split()[0], 16)
        time.sleep(0.01)
    p.terminate()
    try:
        p.wait(timeout=20)
        out, _ = p.communicate()
        assert "a signal has stopped" in out, out
    finally:
        p.kill()


def hostile_replies():
    for reply in ("4294967297 127.0.0.1 a", "0 127.0.0.1 a",
                  "1 127.0.0.1 \\033[31mred", "1 127.0.\\0330.1 a"):
        os.environ["RPMEM_CMD"] = (
            f"read _; printf 'ofi_rpmem-1 serves any 0123456789abcdef {reply}\\n'")
        fails("EPROTO", "damaged", opened(b"./direct"))


def no_descriptors():
    fd = os.open(here + "/set", os.O_RDONLY)
    os.set_inheritable(fd, True)
    os.environ["RPMEM_CMD"] = f"ls -l /proc/self/fd >{here}/fds; exit 9"
    opened(b"./direct")
    os.close(fd)
    with open(here + "/fds") as f:
        assert here + "/set" not in f.read()


failed = False
for case in (ended_early, not_twice, removal_without_pool, refused_removal,
             removal_behind_link, name_with_umlaut, failed_creation,
             bounded_log, without_pidfd, fifo, stopped, hostile_replies,
             no_descriptors):
    os.environ["RPMEM_CMD"] = command
    try:
        case()
    except Exception:
        failed = True
        print("FAILED:", case.__name__)
        traceback.print_exc(file=sys.stdout, limit=1)
sys.exit(failed)
P
RPMEM_SSH=$here/ssh.local
does timeout 300 python3 sessions.py "$me" "$port" "$here"
gone "sessions"

# pmempool removes the replica's file.
RPMEM_SSH=$here/ssh.local
does tool rm -r -f set
[ ! -e vol ] || fail "pmempool rm leaves the replica"
gone "pmempool rm"
exit $failed
