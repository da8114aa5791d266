#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Clients that own a pool exclusively, one after the other.

usage: pool_owners.py [--seconds N] [--seed N], in a build folder

Four processes open one pool repeatedly. An owner reads all pages, writes some,
reads again, and compares: a write of a former owner would be a difference. Then
an owner closes the pool, or ends without closing it, or cuts the connection that
proves its ownership. After such a cut it may stop until another process has
owned the pool. The daemon is killed at random times.
"""
import argparse
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

PAGES = 64
PAGE = 4096
CLIENTS = 4
HERE = os.path.dirname(os.path.realpath(__file__))


class Owner:
    """One client process."""

    def __init__(self, number, port, seed, seconds):
        self.number, self.port = number, port
        self.rng = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.writes = 0

    def cut(self):
        """Cut this process's connections to the set-up port."""
        for fd in os.listdir("/proc/self/fd"):
            try:
                with socket.socket(fileno=os.dup(int(fd))) as s:
                    if s.getpeername()[1] == self.port:
                        s.shutdown(socket.SHUT_RDWR)
            except (OSError, IndexError):
                pass

    def expect(self, pool, page, content):
        found = pool.read(len(content), page * PAGE)
        if found != content:
            print(f"client {self.number}, page {page}: {found} in place of "
                  f"{content}", flush=True)
            os._exit(1)

    def write_as_owner(self, pool):
        """Work as the owner. OSError: another owner came, or the daemon died."""
        rng = self.rng
        content = [pool.read(16, i * PAGE) for i in range(PAGES)]
        count = rng.randint(1, 200)
        cut_at = rng.randrange(count) if rng.random() < 0.4 else -1
        for n in range(count):
            if n == cut_at:
                self.cut()
                if rng.random() < 0.5:
                    os.kill(os.getpid(), signal.SIGSTOP)
            page = rng.randrange(PAGES)
            self.writes += 1
            content[page] = b"%04d %010d;" % (self.number, self.writes)
            pool.write(content[page], page * PAGE, durable=rng.random() < 0.3)
            if rng.random() < 0.2:
                pool.commit()
            page = rng.randrange(PAGES)
            self.expect(pool, page, content[page])
        for page in range(PAGES):
            self.expect(pool, page, content[page])

    def run(self):
        import rpmem_pool
        owned = followed = 0
        while time.monotonic() < self.end:
            try:
                pool = rpmem_pool.open(f"127.0.0.1:{self.port}:vol",
                                       exclusive=True, timeout=20)
            except OSError as e:
                if e.errno not in (errno.EBUSY, errno.ECONNREFUSED, errno.EIO,
                                   errno.ETIMEDOUT, errno.ESTALE):
                    raise
                time.sleep(self.rng.random() * 0.02)
                continue
            owned += 1
            try:
                self.write_as_owner(pool)
            except OSError as e:
                if e.errno != errno.ESTALE:
                    raise
                followed += 1
            if self.rng.random() < 0.15:
                break  # without closing the pool
            pool.close()
        print(f"counts {owned} {followed}", flush=True)
        os._exit(0)


class Test:
    """The daemon and its clients."""

    def __init__(self, folder, seed, seconds):
        self.folder, self.seconds = folder, seconds
        self.rng = random.Random(seed)
        self.daemon = None
        self.owned = self.followed = self.failed = self.started = 0
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")

    def serve(self, port, *more):
        ready = os.path.join(self.folder, "port")
        if os.path.exists(ready):
            os.unlink(ready)
        self.daemon = subprocess.Popen(
            ["util/fi_rpmemd", "--port", str(port), "--port-file", ready, *more,
             os.path.join(self.folder, "vol")], stdout=self.log,
            stderr=self.log)
        while not os.path.exists(ready):
            if self.daemon.poll() is not None:
                raise SystemExit("fi_rpmemd has ended")
            time.sleep(0.02)
        with open(ready, encoding="ascii") as f:
            return int(f.read())

    def client(self, port, left):
        self.started += 1
        return subprocess.Popen(
            [sys.executable, __file__, "--client", str(self.started), str(port),
             str(self.rng.randrange(1 << 30)), str(left)],
            stdout=subprocess.PIPE, text=True)

    def ended(self, process):
        out = process.communicate()[0]
        for line in out.splitlines():
            if line.startswith("counts "):
                owned, followed = map(int, line.split()[1:])
                self.owned += owned
                self.followed += followed
            else:
                print(line)
        self.failed += process.returncode != 0

    def run(self):
        port = self.serve(0, "--create", "1M")
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as f:
            if " power " not in f.read():
                self.daemon.kill()
                print("SKIP: no file system here on which msync reaches a disk")
                return 77
        end = time.monotonic() + self.seconds
        deadline = end + 300  # a change of owner may take long
        clients = [self.client(port, self.seconds) for _ in range(CLIENTS)]
        kills, stopped = 0, {}
        while time.monotonic() < (end if self.followed else deadline):
            time.sleep(0.02)
            for i, c in enumerate(clients):
                if c.poll() is not None:
                    self.ended(c)
                    clients[i] = self.client(
                        port, max(3, end - time.monotonic()))
                    continue
                with open(f"/proc/{c.pid}/stat", encoding="ascii") as f:
                    if f.read().rpartition(")")[2].split()[0] != "T":
                        continue
                when = stopped.setdefault(
                    c.pid, time.monotonic() + self.rng.random() / 2)
                if time.monotonic() > when:
                    del stopped[c.pid]
                    c.send_signal(signal.SIGCONT)
            if self.rng.random() < 0.01:
                self.daemon.kill()
                self.daemon.wait()
                kills += 1
                self.serve(port)
        while clients:
            clients[0].send_signal(signal.SIGCONT)
            if clients[0].poll() is None:
                time.sleep(0.02)
                clients.append(clients.pop(0))
            else:
                self.ended(clients.pop(0))
        self.daemon.kill()
        self.daemon.wait()
        print(f"{self.owned} times opened, {self.followed} of them followed by "
              f"another owner, {kills} kills of the daemon")
        if not self.followed:
            print("no owner was followed: nothing was tested")
        return int(self.failed > 0 or not self.followed)


def main():
    if sys.argv[1:2] == ["--client"]:
        number, port, seed = map(int, sys.argv[2:5])
        Owner(number, port, seed, float(sys.argv[5])).run()
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int,
                   default=300 if os.environ.get("RP_LONG", "0") != "0" else 6)
    p.add_argument("--seed", type=int,
                   default=int.from_bytes(os.urandom(3), "little"))
    args = p.parse_args()
    if os.environ.get("RP_SANITIZE"):
        print("SKIP: a sanitizer's runtime has to be the first library of "
              "python3")
        return 77
    print(f"seed {args.seed}", flush=True)
    source = os.path.join(HERE, "../../util/python")
    os.environ["PYTHONPATH"] = source
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["LD_LIBRARY_PATH"] = os.path.join(os.getcwd(), "util/.libs")
    with tempfile.TemporaryDirectory(dir=".", prefix="owners.") as folder:
        return Test(os.path.abspath(folder), args.seed, args.seconds).run()


if __name__ == "__main__":
    sys.exit(main())
