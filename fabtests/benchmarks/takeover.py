#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How long a group of three pools has no writer when its writer is killed.

Two leaders of rpmem_lead(1) with a real etcd; the first one is killed with
SIGKILL, with all its processes. Prints, as medians of the rounds:
  lease     from the kill until etcd gives the lock to the second leader
  open      the client of the second leader opens the group (epoch made durable,
            copies of what differs) and makes its first durable write
  observe   the same client opens one member to read, and reads: what of "open"
            is the start of a process and its connection
  write     one durable write of 8 bytes in a group that is open
With --spread, the writer that is killed has written to each 256 KiB of so many
MiB: at most 256 of these chunks stay marked, and are copied by the opening.
usage: takeover.py --build DIR [--rounds N] [--ttl S] [--folder DIR]
                   [--pool MIB] [--spread MIB]
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "../integration"))
from volume import wait_until  # noqa: E402

WRITES = 20
CHUNK = 256 << 10


def free_ports(n):
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


def tree(pid):
    """The process and all its descendants."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)],
                           stdout=subprocess.PIPE, text=True,
                           check=False).stdout
    return [pid] + [p for child in found.split() for p in tree(int(child))]


class Client:
    """A client of the group; the line "open" is its first reply."""

    alive = []

    def __init__(self, lines, argv):
        os.mkfifo(lines)
        # Not os.open() for writing alone: that waits for the reader.
        self.lines = os.fdopen(os.open(lines, os.O_RDWR), "wb", 0)
        self.child = subprocess.Popen(argv, text=True, stdout=subprocess.PIPE,
                                      env={**os.environ, "LINES": lines})
        self.alive.append(self)

    def reply(self):
        line = self.child.stdout.readline().rstrip()
        if not line.startswith("0 "):
            sys.exit(f"takeover.py: the client says '{line}'")
        return line

    def ask(self, line):
        self.lines.write(line.encode() + b"\n")
        return self.reply()

    def timed(self, line):
        start = time.monotonic()
        self.ask(line)
        return time.monotonic() - start

    def kill(self):
        pids = tree(self.child.pid)
        # Stopped, none of them sees the end of another, and releases the lock.
        for sent in signal.SIGSTOP, signal.SIGKILL:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sent)
        self.child.wait()
        self.lines.close()
        self.alive.remove(self)


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.children = []
        self.lead = os.path.join(args.build, "util/rpmem_lead")
        self.client = os.path.join(args.build,
                                   "fabtests/functional/group_client")

    def start(self, *argv):
        with open(os.path.join(self.folder, "log"), "a",
                  encoding="utf8") as log:
            self.children.append(subprocess.Popen(argv, stdout=log,
                                                  stderr=log))

    def start_etcd(self):
        url, peer = (f"http://127.0.0.1:{p}" for p in free_ports(2))
        self.start("etcd", "--data-dir", os.path.join(self.folder, "etcd"),
                   "--listen-client-urls", url, "--advertise-client-urls", url,
                   "--listen-peer-urls", peer, "--log-level", "error")
        os.environ["ETCDCTL_ENDPOINTS"] = url
        wait_until("etcd", lambda: not subprocess.run(
            ["etcdctl", "get", "x"], check=False,
            env={**os.environ, "ETCDCTL_API": "3"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL).returncode, self.children[-1])

    def start_pools(self):
        places = []
        for name in "abc":
            port = os.path.join(self.folder, "port." + name)
            self.start(os.path.join(self.args.build, "util/fi_rpmemd"),
                       "--create", f"{self.args.pool}M", "--port", "0", "--port-file", port,
                       os.path.join(self.folder, name))
            wait_until("fi_rpmemd", lambda file=port: os.path.exists(file) and
                       os.path.getsize(file), self.children[-1])
            with open(port, encoding="ascii") as f:
                places.append(f"127.0.0.1:{f.read().strip()}:{name}")
        self.group = ",".join(places) + ";k=2"
        subprocess.run([self.lead, "set", "db", self.group], check=True)

    def leader(self, name):
        """Start a leader; its file has the time when it got the lock."""
        at = os.path.join(self.folder, name)
        run = ('date +%s.%N >"$1.new" && mv "$1.new" "$1" && '
               'exec "$2" "$RPMEM_GROUP" take <"$LINES"')
        return Client(at + ".lines",
                      [self.lead, "run", "--ttl", str(self.args.ttl), "db",
                       "--", "sh", "-c", run, "-", at, self.client]), at

    def round(self, n, now):
        """Kill leader now; return the times, and the leader that follows."""
        following, at = self.leader(f"lock.{n}")
        write = [now.timed("d 8 %d" % i) for i in range(WRITES)]
        for offset in range(0, self.args.spread << 20, CHUNK):
            now.ask(f"w {offset} {n}")
        now.ask("c")
        killed = time.time()
        now.kill()
        following.reply()
        following.ask("d 8 first")
        end = time.time()
        with open(at, encoding="ascii") as f:
            locked = float(f.read())
        start = time.monotonic()
        observer = Client(
            at + ".observer",
            ["sh", "-c", 'exec "$1" "$2" observe <"$LINES"', "-", self.client,
             self.group.partition(",")[0]])
        observer.reply()
        observer.ask("r 8 5")
        observe = time.monotonic() - start
        observer.kill()
        return {"lease": locked - killed, "open": end - locked,
                "observe": observe,
                "write": statistics.median(write)}, following

    def run(self):
        self.start_etcd()
        self.start_pools()
        now, _ = self.leader("lock.first")
        now.reply()
        rounds = []
        for n in range(self.args.rounds):
            times, now = self.round(n, now)
            rounds.append(times)
            print("# " + "  ".join(f"{k} {v * 1e3:.1f} ms"
                                   for k, v in times.items()), flush=True)
        now.kill()
        return {k: statistics.median(r[k] for r in rounds)
                for k in rounds[0]}

    def stop(self):
        for client in list(Client.alive):
            client.kill()
        for child in self.children:
            child.kill()
            child.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ttl", type=int, default=2)
    parser.add_argument("--folder", default="/var/tmp")
    parser.add_argument("--pool", type=int, default=1)
    parser.add_argument("--spread", type=int, default=0)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.spread >= args.pool:
        parser.error("--pool must be greater than --spread")
    for tool in ("etcd", "etcdctl"):
        if not shutil.which(tool):
            sys.exit(f"takeover.py: {tool} is missing; util/packages.sh names "
                     "the packages")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        bench = Bench(args, folder)
        try:
            median = bench.run()
        finally:
            bench.stop()
    print(json.dumps({"load": os.getloadavg()[0], "rounds": args.rounds,
                      "ttl": args.ttl, "pool_mib": args.pool,
                      "spread_mib": args.spread,
                      **{k + "_ms": round(v * 1e3, 2)
                         for k, v in median.items()}}))


if __name__ == "__main__":
    main()
