#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Databases on a remote pool, through power cuts of its target.

usage: databases.py --build DIR [--cuts N] [--seed N] [--fs xfs]
                    [--control NAME] DATABASE

The pool is a block device (nbdkit's rpmem plugin, nbdfuse, loop) with ext4 or xfs.
fi_rpmemd runs with the shadow library, which knows the bytes that a successful
msync covered. A power cut kills fi_rpmemd; of the other pages, each may have
reached the disk or not. Of N cuts, each of the first N-1 cuts the target alone,
which restarts with such an image of the pool while the database continues; or
only the client, whose database then recovers from the pool. The last cut is of
both: the database recovers from several images.

Clients note acknowledged numbers in a ledger. No noted number may be missing,
the database's own checks and e2fsck or xfs_repair must find nothing wrong, and a
page that was placed but not durable at a cut of the target must be there after a
sync. With --control one step that durability needs is left out, and the run fails unless a
loss is found: skip-flush (the target reports success without a flush), no-fsync
(the database calls no fsync), flush-ignored (the plugin drops FLUSH),
flush-of-own-writes (FLUSH covers the connection alone that it came on; nbdfuse has
four, here 16, and sends each request on any of them), no-replay (the plugin does not rewrite
the bytes that a restarted target lacks).
"""
import argparse
import base64
import contextlib
import http.client
import json
import os
import pwd
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from file_system import FILE_SYSTEMS, missing_fs, missing_tool, umount  # noqa: E402
from ledger import AMCHECK, Ledger, Lost, Witness  # noqa: E402
from volume import HEADER, PLANTED, Volume, end, run, wait_until  # noqa: E402

IMAGES = 4  # images made of the pool after the last cut


class Database:
    """A database server or library, its clients and its checks."""
    clients = 4
    needs = ()

    def __init__(self, control):
        self.control = control
        self.server = None
        self.threads = []
        self.children = []
        self.stopping = False

    def setup(self, folder):
        """Create an empty database in a folder of the pool."""

    def start(self, folder, log):
        """Start the server on a folder, and wait until it has recovered."""

    def client(self, number, folder, ledger):
        """Insert numbers and note them, until the connection ends."""
        raise NotImplementedError

    def check(self, folder, ledger):
        """Compare the running database with the ledger; may raise Lost."""
        raise NotImplementedError

    def begin(self, folder, ledger):
        self.stopping = False
        first = ledger.add(self.clients)

        def body(i):
            try:
                self.client(i, folder, ledger)
            except (OSError, http.client.HTTPException, ValueError) as e:
                if not self.stopping:
                    print(f"# client {i}: {e}", flush=True)

        self.threads = [threading.Thread(target=body, args=(first + i,),
                                         daemon=True)
                        for i in range(self.clients)]
        for t in self.threads:
            t.start()

    def alive(self):
        return all(t.is_alive() for t in self.threads)

    def kill(self):
        self.stopping = True
        for p in self.children + [self.server]:
            end(p)
        for t in self.threads:
            t.join(60)
        self.children, self.server, self.threads = [], None, []

    def stop(self):
        """Stop the server as an operator does."""
        if self.server:
            self.server.terminate()
            self.server.wait(60)
            self.server = None

    def lines(self, command, **kw):
        """Start a child that prints the acknowledged numbers."""
        p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **kw)
        self.children.append(p)
        return p


SQLITE_CLIENT = """
import sqlite3, sys
path, journal, synchronous, client = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute("pragma journal_mode=" + journal)
db.execute("pragma synchronous=" + synchronous)
for n in range(1, 1 << 30):
    db.execute("insert into t values (?, ?, ?)",
               (int(client), n, "x" * (n * 37 % 900)))
    print(n, flush=True)
"""


class Sqlite(Database):
    """One writer with a write-ahead log, one with a rollback journal.

    With the journal, synchronous=FULL does not sync the folder behind the
    removal of the journal, which is the commit: SQLite documents that the last
    transaction may then be lost with the power, and EXTRA against that.
    """
    journals = {"wal": "full", "delete": "extra"}
    clients = 2

    def setup(self, folder):
        for journal in self.journals:
            with contextlib.closing(sqlite3.connect(
                    os.path.join(folder, journal))) as db:
                db.execute("create table t (c integer, n integer, s text, "
                           "primary key (c, n))")
                db.execute("create index i on t (s)")

    def client(self, number, folder, ledger):
        journal, synchronous = list(self.journals.items())[number % 2]
        p = self.lines([sys.executable, "-c", SQLITE_CLIENT,
                        os.path.join(folder, journal), journal,
                        "off" if self.control == "no-fsync" else synchronous,
                        str(number)],
                       stderr=subprocess.DEVNULL)
        for line in p.stdout:
            if line.endswith("\n"):
                ledger.note(number, int(line))

    def check(self, folder, ledger):
        for i, journal in enumerate(self.journals):
            try:
                with contextlib.closing(sqlite3.connect(
                        os.path.join(folder, journal))) as db:
                    said = db.execute("pragma integrity_check").fetchall()
                    rows = db.execute("select c, n from t").fetchall()
            except sqlite3.Error as e:
                raise Lost(f"{journal}: {e}") from e
            if said != [("ok",)]:
                raise Lost(f"{journal}: integrity_check: {said[0][0]}")
            for c in range(i, len(ledger.n), 2):
                ledger.compare(c, {n for of, n in rows if of == c})


class Postgres(Database):
    # How to run the database's processes: PostgreSQL refuses to run as root.
    user = {"user": "postgres", "group": "postgres", "extra_groups": [],
            "cwd": "/"}

    def __init__(self, control):
        super().__init__(control)
        self.bin = "/usr/lib/postgresql/15/bin/"
        self.sockets = None

    def present(self):
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return False
        return os.access(self.bin + "postgres", os.X_OK)

    def psql(self, *more):
        return [self.bin + "psql", "-XAtq", "-h", self.sockets, "postgres",
                "-v", "ON_ERROR_STOP=1", *more]

    def setup(self, folder):
        self.sockets = tempfile.mkdtemp(prefix="pg", dir="/tmp")
        shutil.chown(self.sockets, "postgres")
        shutil.chown(folder, "postgres")
        run(self.bin + "initdb", "-D", folder + "/pg", "-A", "trust",
            "--no-sync", "--wal-segsize=1", **self.user)
        self.start(folder, subprocess.DEVNULL)
        run(*self.psql("-c", "create extension amcheck; create table t "
                       "(c int, n int, primary key (c, n))"), **self.user)
        self.stop()

    def start(self, folder, log):
        pid = folder + "/pg/postmaster.pid"
        if os.path.exists(pid):
            os.unlink(pid)  # it may be of another boot
        self.server = subprocess.Popen(
            [self.bin + "postgres", "-D", folder + "/pg", "-k", self.sockets,
             "-c", "listen_addresses=", "-c", "shared_buffers=8MB",
             "-c", "max_wal_size=8MB", "-c", "min_wal_size=4MB",
             "-c", "checkpoint_timeout=30s", "-c", "fsync=" + (
                 "off" if self.control == "no-fsync" else "on")],
            stdout=log, stderr=log, **self.user)
        wait_until("PostgreSQL", lambda: subprocess.run(
            self.psql("-c", "select 1"), stdout=subprocess.DEVNULL, check=False,
            stderr=subprocess.DEVNULL, **self.user).returncode == 0, self.server)

    def client(self, number, folder, ledger):
        p = self.lines(self.psql(), stdin=subprocess.PIPE,
                       stderr=subprocess.DEVNULL, **self.user)
        for n in range(1, 1 << 30):
            p.stdin.write(f"insert into t values ({number}, {n}) "
                          "returning n;\n")
            p.stdin.flush()
            line = p.stdout.readline()
            if line != f"{n}\n":
                return
            ledger.note(number, n)

    def kill(self):
        """Kill the backends, too: one that waits for another would not end."""
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGSTOP)
            subprocess.run(["pkill", "-KILL", "-P", str(self.server.pid)],
                           check=False)
        super().kill()

    def check(self, folder, ledger):
        p = subprocess.run(self.psql(
            *AMCHECK, "-c", "select c, n from t"),
            stdout=subprocess.PIPE, text=True,
            stderr=subprocess.STDOUT, check=False, **self.user)
        if p.returncode:
            raise Lost(f"PostgreSQL: {p.stdout.strip()}")
        found = [set() for _ in ledger.n]
        for line in filter(None, p.stdout.splitlines()):
            if line.startswith("heap|"):
                raise Lost(f"PostgreSQL: verify_heapam: {line}")
            c, n = line.split("|")
            found[int(c)].add(int(n))
        for i, s in enumerate(found):
            ledger.compare(i, s)

    def close(self):
        if self.sockets:
            shutil.rmtree(self.sockets, ignore_errors=True)


class Redis(Database):
    needs = ("redis-server",)

    def __init__(self, control):
        super().__init__(control)
        self.socket = tempfile.mktemp(prefix="redis", dir="/tmp")

    def setup(self, folder):
        os.mkdir(folder + "/redis")

    def ask(self, s, *words):
        """One command; the reply as bytes, or None."""
        s.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        f = s.makefile("rb")
        head = f.readline()
        if not head.endswith(b"\r\n") or head.startswith(b"-"):
            raise OSError(f"redis: {head!r}")
        if not head.startswith(b"$"):
            return head[1:-2]
        size = int(head[1:])
        return None if size < 0 else f.read(size + 2)[:-2]

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.socket)
        return s

    def start(self, folder, log):
        self.server = subprocess.Popen(
            ["redis-server", "--dir", folder + "/redis", "--port", "0",
             "--unixsocket", self.socket, "--save", "", "--appendonly", "yes",
             "--auto-aof-rewrite-min-size", "256kb", "--appendfsync",
             "no" if self.control == "no-fsync" else "always"],
            stdout=log, stderr=log)

        def loaded():
            try:
                with self.connect() as s:
                    return self.ask(s, b"PING") == b"PONG"
            except OSError:
                return False

        wait_until("Redis", loaded, self.server)

    def client(self, number, folder, ledger):
        with self.connect() as s:
            for n in range(1, 1 << 30):
                if self.ask(s, b"SET", b"%d/%d" % (number, n),
                            b"x" * (n % 200)) != b"OK":
                    return
                ledger.note(number, n)

    def check(self, folder, ledger):
        with self.connect() as s:
            for i, n in enumerate(ledger.n):
                ledger.compare(i, {
                    k for k in range(1, n + 1)
                    if self.ask(s, b"GET", b"%d/%d" % (i, k)) is not None})

    def close(self):
        if os.path.exists(self.socket):
            os.unlink(self.socket)


class Etcd(Database):
    needs = ("etcd",)

    def __init__(self, control):
        super().__init__(control)
        self.port = None

    def ports(self):
        socks = [socket.socket() for _ in range(2)]
        for s in socks:
            s.bind(("127.0.0.1", 0))
        found = [s.getsockname()[1] for s in socks]
        for s in socks:
            s.close()
        return found

    def setup(self, folder):
        os.mkdir(folder + "/etcd", 0o700)

    def start(self, folder, log):
        self.port, peer = self.ports()
        url = f"http://127.0.0.1:{self.port}"
        more = ["--unsafe-no-fsync"] if self.control == "no-fsync" else []
        self.server = subprocess.Popen(
            ["etcd", "--data-dir", folder + "/etcd", "--listen-client-urls",
             url, "--advertise-client-urls", url, "--listen-peer-urls",
             f"http://127.0.0.1:{peer}", "--snapshot-count", "500",
             "--backend-batch-interval", "10ms", "--log-level", "error", *more],
            stdout=log, stderr=log)

        def healthy():
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port,
                                               timeout=30)
                self.post(c, "range", key="00")
                return True
            except (OSError, http.client.HTTPException, ValueError):
                return False

        wait_until("etcd", healthy, self.server)

    def post(self, connection, call, **args):
        body = json.dumps({k: base64.b64encode(v.encode()).decode()
                           for k, v in args.items()})
        connection.request("POST", "/v3/kv/" + call, body)
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise OSError(f"etcd: {reply.status} {text[:100]!r}")
        return json.loads(text)

    def client(self, number, folder, ledger):
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        for n in range(1, 1 << 30):
            self.post(c, "put", key=f"{number}/{n}", value="x" * (n % 200))
            ledger.note(number, n)

    def check(self, folder, ledger):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for i in range(len(ledger.n)):
            got = self.post(c, "range", key=f"{i}/", range_end=f"{i}0")
            keys = [base64.b64decode(kv["key"]).decode()
                    for kv in got.get("kvs", [])]
            ledger.compare(i, {int(k.split("/")[1]) for k in keys})


DATABASES = {"sqlite": Sqlite, "postgres": Postgres, "redis": Redis,
             "etcd": Etcd}


def check_image(db, path, folder, ledger, witness, log, fs):
    """Recover an image as after a reboot; compare it with the ledger."""
    loop = run("losetup", "--find", "--show", "--offset", str(HEADER),
               path).strip()
    mounted = False
    try:
        try:
            run("mount", "-o", fs.options, loop, folder)
            mounted = True
            db.start(folder, log)
        except RuntimeError as e:
            raise Lost(f"no recovery: {e}") from e
        db.check(folder, ledger)
        witness.check(folder)
        db.stop()
        wait_until("umount", lambda: not umount(folder))
        mounted = False
        try:
            run(*fs.check, loop)
        except RuntimeError as e:
            raise Lost(str(e)) from e
    finally:
        db.kill()
        # Killed processes may take a moment to end.
        if mounted:
            wait_until("umount", lambda: not umount(folder))
        run("losetup", "--detach", loop)


class Run:
    """A run of one database with N power cuts."""

    def __init__(self, args, folder):
        self.rng = random.Random(args.seed)
        self.control = args.control
        self.db = DATABASES[args.database](args.control)
        self.volume = Volume(args.build, folder, self.rng, args.control,
                             args.fs)
        self.check_at = os.path.join(folder, "check")
        self.ledger = Ledger()
        self.witness = Witness(self.volume)
        self.cuts = args.cuts

    def cut(self, i):
        """Let the clients work for a while, then cut."""
        self.ledger.wait_for(self.rng.randint(20, 150), self.db.alive)
        # Cut at any time, not only right after an acknowledgement.
        time.sleep(self.rng.random() * 0.02)
        if i + 1 < self.cuts and (self.control or self.rng.random() < 0.6):
            self.cut_target()
            return
        if i + 1 < self.cuts:
            self.cut_client()
            return
        end(self.volume.daemon)
        if self.control == "no-fsync":
            # While there is no target, an acknowledgement is certainly lost.
            # But xfs forces its log every 30 s: all changes of files, and so
            # the database, then wait for the target. The acknowledgements
            # before that are not synced, either.
            with contextlib.suppress(RuntimeError):
                self.ledger.wait_for(1, self.db.alive)
        self.volume.cut_all()
        self.db.kill()
        self.volume.detach()
        pages = self.volume.open_pages()
        for k in range(IMAGES):
            # All open pages are lost, all are kept (only the client was cut),
            # or a random part is kept.
            path = self.volume.at("image")
            kept = (0, 1)[k] if k < 2 else self.rng.random()
            self.volume.image(path, pages, kept)
            check_image(self.db, path, self.check_at, self.ledger,
                        self.witness, self.volume.log, self.volume.fs)
        print(f"# {self.cuts} cuts, {self.ledger.total()} acknowledged, "
              f"{self.volume.opened} pages not covered", flush=True)

    def cut_target(self):
        """Cut only the target, while a page is not durable or at any time."""
        if self.control == "no-replay" or self.rng.random() < 0.5:
            # The control has to lose bytes of the database, too.
            with self.witness.placed(1 if self.control else 0):
                self.volume.cut_target()
        else:
            self.volume.cut_target()

    def cut_client(self):
        """Cut the client; then its database recovers from the pool."""
        v = self.volume
        v.cut_client()
        self.db.kill()
        v.detach()
        v.attach()
        try:
            run("mount", "-o", v.fs.options, v.loop, v.mount)
            self.witness.check(v.mount)
            self.db.start(v.mount, v.log)
        except RuntimeError as e:
            raise Lost(f"no recovery: {e}") from e
        self.db.check(v.mount, self.ledger)
        self.db.begin(v.mount, self.ledger)

    def run(self):
        """Run all cuts. Returns None, or what was lost."""
        v = self.volume
        try:
            os.mkdir(self.check_at)
            if not v.create():
                return "skip"
            v.attach()
            v.format()
            self.db.setup(v.mount)
            self.witness.create()
            run("sync", "-f", v.mount)
            self.db.start(v.mount, v.log)
            self.db.begin(v.mount, self.ledger)
            for i in range(self.cuts):
                self.cut(i)
        except Lost as e:
            return str(e)
        finally:
            self.db.kill()
            v.close()
            if hasattr(self.db, "close"):
                self.db.close()
        return None


def missing(args):
    """The reason why this machine cannot run the test, or None."""
    db = DATABASES[args.database](None)
    if os.geteuid():
        return "mounts a file system: needs root"
    why = missing_tool("nbdkit", "nbdfuse", "losetup", "unshare", *db.needs)
    if why or missing_fs(args.fs):
        return why or missing_fs(args.fs)
    if args.database == "postgres" and not db.present():
        return "PostgreSQL 15 is missing; on Debian: apt-get install postgresql-15"
    if not os.path.exists("/dev/fuse") or not os.path.exists(
            "/dev/loop-control"):
        return "no /dev/fuse or /dev/loop-control here"
    if not os.path.exists(os.path.join(args.build,
                                       "util/.libs/nbdkit-rpmem-plugin.so")):
        return "built without nbdkit's plugin"
    for lib in ("libshadow.so", "librpmem-fault-fi.so"):
        path = os.path.join(args.build, "fabtests/fault/.libs", lib)
        if not os.path.exists(path):
            sys.exit(f"{path} is missing: make check builds it")
    return None


def print_log(folder):
    """Print the last lines of fi_rpmemd, nbdkit and nbdfuse."""
    with open(os.path.join(folder, "log"), encoding="utf-8") as f:
        sys.stdout.writelines("# " + x for x in f.readlines()[-20:])


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    p.add_argument("--build", required=True)
    p.add_argument("--cuts", type=int, default=5)
    p.add_argument("--seed", type=int,
                   default=int.from_bytes(os.urandom(4), "little"))
    p.add_argument("--fs", choices=FILE_SYSTEMS, default="ext4")
    p.add_argument("--control", choices=("skip-flush", "no-fsync",
                                          *PLANTED))
    p.add_argument("database", choices=DATABASES)
    args = p.parse_args()
    args.build = os.path.abspath(args.build)
    name = ", ".join(filter(None, (args.database, args.control, args.fs)))
    why = missing(args)
    if why:
        print(f"ok - {name} # SKIP {why}")
        return 0
    print(f"# {name}: seed {args.seed}", flush=True)
    # The user postgres enters the mount points, too.
    folder = tempfile.mkdtemp(prefix="rpmemdb", dir="/var/tmp")
    os.chmod(folder, 0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        lost = Run(args, folder).run()
        bad = bool(lost) != bool(args.control)
        if lost == "skip":
            print(f"ok - {name} # SKIP no disk: msync reaches none here")
            return 0
        if lost:
            print(f"# {lost}")
        if bad:
            print_log(folder)
        print(f"{'not ok' if bad else 'ok'} - {name}: "
              f"{'the loss is found' if args.control else 'nothing is lost'}")
        return int(bad)
    except RuntimeError as e:
        print_log(folder)
        print(f"not ok - {name}: {e}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
