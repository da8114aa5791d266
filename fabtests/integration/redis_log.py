# SPDX-License-Identifier: BSD-2-Clause
"""Redis on a remote log, through kills.

usage: redis_log.py KILLS [SEED], in a build folder; redis_log.sh does.

Clients write by single commands, pipelines, transactions, scripts, SPOP and
blocking pops, and note acknowledged changes. SIGKILL ends Redis, or fi_rpmemd,
or both. A killed fi_rpmemd's pool becomes what msync had covered. A killed
Redis's folder is deleted, and a new Redis restores from the log into a folder
with another name: no acknowledged change may be missing. Then a full log must
make the clients wait. Planted bugs must be found.
"""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from volume import wait_until  # noqa: E402

SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
BUILD = os.getcwd()
MODULE = BUILD + "/util/.libs/rpmem_redis.so"

# A planted bug: (file, text, replacement).
PLANTED = {
    "acknowledge before durable": (
        "mirror.c", "\tret = append_bytes(f, f->fd, (uint64_t)s.st_size);\n",
        "\tif (f->first && writes++ % 16)\n\t\treturn 0;\n"
        "\tret = append_bytes(f, f->fd, (uint64_t)s.st_size);\n"),
    "restore without the tail": (
        "restore.c", "\tret = read_entries(info, &lsn, restore_entry, dir);\n",
        "\tstruct rpmem_log_info less = *info;\n"
        "\tless.tail -= less.tail - info->head > 65536 ? 16384 : 0;\n"
        "\tret = read_entries(&less, &lsn, restore_entry, dir);\n"),
    "trim what is needed": (
        "mirror.c", "\t\tif (f->first < head)\n",
        "\t\tif (head == NOWHERE || f->first > head)\n"),
    "rename without an entry": (
        "mirror.c", "\tif (!ret)\n\t\tret = append_name(f, new_name);\n",
        "\tif (!ret && !strstr(new_name, \"manifest\"))\n"
        "\t\tret = append_name(f, new_name);\n"),
    "no cleaning": (
        "module.c", "rp_mirror_clean()", "0"),
}


class Lost(Exception):
    """An acknowledged change is missing."""


class Gone(Exception):
    """Redis has ended."""


