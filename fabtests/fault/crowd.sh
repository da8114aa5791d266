#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# 2,000 connections that never prove the secret are held open on each port of
# fi_rpmemd, that of the metrics too. They cost a limited number of descriptors
# and bytes, and the daemon still serves a client.
set -u
dir=$(mktemp -d ./crowd.XXXXXX) || exit 99
cd "$dir" || exit 99
daemon='' failed=1
unset FI_PROVIDER FI_OFI_RPMEM_CLASS

finish()
{
	[ $failed = 0 ] || cat daemon.out
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd .. && rm -rf "$dir"
}
trap finish EXIT

if ! command -v python3 >/dev/null; then
	echo "ok 1 - 2,000 connections # SKIP python3 is missing"
	failed=0
	exit 77
fi
(umask 077 && head -c 32 /dev/urandom | base64 >secret)
head -c 200000 /dev/urandom >file
../util/fi_rpmemd --create 1M --port 0 --port-file port --secret secret \
	--metrics 127.0.0.1:0 vol >daemon.out 2>&1 &
daemon=$!
for _ in $(seq 400); do
	[ -e port ] && break
	kill -0 $daemon 2>/dev/null || break
	sleep 0.05
done
[ -e port ] || exit 1
timeout 300 python3 - $daemon "$(cat port)" <<'P'
import os
import resource
import socket
import subprocess
import sys

pid, setup = int(sys.argv[1]), int(sys.argv[2])
COUNT = 2000


def ports():
    """The TCP ports on which the daemon listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    found = set()
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f.readlines()[1:]:
            word = line.split()
            if word[3] == "0A" and word[9] in inodes:
                found.add(int(word[1].split(":")[1], 16))
    return found


def descriptors():
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident():
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return [int(x.split()[1]) for x in f if x.startswith("VmRSS")][0]


def copy(to):
    subprocess.run(["../util/fi_rpmem_cp", "--quiet", "--secret", "secret"] +
                   to, check=True)


def serves_metrics(port):
    """Whether an HTTP server with the counters listens on the port."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        try:
            text = b"".join(iter(lambda: s.recv(65536), b""))
        except ConnectionResetError:
            return False
    return text.startswith(b"HTTP/1") and b"ofi_rpmem_sessions" in text


pool = f"127.0.0.1:{setup}:vol"
copy(["file", pool])
others = ports() - {setup}
metrics = {port for port in others if serves_metrics(port)}
assert len(others) == 2 and len(metrics) == 1, (others, metrics)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
wanted = 3 * COUNT + 100
if hard != resource.RLIM_INFINITY and hard < wanted:
    print(f"ok 1 - 2,000 connections # SKIP {hard} descriptors are allowed "
          f"here, {wanted} are needed")
    sys.exit(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
before, memory = descriptors(), resident()
held = []
most = 0
for i in range(COUNT):
    for port in {setup} | others:
        s = socket.socket()
        held.append(s)
        if port in metrics:
            # Beyond the limit of the HTTP server connections wait in the kernel.
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
        else:
            s.connect(("127.0.0.1", port))
        # A third sends nothing, a third begins a message, a third uses another
        # protocol.
        try:
            if i % 3:
                s.send(b"RPMS\3\0\2\0" if i % 3 == 1 else b"GET / HTTP/1.1")
        except OSError:
            pass  # the daemon ended it to accept a newer one
    if i % 50 == 0:
        most = max(most, descriptors())
copy([pool, "back"])
copy(["file", pool])
most = max(most, descriptors())
with open("file", "rb") as a, open("back", "rb") as b:
    assert a.read() == b.read(200000)
grown = resident() - memory
print(f"# {before} descriptors before, at most {most}; {grown} KiB more")
# 64 unverified connections for each port, 16 for the metrics, and those of the
# client.
assert most <= before + 2 * 64 + 16 + 16, most
if "RP_SANITIZE" not in os.environ:
    assert grown < 8192, grown
for s in held:
    s.close()
assert serves_metrics(metrics.pop()), "no metrics behind the connections"
print(f"ok 1 - {COUNT} connections on each port")
P
failed=$?
exit $failed
