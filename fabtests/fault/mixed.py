#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A mixed load on fi_rpmemd, started by mixed.sh.

Each client process has a part of a pool. It writes records, durably or with a
later commit, and compares the bytes that it reads with those that it wrote. In
the first two thirds an incarnation of the daemon is stopped regularly, while the
clients rest, or is killed while they work. On pool a, a kill leaves only what
msync had covered. The last third is one incarnation, with more reloads.
When the clients rest, each one compares its whole part, the daemon's counters
must equal the clients' commits and bytes, and neither the daemon's memory nor its
descriptors may have grown since the incarnation was warm; in the last third
those of the clients, too. A client whose connection is lost repeats an operation,
so the comparison behind a step that cuts connections has a tolerance; another one
is before the step, and few commits are between the two.
"""
import argparse
import base64
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CLIENTS = 6
SLOTS = 256
SLOT = 4096
PART = SLOTS * SLOT
WARM = 6  # steps of an incarnation before its memory is measured
MORE_KB = 4096  # limit of the growth of anonymous memory
STEADY_WARM = 60  # the same two for the last incarnation
STEADY_KB = 512
MORE_FDS = 2
JOURNAL = 64 << 20  # bytes of writes that the library of a client keeps


def record(client, slot, number):
    """The content of a slot."""
    return (b"%d %d %d;" % (client, slot, number)).ljust(200 + slot, b".")


class NoPower(Exception):
    """The class of a pool is not power."""


class Client:
    """A client process, which gets commands: rest, go on, reopen, end."""

    def __init__(self, number, where, seed):
        self.number, self.where = number, where
        self.rng = random.Random(seed)
        self.model = {}
        self.count = self.commits = self.bytes = 0
        self.dirty = set()  # slots that the next commit covers

    def open(self):
        import rpmem_pool
        self.pool = rpmem_pool.open(self.where, timeout=300,
                                    secret=f"client{self.number}.secret")

    def at(self, slot):
        return (self.number % (CLIENTS // 2)) * PART + slot * SLOT

    def fill_journal(self):
        """Write so much that the library has touched all that it keeps."""
        for _ in range(JOURNAL // PART + 6):
            self.pool.write(bytes(PART), self.at(0))
            self.pool.commit()
            self.commits += 1
            self.bytes += PART

    def compare(self, slot):
        want = self.model[slot]
        got = self.pool.read(len(want), self.at(slot))
        if got != want:
            print(f"client {self.number}, slot {slot}: {got[:40]} in place of "
                  f"{want[:40]}", flush=True)
            os._exit(1)

    def step(self):
        slot = self.rng.randrange(SLOTS)
        dice = self.rng.random()
        if dice < 0.3 and slot in self.model:
            return self.compare(slot)
        if dice < 0.4:
            return self.commit()
        self.count += 1
        durable = self.rng.random() < 0.4
        self.model[slot] = record(self.number, slot, self.count)
        self.pool.write(self.model[slot], self.at(slot), durable=durable)
        if durable:
            self.commits += 1
            self.bytes += len(self.model[slot])
            self.dirty.discard(slot)  # a later commit leaves it out
        else:
            self.dirty.add(slot)
        return None

    def commit(self):
        """Commit, unless there is no write: then a commit sends no request."""
        if self.dirty:
            self.pool.commit()
            self.commits += 1
            self.bytes += sum(len(self.model[slot]) for slot in self.dirty)
            self.dirty.clear()

    def rest(self):
        self.commit()
        for slot in self.model:
            self.compare(slot)
        print(json.dumps({"commits": self.commits, "bytes": self.bytes,
                          "writes": self.count,
                          "reconnects": self.pool.info()["reconnects"]}),
              flush=True)

    def run(self):
        self.open()
        self.fill_journal()
        os.set_blocking(0, False)
        resting = False
        while True:
            word = os.read(0, 1) if resting else self.word()
            if word == b"r":
                self.rest()
                os.set_blocking(0, True)
                resting = True
            elif word == b"n":
                self.pool.close()
                self.open()
                self.rest()
            elif word == b"g":
                os.set_blocking(0, False)
                resting = False
            elif word in (b"e", b""):
                self.pool.close()
                os._exit(0)
            elif not resting:
                self.step()

    @staticmethod
    def word():
        try:
            return os.read(0, 1)
        except BlockingIOError:
            return None


class Test:
    """The daemon and its clients."""

    def __init__(self, seed, minutes):
        self.rng = random.Random(seed)
        self.seconds = minutes * 60
        self.end = time.monotonic() + self.seconds
        self.steady = False  # in the last third
        self.port = 0
        self.files = ["s0"]  # names of files that held the secret
        self.extra = False
        self.incarnations = self.kills = 0
        # Commits of each comparison: exact ones, and those with a tolerance.
        self.exact, self.bounded = [], []
        self.last = {"commits": 0, "bytes": 0, "reconnects": 0}
        self.number = 0
        self.steps = {}
        self.log = open("daemon.out", "w", encoding="utf-8")
        self.new_secret("s0")
        self.daemon = None
        self.clients = []

    # --- the daemon ---

    def new_secret(self, name):
        with open(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(base64.b64encode(os.urandom(32)))

    def configure(self, without=""):
        with open("conf.new", "w", encoding="utf-8") as f:
            f.write(f"port = {self.port}\n[secret app]\n")
            f.writelines(f"file = {name}\n" for name in self.files)
            for pool in "ab" + ("c" if self.extra else ""):
                if pool != without:
                    f.write(f"[pool {pool}]\npath = {pool}\ncreate = "
                            f"{CLIENTS * PART}\nwrite = app\n")
        os.rename("conf.new", "conf")

    def serve(self):
        self.configure()
        if os.path.exists("port"):
            os.unlink("port")
        env = dict(os.environ)
        if os.path.exists("a.safe"):
            env["RPMEM_SHADOW"] = "a:a.safe"
            env["LD_PRELOAD"] = "../fabtests/fault/.libs/libshadow.so"
        self.daemon = subprocess.Popen(
            ["../util/fi_rpmemd", "--config", "conf", "--port-file", "port"],
            stdout=self.log, stderr=self.log, env=env)
        while not os.path.exists("port"):
            assert self.daemon.poll() is None, "fi_rpmemd has ended"
            time.sleep(0.02)
        with open("port", encoding="ascii") as f:
            self.port = int(f.read())
        self.incarnations += 1
        self.age, self.warm = 0, None
        self.counted = 0, 0  # the daemon's commits and bytes at the last rest

    def said(self):
        with open("daemon.out", encoding="utf-8") as f:
            return f.read().count("SIGHUP: ")

    def reload(self, without=""):
        self.configure(without)
        before = self.said()
        self.daemon.send_signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while self.said() == before:
            assert self.daemon.poll() is None, "fi_rpmemd has ended"
            assert time.monotonic() < end, "no reload"
            time.sleep(0.01)

    # --- the clients ---

    def start_client(self, number):
        shutil.copy2(self.files[-1], f"client{number}.secret")
        return subprocess.Popen(
            [sys.executable, __file__, "--client", str(number), "--port",
             str(self.port), "--seed", str(self.rng.randrange(1 << 30))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, word):
        for client in self.clients:
            client.stdin.write(word)
            client.stdin.flush()

    def replies(self):
        total = {"commits": 0, "bytes": 0, "writes": 0, "reconnects": 0}
        for client in self.clients:
            line = client.stdout.readline()
            assert line.startswith(b"{"), line.decode() or "a client has ended"
            for name, value in json.loads(line).items():
                total[name] += value
        return total

    # --- what must hold ---

    def daemon_counts(self):
        out = subprocess.check_output(
            ["../util/fi_rpmem_info", f"--stats={self.daemon.pid}", "--json"])
        target = json.loads(out)[0]["target"]
        assert not target["failed_regions"], target
        return (sum(pool["commits"]["count"] for pool in target["pools"]),
                sum(pool["bytes"] for pool in target["pools"]))

    @staticmethod
    def usage(process):
        with open(f"/proc/{process.pid}/status", encoding="ascii") as f:
            kb = next(int(line.split()[1]) for line in f
                      if line.startswith("RssAnon"))
        return kb, len(os.listdir(f"/proc/{process.pid}/fd"))

    def check_growth(self):
        """Compare anonymous memory and descriptors with those when warm."""
        now = {"daemon": self.usage(self.daemon)}
        if self.steady:
            now |= {f"client {n}": self.usage(client)
                    for n, client in enumerate(self.clients)}
        # A run of minutes is too short for the small limit.
        strict = self.steady and self.seconds >= 900
        if self.warm is None:
            if self.age >= (STEADY_WARM if strict else WARM):
                self.warm = now
            return now
        more = STEADY_KB if strict else MORE_KB
        for name, usage in now.items():
            warm = self.warm[name]
            assert usage[0] <= warm[0] + more and \
                usage[1] <= warm[1] + MORE_FDS, \
                f"KiB, descriptors of {name}: {warm} when warm, {usage} now"
        return now

    def compare(self):
        """Let all clients rest; compare the counters. Returns whether exactly."""
        self.tell(b"r")
        now = self.replies()
        counted = self.daemon_counts()
        mine = [now[name] - self.last[name] for name in ("commits", "bytes")]
        theirs = [new - old for new, old in zip(counted, self.counted)]
        # A client that reconnects repeats one operation, and one later commit
        # may cover what the client would commit afterwards.
        lost = now["reconnects"] - self.last["reconnects"]
        self.last, self.counted = now, counted
        what = f"the daemon counts {theirs[0]} commits of {theirs[1]} bytes, " \
            f"the clients {mine[0]} of {mine[1]}; {lost} lost connections"
        assert abs(mine[0] - theirs[0]) <= 2 * lost, what
        assert lost or mine == theirs, what
        self.note(what)
        if lost:
            self.bounded.append(mine[0])
        elif mine[0]:
            self.exact.append(mine[0])
        return not lost and mine[0] > 0

    def rest(self):
        """Let all clients rest, until the counters were compared exactly."""
        while not self.compare():
            self.tell(b"g")
            time.sleep(0.1)
        usage = " ".join(f"{kb}/{fds}" for kb, fds in
                         self.check_growth().values())
        self.note(f"rest: KiB/descriptors {usage}; step {self.age}; in all "
                  f"{self.last}")

    def note(self, text):
        print(f"# {self.incarnations}: {text}", flush=True)

    # --- the steps ---

    def step_reload(self):
        self.reload()

    def step_pool(self):
        self.extra = not self.extra
        self.reload()

    def before_loss(self):
        """Compare exactly, so that few commits are between this and a loss."""
        self.compare()
        self.tell(b"g")
        time.sleep(self.rng.random() / 10)

    def after_loss(self):
        self.compare()
        self.tell(b"g")

    def step_away(self):
        """Remove a pool from the configuration, then add it again."""
        self.before_loss()
        self.reload(without=self.rng.choice("ab"))
        time.sleep(self.rng.random())
        self.reload()
        self.after_loss()

    def step_secret(self):
        """Add a secret file, switch all clients to it, remove the old file."""
        self.before_loss()
        self.number += 1
        new, old = f"s{self.number}", self.files[0]
        self.new_secret(new)
        self.files = [old, new]
        self.reload()
        for n in range(CLIENTS):
            shutil.copy2(new, "new")
            os.rename("new", f"client{n}.secret")
        self.files = [new]
        self.reload()
        os.unlink(old)
        self.after_loss()

    def step_rest(self):
        self.rest()
        self.tell(b"g")

    def step_restart(self):
        self.rest()
        self.daemon.terminate()
        assert self.daemon.wait() == 0, "exit status"
        if os.path.exists("a.safe"):
            shutil.copyfile("a", "a.safe")
        self.serve()
        self.tell(b"g")

    def step_kill(self):
        """Kill the daemon: its counts are lost. Rest, then count from there."""
        self.before_loss()
        self.daemon.kill()
        self.daemon.wait()
        if os.path.exists("a.safe"):
            shutil.copyfile("a.safe", "a")
        self.kills += 1
        self.serve()
        self.tell(b"r")
        self.last = self.replies()
        self.counted = self.daemon_counts()
        self.tell(b"g")

    def repeat(self, steps, end, pause):
        """Take steps, by their weights, until the end."""
        while time.monotonic() < end:
            step = self.rng.choices(list(steps), list(steps.values()))[0]
            name = step.__name__[5:]
            self.steps[name] = self.steps.get(name, 0) + 1
            step()
            self.age += 1
            time.sleep(self.rng.random() * pause)

    def run(self):
        self.serve()
        with open("daemon.out", encoding="utf-8") as f:
            if not re.search("^a .* power ", f.read(), re.MULTILINE):
                raise NoPower
        self.daemon.terminate()
        self.daemon.wait()
        shutil.copyfile("a", "a.safe")
        self.serve()
        self.clients += [self.start_client(n) for n in range(CLIENTS)]
        self.tell(b"r")
        self.replies()
        self.tell(b"g")
        steps = {self.step_reload: 18, self.step_pool: 12, self.step_away: 12,
                 self.step_secret: 12, self.step_rest: 24}
        self.repeat(steps | {self.step_restart: 1, self.step_kill: 1},
                    self.end - self.seconds / 3, 2)
        self.step_restart()
        self.steady = True
        self.repeat(steps, self.end, 0.4)
        self.step_rest()
        assert self.warm or self.seconds < 900, "the growth was not measured"
        self.note(f"the last incarnation took {self.age} steps")
        self.step_kill()
        self.tell(b"rn")
        last = self.replies()
        assert last["reconnects"], "no connection was lost"
        self.replies()
        self.tell(b"e")
        assert all(client.wait() == 0 for client in self.clients)
        self.daemon.terminate()
        assert self.daemon.wait() == 0, "exit status"
        with open("daemon.out", encoding="utf-8") as f:
            assert "not exported" not in f.read(), "a reload has failed"
        compared = f"{sum(self.exact)} commits in {len(self.exact)} exact " \
            f"comparisons, {sum(self.bounded)} in {len(self.bounded)} behind " \
            "lost connections"
        assert len(self.exact) > len(self.bounded) and \
            sum(self.exact) > sum(self.bounded), compared
        print(f"# {self.incarnations} incarnations, {self.kills} killed; {last}; "
              f"{compared}; {self.steps}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int,
                        default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--client", type=int)
    parser.add_argument("--port", type=int)
    args = parser.parse_args()
    if args.client is not None:
        pool = "ab"[args.client * 2 // CLIENTS]
        Client(args.client, f"127.0.0.1:{args.port}:{pool}", args.seed).run()
    print(f"# seed {args.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="mixed.", dir=".")
    os.chdir(folder)
    test = Test(args.seed, args.minutes)
    try:
        test.run()
    except NoPower:
        print("SKIP: no file system here on which msync reaches a disk")
        sys.exit(77)
    except (AssertionError, OSError) as e:
        print(f"not ok 1 - {e} (seed {args.seed})")
        with open("daemon.out", encoding="utf-8") as f:
            print("".join("# daemon: " + line for line in
                          f.readlines()[-20:]))
        sys.exit(1)
    finally:
        for process in [test.daemon, *test.clients]:
            if process and process.poll() is None:
                process.kill()
        os.chdir("..")
        shutil.rmtree(folder)
    print("ok 1 - all acknowledged writes are there, and the counters add up")


main()