class Connection:
    """A client; each call is a pipeline of commands."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, *commands):
        out = b""
        for command in commands:
            words = [w if isinstance(w, bytes) else str(w).encode()
                     for w in command]
            out += b"*%d\r\n" % len(words)
            out += b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        try:
            self.socket.sendall(out)
        except OSError as e:
            raise Gone from e

    def reply(self):
        try:
            line = self.file.readline()
            if not line.endswith(b"\r\n"):
                raise Gone
            kind, rest = line[:1], line[1:-2]
            if kind in b"+:":
                return rest
            if kind == b"-":
                raise Gone(rest)
            if int(rest) < 0:
                return None
            if kind == b"*":
                return [self.reply() for _ in range(int(rest))]
            data = self.file.read(int(rest) + 2)
        except OSError as e:
            raise Gone from e
        if len(data) < int(rest) + 2:
            raise Gone
        return data[:-2]

    def ask(self, *words):
        self.send(words)
        return self.reply()


class Writer:
    """A client that continues with each new Redis."""

    def __init__(self, number):
        self.number, self.acked = number, 0

    def key(self, name):
        return f"{name}{self.number}"

    def prepare(self, c):
        """Read by c which commands of a former connection took effect."""

    def bound(self, what, least, value, most):
        if not least <= value <= most:
            raise Lost(f"{type(self).__name__} {self.number}: {what} is "
                       f"{value}, acknowledged {least}, sent {most}")


class Pipeline(Writer):
    """Pipelined SETs of 64 keys, some of them after a long reply."""

    def __init__(self, number):
        super().__init__(number)
        self.durable, self.sent, self.n = [0] * 64, [0] * 64, 0

    def work(self, c, rng):
        numbers = range(self.n + 1, self.n + 1 + rng.randint(1, 16))
        commands = [("SET", self.key(f"p{n % 64}/"), b"%d %s" % (
            n, b"x" * (n % 300))) for n in numbers]
        long = rng.random() < 0.05
        if long:
            commands.insert(0, ("GET", "long"))
        for n in numbers:
            self.sent[n % 64] = n
        self.n = numbers[-1]
        c.send(*commands)
        if long:
            c.reply()
        for n in numbers:
            c.reply()
            self.durable[n % 64] = n
            self.acked += 1

    def check(self, c):
        for i in range(64):
            value = c.ask("GET", self.key(f"p{i}/")) or b"0"
            self.bound(f"key {i}", self.durable[i], int(value.split()[0]),
                       self.sent[i])
            self.durable[i] = self.sent[i] = int(value.split()[0])


class Pair(Writer):
    """A writer that always changes two keys together."""

    def __init__(self, number):
        super().__init__(number)
        self.durable = self.sent = 0

    def work(self, c, rng):
        self.sent += 1
        self.write(c)
        self.durable = self.sent
        self.acked += 1

    def check(self, c):
        one, two = (int(x or 0) for x in c.ask("MGET", self.key("a"),
                                               self.key("b")))
        if one != two:
            raise Lost(f"{self.number}: half a transaction: {one}, {two}")
        self.bound("value", self.durable, one, self.sent)
        self.durable = self.sent = one


class Transaction(Pair):
    """MULTI ... EXEC in one pipeline."""

    def write(self, c):
        c.send(("MULTI",), ("SET", self.key("a"), self.sent),
               ("INCR", self.key("b")), ("EXEC",))
        for _ in range(4):
            c.reply()


class Script(Pair):
    """A script that writes twice."""

    def write(self, c):
        c.ask("EVAL", "redis.call('incr', KEYS[1]) "
              "redis.call('set', KEYS[2], ARGV[1]) return 1", 2,
              self.key("a"), self.key("b"), self.sent)


class Pops(Writer):
    """SPOP removes a random member, which must never return."""

    def __init__(self, number):
        super().__init__(number)
        self.n, self.members, self.popped, self.flight = 0, set(), set(), 0

    def work(self, c, rng):
        self.n += 1
        c.ask("SADD", self.key("s"), self.n)
        self.members.add(self.n)
        self.flight = 1
        if self.n % 8:
            got = int(c.ask("SPOP", self.key("s")))
            self.popped.add(got)
            self.members.discard(got)
        self.flight = 0
        self.acked += 1

    def check(self, c):
        found = set(int(x) for x in c.ask("SMEMBERS", self.key("s")))
        if found & self.popped:
            raise Lost(f"popped, and there again: {found & self.popped}")
        lost = self.members - found
        if len(lost) > self.flight:
            raise Lost(f"members are missing: {lost}")
        self.members, self.flight = found, 0


class Blocked(Writer):
    """A blocking pop, followed by a SET in the pipeline: both run when
    another client pushes."""

    def __init__(self, number):
        super().__init__(number)
        self.n, self.durable, self.popped = 0, 0, 0

    def work(self, c, rng):
        if not hasattr(c, "pusher"):
            c.pusher = Connection(c.path)
        self.n += 1
        c.send(("BLPOP", self.key("l"), 0), ("SET", self.key("v"), self.n))
        c.pusher.send(("RPUSH", self.key("l"), self.n))
        self.popped = max(self.popped, int(c.reply()[1]))
        c.reply()
        self.durable = self.n
        c.pusher.reply()
        self.acked += 1

    def check(self, c):
        left = [int(x) for x in c.ask("LRANGE", self.key("l"), 0, -1)]
        if left and min(left) <= self.popped:
            raise Lost(f"popped {self.popped}, and there again: {left}")
        value = int(c.ask("GET", self.key("v")) or 0)
        self.bound("value", self.durable, value, self.n)
        self.durable = value


class Machines:
    """fi_rpmemd, and a sequence of Redis servers."""

    def __init__(self, module, size):
        self.module, self.size = module, size
        self.lives, self.port = 0, "0"
        self.daemon = self.redis = None

    def serve(self):
        """Start the daemon, always on the same port."""
        if os.path.exists("ready"):
            os.unlink("ready")
        env = dict(os.environ, RPMEM_SHADOW="vol:vol.safe",
                   LD_PRELOAD=BUILD + "/fabtests/fault/.libs/libshadow.so")
        with open("daemon.out", "ab") as out:
            self.daemon = subprocess.Popen(
                [BUILD + "/util/fi_rpmemd", "--port", self.port, "--port-file",
                 "ready", "vol"], env=env, stdout=out, stderr=out)
        wait_until("fi_rpmemd", lambda: os.path.exists("ready"), self.daemon)
        with open("ready", encoding="ascii") as f:
            self.port = f.read().strip()

    def create(self):
        """Create the pool. False: its file system makes nothing durable."""
        with open("daemon.out", "wb") as out, subprocess.Popen(
                [BUILD + "/util/fi_rpmemd", "--port", "0", "--port-file",
                 "ready", "--create", self.size, "vol"], stdout=out,
                stderr=out) as daemon:
            wait_until("fi_rpmemd", lambda: os.path.exists("ready"), daemon)
            daemon.terminate()
        shutil.copy("vol", "vol.safe")
        with open("daemon.out", encoding="utf-8") as f:
            return any(x.startswith("vol ") and " power " in x for x in f)

    def spawn(self, folder, fsync="always", preload=True, module=True):
        """Start Redis in a folder."""
        env = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/util/.libs")
        if preload:
            env["LD_PRELOAD"] = self.module
        more = ["--loadmodule", self.module, f"127.0.0.1:{self.port}:vol",
                "create", "yes"] if module else []
        with open("redis.out", "ab") as out:
            return subprocess.Popen(
                ["redis-server", "--dir", folder, "--port", "0",
                 "--unixsocket", os.path.abspath(folder) + "/s", "--save", "",
                 "--appendonly", "yes", "--appendfsync", fsync, *more],
                executable=shutil.which("redis-check-rdb"), env=env,
                stdout=out, stderr=out)

    def refuse(self, folder, **args):
        """Start a Redis that must refuse to run; returns what it logs."""
        start = os.path.getsize("redis.out") if self.lives else 0
        redis = self.spawn(folder, **args)
        try:
            wait_until("a refusal", lambda: redis.poll() is not None)
        except RuntimeError as e:
            raise Lost(f"Redis started with {args}") from e
        finally:
            redis.kill()
            redis.wait()
            if os.path.exists(folder + "/s"):
                os.unlink(folder + "/s")
        with open("redis.out", encoding="utf-8") as f:
            f.seek(start)
            return f.read()

    def start(self, **args):
        """Start Redis in a new folder."""
        self.lives += 1
        folder = f"machine{self.lives}"
        os.makedirs(folder, exist_ok=True)
        self.redis = self.spawn(folder, **args)
        self.socket = folder + "/s"

        def loaded():
            try:
                return Connection(self.socket).ask("PING") == b"PONG"
            except (OSError, Gone):
                return False

        try:
            wait_until("Redis", loaded, self.redis)
        except RuntimeError as e:
            if self.lives == 1:
                raise
            raise Lost(f"no restore: {e}") from e

    def end(self):
        """End Redis; its folder stays."""
        self.redis.kill()
        self.redis.wait()
        os.unlink(self.socket)

    def kill_redis(self):
        self.redis.kill()
        self.redis.wait()
        shutil.rmtree(f"machine{self.lives}")

    def kill_child(self):
        """Kill the child of a rewrite, as when memory runs out."""
        pid = self.redis.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = f.read().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        return children

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()
        shutil.copy("vol.safe", "vol")

    def close(self):
        for p in (self.redis, self.daemon):
            if p and p.poll() is None:
                p.kill()
                p.wait()


class Run:
    """A run: writers over several incarnations of Redis."""

    def __init__(self, machines, seed):
        self.m, self.rng = machines, random.Random(seed)
        self.writers = [kind(i) for i, kind in enumerate(
            [Pipeline, Pipeline, Pipeline, Transaction, Script, Pops, Blocked])]
        self.threads, self.failed = [], []

    def acked(self):
        return sum(w.acked for w in self.writers)

    def run_writer(self, w, path, seed):
        rng = random.Random(seed)
        try:
            c = Connection(path)
            c.path = path
            while True:
                w.work(c, rng)
        except (Gone, OSError) as e:
            if e.args and isinstance(e.args[0], bytes):
                self.failed.append(e.args[0])

    def begin(self):
        self.threads = [threading.Thread(
            target=self.run_writer, args=(w, self.m.socket, self.rng.random()),
            daemon=True) for w in self.writers]
        for t in self.threads:
            t.start()

    def join(self):
        for t in self.threads:
            t.join()
        if self.failed:
            raise Lost(f"Redis refused a write: {self.failed[0]}")

    def check(self):
        c = Connection(self.m.socket)
        for w in self.writers:
            w.check(c)

    def grow(self):
        want = self.acked() + self.rng.randint(50, 1500)
        wait_until("acknowledgements", lambda: self.acked() >= want,
                   self.m.redis)
        # Cut at any time, not only right after an acknowledgement.
        time.sleep(self.rng.random() * 0.01)

    def lives(self, kills):
        self.m.serve()
        self.m.start()
        Connection(self.m.socket).ask("SET", "long", b"x" * 300000)
        self.begin()
        for _ in range(kills):
            self.grow()
            what = self.rng.choice(("redis", "redis", "daemon", "both"))
            if what == "daemon":
                self.m.kill_daemon()
                self.m.serve()
                continue
            if what == "both" and self.rng.random() < 0.5:
                self.m.kill_daemon()
                self.m.kill_redis()
            else:
                self.m.kill_redis()
                if what == "both":
                    self.m.kill_daemon()
            self.join()
            if what == "both":
                self.m.serve()
            self.m.start()
            self.check()
            self.begin()
        self.grow()
        self.m.kill_redis()
        self.join()
        self.m.start()
        self.check()


def info(c, name):
    text = c.ask("INFO", "rpmem_log").decode()
    return int(text.split(f"rpmem_{name}:")[1].split()[0])


def fill(m):
    """The data set outgrows the log: writers wait, nothing is lost."""
    m.serve()
    m.start()
    c, n = Connection(m.socket), 0
    watch = Connection(m.socket)
    acked = []

    def write():
        nonlocal n
        try:
            while True:
                n += 1
                c.ask("SET", n, random.Random(n).randbytes(8192))
                acked.append(n)
        except (Gone, OSError):
            pass

    t = threading.Thread(target=write, daemon=True)
    t.start()
    wait_until("a full log", lambda: info(watch, "paused") == 1, m.redis)
    wait_until("a rewrite of it", lambda: info(watch, "base") * 3 >
               info(watch, "capacity"), m.redis)
    if watch.ask("GET", acked[-1]) is None:
        raise Lost("a full log keeps readers waiting")
    cut = cut_uploads(m, watch)
    t.join()
    c = Connection(m.socket)
    for k in acked:
        if c.ask("GET", k) != random.Random(k).randbytes(8192):
            raise Lost(f"{k} of {len(acked)}")
    return f"{len(acked)} writes, then they wait; {cut} uploads cut"


def too_much(m):
    """Two files of Redis fit into the log alone, not together: Redis is
    refused, and its folder stays, also when it starts again."""
    m.start(preload=False, module=False)
    c = Connection(m.socket)
    big = random.Random(0).randbytes(1200000)
    c.ask("SET", "one", big)
    rewrite(c)
    wait_until("a rewrite", lambda: c.ask("INFO", "persistence").count(
        b"aof_rewrite_in_progress:0"), m.redis)
    c.ask("SET", "two", big)
    m.end()
    for _ in range(2):
        if "the pool is too small" not in m.refuse("machine1"):
            raise Lost("the reason of a refusal")
    m.lives = 0
    try:
        m.start(preload=False, module=False)
    except RuntimeError as e:
        raise Lost("the only copy of the files") from e
    if Connection(m.socket).ask("MGET", "one", "two") != [big, big]:
        raise Lost("the only copy of the files")
    m.kill_redis()
    m.lives = 0


def adopt(m):
    """Redis has local files; when a log is added, the files move to it. A
    configuration that makes nothing durable is refused."""
    m.serve()
    too_much(m)
    m.start(preload=False, module=False)
    Connection(m.socket).ask("SET", "before", 1)
    m.end()
    refused = 0
    for text, args in {"loaded as a module alone": {"preload": False},
                       "appendfsync is 'everysec'": {"fsync": "everysec"},
                       }.items():
        refused += text in m.refuse("machine1", **args)
    # The paths of open files would be elsewhere.
    os.rename("machine1/appendonlydir", "elsewhere")
    os.symlink("../elsewhere", "machine1/appendonlydir")
    refused += "symbolic link" in m.refuse("machine1")
    os.unlink("machine1/appendonlydir")
    os.rename("elsewhere", "machine1/appendonlydir")
    m.lives = 0
    m.start()
    m.refuse(".")
    Connection(m.socket).ask("SET", "after", 1)
    m.end()
    # The remedy of a folder here must not be that of a pool without a log.
    os.makedirs("machine1/appendonlydir.old/folder")
    text = m.refuse("machine1")
    if "appendonlydir.old" not in text or "write zeros" in text:
        raise Lost("the reason of a refusal")
    m.kill_redis()
    m.start()
    if Connection(m.socket).ask("MGET", "before", "after") != [b"1", b"1"]:
        raise Lost("files of before are not in the log")
    if refused != 3:
        raise Lost(f"{refused} of 3 refusals")
    return "files move to the log, unsound starts are refused"


def rewrite(c):
    """Start a rewrite, if none is in progress."""
    try:
        c.ask("BGREWRITEAOF")
    except Gone as e:
        if b"in progress" not in (e.args or (b"",))[0]:
            raise


def cut_uploads(m, watch):
    """Kill Redis while a rewrite uploads: the uploaded parts use no log space,
    so that a rewrite succeeds in the end."""
    cut = 0
    for _ in range(12):
        rewrite(watch)
        wait_until("an upload", lambda: info(watch, "uploaded") or
                   not int(watch.ask("INFO", "persistence").split(
                       b"aof_rewrite_in_progress:")[1].split()[0]), m.redis)
        if info(watch, "uploaded"):
            cut += 1
        if cut == 2 and m.kill_child():
            continue
        m.kill_redis()
        m.start()
        watch = Connection(m.socket)
        if cut == 4:
            break
    with open("redis.out", encoding="utf-8") as f:
        f.seek(0, os.SEEK_END)
        lines = ""

        def ended():
            nonlocal lines
            lines += f.read()
            return "finished successfully" in lines or lines.count(
                "rewrite terminated with error") == 3

        rewrite(watch)
        wait_until("a rewrite", ended, m.redis)
        if "finished successfully" not in lines:
            raise Lost(f"{cut} parts of uploads fill the log")
    return cut


def module_alone():
    """Count replies that a module alone cannot delay (without the log)."""
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", "hook.so",
                    SOURCE + "/fabtests/integration/redis_hook.c"], check=True)
    with open("redis.out", "wb") as out, subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", "s", "--save", "",
             "--loadmodule", os.path.abspath("hook.so")],
            executable=shutil.which("redis-check-rdb"), stdout=out) as server:
        try:
            wait_until("Redis", lambda: os.path.exists("s"), server)
            a, b, replica = (Connection("s") for _ in range(3))
            # Redis has a replication stream as soon as a replica has connected.
            replica.send(("PSYNC", "?", -1))
            wait_until("a replica", lambda: b"slave0" in a.ask(
                "INFO", "replication"), server)
            a.ask("SET", "k", "v")
            Transaction(0).work(a, None)
            Script(0).work(a, None)
            inside = int(a.ask("HOOK.EARLY"))
            b.path, blocked = "s", Blocked(0)
            for _ in range(100):
                blocked.work(b, None)
                if int(a.ask("HOOK.EARLY")) > inside:
                    break
            return inside, int(a.ask("HOOK.EARLY")) - inside
        finally:
            server.kill()


def plant(change):
    """Build the module with a bug; None: the source lacks the bug's text."""
    os.mkdir("planted")
    name, old, new = change
    files = []
    for file in ("mirror.c", "module.c", "preload.c",
                 "restore.c"):
        with open(f"{SOURCE}/util/redis/{file}", encoding="ascii") as f:
            text = f.read()
        if file == name:
            if text.count(old) != 1:
                raise RuntimeError(f"{file} has not the text to change: {old}")
            text = text.replace(old, new)
        files.append("planted/" + file)
        with open(files[-1], "w", encoding="ascii") as f:
            f.write(text)
    module = os.path.abspath("planted/planted.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o",
                    module, f"-I{BUILD}", f"-I{SOURCE}", f"-I{SOURCE}/include",
                    *files, f"-L{BUILD}/util/.libs", "-lrpmem_log"],
                   check=True)
    return module


class Folder:
    """A new working folder, on the disk of the build folder."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="redislog.", dir=BUILD)
        os.chdir(self.path)

    def __exit__(self, *_):
        os.chdir(BUILD)
        shutil.rmtree(self.path, ignore_errors=True)


number, bad = 0, 0


def report(good, text):
    global number, bad
    number += 1
    bad += not good
    print(f"{'ok' if good else 'not ok'} {number} - {text}", flush=True)


def attempt(name, action, module=MODULE, size="2M", planted=None, runs=3):
    """
    Run one part of the test in a separate folder. A planted bug must be found
    in one of three runs: a kill can hit Redis when nothing is outstanding.
    """
    with Folder():
        m = Machines(plant(planted) if planted else module, size)
        try:
            if not m.create():
                print("SKIP: no file system here on which msync reaches a disk")
                sys.exit(77)
            text = action(m)
            again = planted and runs > 1
            if not again:
                report(not planted, f"{name}: {text}")
        except Lost as e:
            again = False
            report(planted, f"{name}: {e}")
            if not planted:
                for out in ("redis.out", "daemon.out"):
                    with open(out, encoding="utf-8") as f:
                        sys.stdout.writelines("# " + x
                                              for x in f.readlines()[-15:])
        finally:
            m.close()
    if again:
        attempt(name, action, module, size, planted, runs - 1)


def main():
    kills = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(
        os.urandom(4), "little")
    print(f"# seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def live(m, kills=kills):
        r = Run(m, seed)
        r.lives(kills)
        with open("redis.out", encoding="utf-8") as f:
            rewrites = f.read().count("rewrite finished successfully")
        return (f"nothing lost of {r.acked()} writes in {kills} kills, "
                f"{rewrites} rewrites")

    with Folder():
        inside, blocked = module_alone()
    report(not inside, "a module sees the end of a turn with single commands, "
           "transactions and scripts in time")
    report(blocked, "a module alone is too late for what runs when a client is "
           "unblocked")
    attempt("kills", live)
    attempt("adopt", adopt)
    attempt("a full log", fill)
    for name, change in PLANTED.items():
        if name == "no cleaning" and kills < 100:
            continue  # takes as long as half of all other cases
        attempt(f"planted, {name}",
                fill if name == "no cleaning" else lambda m: live(m, 8),
                planted=change)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
