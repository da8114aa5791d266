#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A group of pools on hosts that are partitioned, killed and replaced.

usage: group_net.py [--seed N] [--long | --rounds N] [--only NAME], in a build
folder, as the first process of its own namespaces (group_net.sh)

Each member, and each of two writers, is a network namespace; a bridge joins
them, and a second bridge joins those that are partitioned from the others.
Writers (group_load.c) put numbers into cells and keep a ledger. After all
disturbances a last writer reads every cell. The ledgers prove that no
acknowledged write is lost, that no two writers had the same turn, and that a
displaced writer gets an error. At the end all members hold the same bytes.
"""
import argparse
import base64
import collections
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HANG = 120  # s: a step that takes longer counts as hung
AREA = 65536
LENGTH = 3 << 20
TIMEOUT = 2  # s, timeout of a writer's operations
QUIET_MS = 1500  # ms after which a silent member counts as lost
ENOUGH = 20  # commits after a disturbance
ESTALE, EIO = -116, -5
HERE = os.getcwd()
SOURCE = os.path.dirname(os.path.realpath(__file__))


class Failed(Exception):
    """A property that must hold is violated."""


def run(*args):
    subprocess.run(args, check=True)


def wait_for(what, condition):
    until = time.monotonic() + HANG
    while not condition():
        if time.monotonic() > until:
            raise Failed(f"hangs for {HANG} s: {what}")
        time.sleep(0.02)


# --- hosts ---


class Host:
    """A network namespace with an address, at bridge 0 or 1."""

    count = 0

    def __init__(self, name):
        Host.count += 1
        self.name, self.port = name, f"v{Host.count}"
        self.address = f"10.77.0.{Host.count}"
        self.hardware = f"02:00:00:00:00:{Host.count:02x}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name",
            "eth0", "address", self.hardware, "netns", name)
        run("ip", "-n", name, "address", "add", self.address + "/24", "dev",
            "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", name, "link", "set", link, "up")
        self.join(0)

    def join(self, bridge):
        """Attach the host to one of the bridges."""
        run("ip", "link", "set", self.port, "master", f"bridge{bridge}", "up")

    def cut(self):
        run("ip", "link", "set", self.port, "down")

    def deaf(self, to):
        """Drop what this host sends to another one, but not the reverse."""
        run("ip", "-n", self.name, "neigh", "replace", to.address, "lladdr",
            "02:00:00:00:ff:ff", "nud", "permanent", "dev", "eth0")

    def mend(self, hosts):
        self.join(0)
        for to in hosts:
            if to is not self:
                run("ip", "-n", self.name, "neigh", "replace", to.address,
                    "lladdr", to.hardware, "nud", "permanent", "dev", "eth0")

    def start(self, args, log, **more):
        env = dict(os.environ, FI_TCP_IFACE="eth0",
                   FI_OFI_RPMEM_TIMEOUT=str(QUIET_MS), **more)
        with open(log, "ab") as out:
            return subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.name}"] + args,
                stdin=subprocess.PIPE, stdout=out, stderr=out, env=env)


class SlowPath:
    """Delay and loss between a host and bridge 0: tc netem, or slow_link.py."""

    netem = None  # whether the kernel has it; None: not tried yet

    def __init__(self, host, seed):
        self.host, self.process = host, None
        self.ends = [f"{host.port}{end}" for end in "ab"]
        if SlowPath.netem is not False:
            p = subprocess.run(
                ["tc", "-n", host.name, "qdisc", "replace", "dev", "eth0",
                 "root", "netem", "delay", "8ms", "7ms", "loss", "2%"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False) if shutil.which("tc") else None
            SlowPath.netem = bool(p) and p.returncode == 0
            if not SlowPath.netem:
                print("slow_link.py in place of tc netem: "
                      + (p.stdout.strip() if p else "tc is not installed"),
                      flush=True)
        if SlowPath.netem:
            return
        run("ip", "link", "set", host.port, "nomaster")
        run("ip", "link", "add", self.ends[0], "type", "veth", "peer", "name",
            self.ends[1])
        run("ip", "link", "set", self.ends[0], "up")
        run("ip", "link", "set", self.ends[1], "master", "bridge0", "up")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(SOURCE, "slow_link.py"), host.port,
             self.ends[0], str(seed)])

    def end(self):
        if not self.process:
            run("tc", "-n", self.host.name, "qdisc", "delete", "dev", "eth0",
                "root")
            return
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        run("ip", "link", "delete", self.ends[0])
        self.host.join(0)
        if not alive:
            raise Failed(f"slow_link.py at {self.host.name} has ended")


class Member:
    def __init__(self, number):
        self.host = Host(f"member{number}")
        self.path = f"member{number}/vol"
        os.mkdir(f"member{number}")
        self.log = f"member{number}/log"
        self.begin()

    def begin(self):
        port = self.path + ".port"
        if os.path.exists(port):
            os.unlink(port)
        self.daemon = self.host.start(
            [f"{HERE}/util/fi_rpmemd", "--listen", self.host.address,
             "--secret", "secret", "--port-file", port, "--create",
             str(LENGTH), self.path], self.log)
        wait_for(f"{self.path} is served",
                 lambda: os.path.exists(port) or self.daemon.poll() is not None)
        if self.daemon.poll() is not None:
            with open(self.log, encoding="utf-8") as f:
                raise Failed(f"fi_rpmemd ends: {f.read()[-400:]}")

    def kill(self, how=signal.SIGKILL):
        self.daemon.send_signal(how)
        self.daemon.wait()

    def replace(self):
        self.kill()
        os.unlink(self.path)
        self.begin()


class Writer:
    count = 0
    preload = None

    def __init__(self, host, place, seed, how="take", look=False):
        Writer.count += 1
        self.number, self.host, self.killed = Writer.count, host, False
        self.path = f"ledger{self.number}"
        self.process = host.start(
            [f"{HERE}/fabtests/functional/group_load", place, self.path, how,
             str(seed), str(TIMEOUT)] + (["look"] if look else []),
            f"log{self.number}",
            **({"LD_PRELOAD": self.preload} if self.preload else {}))
        self.at, self.rest = 0, ""
        self.acks = 0
        self.said = collections.Counter()
        self.last = {}

    def hear(self):
        """Read the new lines of the ledger."""
        if not os.path.exists(self.path):
            return
        with open(self.path, encoding="utf-8") as f:
            f.seek(self.at)
            text = f.read()
            self.at = f.tell()
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            word, _, rest = line.partition(" ")
            self.said[word] += 1
            self.last[word] = rest
        self.acks = self.said["ack"]

    def has_ended(self):
        self.hear()
        return self.process.poll() is not None

    def result(self):
        """The result with which the writer has ended."""
        if "end" not in self.last:
            with open(f"log{self.number}", encoding="utf-8",
                      errors="replace") as f:
                self.last["end"] = f"-1 {f.read()[-400:]}"
        return int(self.last["end"].split()[0])

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def finish(self):
        self.process.stdin.close()
        wait_for(f"writer {self.number} ends", self.has_ended)


# --- ledgers ---


def check(writers, last):
    """Check the numbers in all ledgers, from writer to writer."""
    lives, acked, put = {}, {}, {}
    acks = 0
    for w in writers:
        seen, pending, w.saw = {}, {}, {}
        w.life = None
        with open(w.path, encoding="utf-8", errors="replace") as f:
            for line in f:
                word, *rest = line.split()
                if not line.endswith("\n"):
                    break
                if word == "see":
                    seen[int(rest[0])] = int(rest[1]), int(rest[2])
                elif word == "seen":
                    w.saw = seen
                elif word == "put":
                    pending[int(rest[0])] = int(rest[1])
                    put.setdefault(int(rest[0]), set()).add(int(rest[1]))
                elif word == "ack":
                    acks += 1
                    for cell, number in pending.items():
                        acked.setdefault(cell, {})[number >> 32] = number
                    pending = {}
                elif word == "life":
                    w.life = int(rest[0])
                    if w.life in lives:
                        raise Failed(f"two histories: writers {lives[w.life]} "
                                     f"and {w.number} are both number {w.life}")
                    lives[w.life] = w.number
                elif word == "wrong":
                    raise Failed(f"writer {w.number}: {line.strip()}")
    for w in writers:
        if not w.saw:
            continue
        turn = w.saw.get(0, (0, 0))[0] >> 32
        turn = w.life - 1 if w.life else turn
        for cell, by in acked.items():
            must = max((n for life, n in by.items() if life <= turn), default=0)
            if w is last:
                must = max(by.values())
            least, most = w.saw.get(cell, (0, 0))
            if least < must:
                raise Failed(f"writer {w.number} finds {least:#x} in cell "
                             f"{cell}, and {must:#x} was acknowledged")
            if most and most not in put[cell]:
                raise Failed(f"cell {cell}: nobody has put {most:#x}")
    for w in writers:
        if w is last or w.killed or not w.life:
            continue
        ret = w.result()
        if w.life < max(lives) and ret not in (ESTALE, EIO):
            raise Failed(f"writer {w.number} was displaced, and ends with "
                         f"{w.last['end']}")
    return acks


# --- the disturbances ---


class Net:
    def __init__(self, rng, n, k):
        self.rng, self.n, self.k = rng, n, k
        for bridge in (0, 1):
            run("ip", "link", "add", f"bridge{bridge}", "type", "bridge")
            run("ip", "link", "set", f"bridge{bridge}", "up")
        self.members = [Member(i) for i in range(n)]
        self.hosts = [Host("writer0"), Host("writer1")]
        self.all = [m.host for m in self.members] + self.hosts
        self.place = ",".join(f"{m.host.address}:vol" for m in self.members)
        self.place += f";k={k}"
        self.writers, self.now = [], None
        self.mend()
        self.take(self.hosts[0])

    def mend(self):
        for h in self.all:
            h.mend(self.all)

    def take(self, host=None, how="take"):
        """Start a writer, on this host or the other one."""
        self.now = Writer(host or self.rng.choice(self.hosts), self.place,
                          self.rng.randrange(1 << 30), how)
        self.writers.append(self.now)

    def go_on(self):
        """Wait for commits; restart a writer that has lost all members."""
        w = self.now
        w.hear()
        goal = w.acks + ENOUGH

        def is_on():
            if self.now.has_ended():
                if self.now.result() != EIO:
                    raise Failed(f"writer {self.now.number} ends: "
                                 f"{self.now.last['end']}")
                self.take()
            return self.now.acks >= (goal if self.now is w else ENOUGH)

        wait_for("commits", is_on)

    def all_current(self):
        def are():
            self.now.hear()
            return self.now.last.get("current") == str(self.n)

        wait_for("all members are current", are)

    def wait_end(self, old):
        wait_for(f"writer {old.number} is told", old.has_ended)

    def some(self, count=None):
        """Choose as many members as may be away."""
        return self.rng.sample(self.members, count or self.n - self.k)

    # Each disturbance ends with all hosts repaired; its writer may not be
    # current.

    def members_killed(self):
        """Members are killed and come back."""
        away = self.some()
        for m in away:
            m.kill()
        self.go_on()
        for m in away:
            m.begin()

    def all_killed(self):
        """All daemons are killed at the same time."""
        for m in self.members:
            m.kill()
        for m in self.members:
            m.begin()

    def members_stopped(self):
        """Members are stopped for longer than the timeout."""
        for m in self.some():
            m.daemon.send_signal(signal.SIGSTOP)
        self.go_on()
        time.sleep(TIMEOUT)
        self.go_on()
        for m in self.members:
            m.daemon.send_signal(signal.SIGCONT)

    def members_cut(self):
        """The network links of members are down."""
        for m in self.some():
            m.host.cut()
        self.go_on()

    def members_slow(self):
        """All paths to members delay, reorder and lose frames."""
        paths = [SlowPath(m.host, self.rng.randrange(1 << 30))
                 for m in self.members]
        self.go_on()
        for p in paths:
            p.end()

    def members_mute(self):
        """Members receive from the writer, which receives nothing from them."""
        for m in self.some():
            m.host.deaf(self.now.host)
        self.go_on()

    def members_deaf(self):
        """The writer receives from members, which receive nothing from it."""
        for m in self.some():
            self.now.host.deaf(m.host)
        self.go_on()

    def retries(self, member):
        """Repetitions of bytes of a closed connection by the writer's kernel."""
        out = subprocess.run(
            ["ip", "netns", "exec", self.now.host.name, "ss", "-tnoH", "state",
             "fin-wait-1", "dst", member.host.address],
            check=True, stdout=subprocess.PIPE, encoding="ascii").stdout
        return max((int(n) for n in re.findall(r"timer:\(.*,(\d+)\)", out)),
                   default=0)

    def late_bytes(self):
        """Bytes of a lost connection arrive when the member is current again."""
        m = self.members[0]  # which is asked for all reads
        self.all_current()
        self.now.host.deaf(m.host)
        self.go_on()
        # The pauses between the attempts double.
        wait_for("the kernel repeats lost bytes", lambda: self.retries(m) > 4)
        self.mend()
        self.all_current()
        wait_for("they arrive", lambda: not self.retries(m))
        self.go_on()

    def members_replaced(self):
        """Empty pools replace k - 1 members."""
        self.all_current()
        for m in self.some(self.k - 1):
            m.replace()
        self.go_on()
        self.all_current()

    def last_copy(self):
        """Members are replaced; then those with all bytes are lost."""
        self.members_replaced()
        self.go_on()
        self.members_replaced()

    def writer_killed(self):
        """The writer is killed; another one continues without some members."""
        self.now.kill()
        away = self.some(min(self.k - 1, self.n - self.k))
        for m in away:
            m.host.cut()
        self.take()
        self.go_on()

    def writer_displaced(self):
        """A writer that works is displaced."""
        old = self.now
        self.take()
        self.go_on()
        self.wait_end(old)

    def both_take(self):
        """Two writers displace each other."""
        writers = []
        for _ in range(2):
            for h in self.hosts:
                self.take(h)
                writers.append(self.now)
            wait_for("one has it",
                     lambda: any(w.has_ended() or w.acks
                                 for w in writers[-2:]))
        # The newest writer may have been displaced as well.
        left = [w for w in writers if not w.has_ended()]
        if not left:
            self.take()
        wait_for("one is left",
                 lambda: sum(not w.has_ended() for w in writers) <= 1)
        left = [w for w in writers if not w.has_ended()]
        if left:
            self.now = left[0]
        else:
            self.take()
        self.go_on()

    def parted_with_few(self):
        """The writer and k - 1 members are in one partition."""
        old = self.now
        few = self.some(self.k - 1)
        for h in [old.host] + [m.host for m in few]:
            h.join(1)
        self.take(next(h for h in self.hosts if h is not old.host))
        self.go_on()
        self.mend()
        self.wait_end(old)

    def epoch_survives(self):
        """Writer and daemons end after a takeover; the old one comes back."""
        old = self.now
        old.host.join(1)
        self.take(next(h for h in self.hosts if h is not old.host))
        self.go_on()
        self.now.kill()
        for m in self.members:
            m.kill()
        for m in self.members:
            m.begin()
        self.mend()
        self.wait_end(old)
        self.take()


ORDER = ["members_killed", "parted_with_few", "members_mute", "last_copy",
         "epoch_survives", "writer_killed", "members_cut", "both_take",
         "all_killed", "members_stopped", "writer_displaced", "members_deaf",
         "late_bytes", "members_replaced", "members_slow"]


def disturb(net, name):
    print(f"writer {net.now.number}, {net.now.acks} commits: "
          f"{getattr(Net, name).__doc__}", flush=True)
    getattr(net, name)()
    net.mend()
    net.go_on()


def finish(net):
    for m in net.members:
        m.daemon.send_signal(signal.SIGCONT)
    net.take(net.hosts[1])
    net.writers.pop()
    net.now.finish()
    last = Writer(net.hosts[0], net.place, 1, "take", True)
    net.writers += [net.now, last]
    net.now = last
    net.all_current()
    last.finish()
    if last.result():
        raise Failed(f"the last writer: {last.last['end']}")
    for w in net.writers:
        if not w.killed:
            wait_for(f"writer {w.number} ends", w.has_ended)
    for m in net.members:
        m.kill(signal.SIGTERM)
    holds, epochs = [], set()
    for m in net.members:
        with open(m.path, "rb") as f:
            data = f.read()[-LENGTH:]
        holds.append(data[AREA:])
        promised, first, second = (struct.unpack_from("<Q", data, at)[0]
                                   for at in (512, 1024, 1536))
        epochs |= {promised, max(first, second)}
    if len(epochs) > 1:
        raise Failed(f"epochs of current members, and what they have promised, "
                     f"differ: {sorted(epochs)}")
    for i in range(1, net.n):
        at = next((b for b in range(0, len(holds[0]), 8)
                   if holds[i][b:b + 8] != holds[0][b:b + 8]), None)
        if at is not None:
            raise Failed(f"members 0 and {i} differ at {at}: "
                         f"{holds[0][at:at + 8][::-1].hex()} and "
                         f"{holds[i][at:at + 8][::-1].hex()}")
    return check(net.writers, last)


def main():
    global HANG
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--rounds", type=int, default=len(ORDER))
    parser.add_argument("--only", help="one disturbance, again and again")
    parser.add_argument("--preload", help="in place of the writers' own")
    parser.add_argument("--hang", type=int, default=HANG, help="seconds")
    args = parser.parse_args()
    Writer.preload = args.preload
    HANG = args.hang
    seed = args.seed or int(os.environ.get("RP_SEED", 0)) or os.getpid() + \
        int(time.time())
    rng = random.Random(seed)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    n, k = (5, 3) if seed % 2 else (3, 2)
    print(f"RP_SEED={seed}: commits at {k} of {n}", flush=True)
    with tempfile.TemporaryDirectory(prefix="group_net.", dir=HERE) as scratch:
        os.chdir(scratch)
        net = None
        with open(os.open("secret", os.O_CREAT | os.O_WRONLY, 0o600), "w",
                  encoding="ascii") as f:
            f.write(base64.b64encode(os.urandom(32)).decode() + "\n")
        try:
            net = Net(rng, n, k)
            net.go_on()
            until = time.monotonic() + 3600
            names = [args.only] * args.rounds if args.only else \
                ORDER[:args.rounds]
            while names:
                for name in names:
                    disturb(net, name)
                if args.long and time.monotonic() < until:
                    names = [rng.choice(ORDER) for _ in ORDER]
                else:
                    names = []
            acks = finish(net)
        except Failed as e:
            print(f"FAIL: RP_SEED={seed}: {e}")
            for w in (net.writers if net else [])[-3:]:
                print(f"writer {w.number} at {w.host.name}: {dict(w.said)}, "
                      f"{w.last.get('end')}, {w.last.get('late')}, "
                      f"{w.last.get('refused')}")
            return 1
    print(f"{acks} commits of {len(net.writers)} writers, none lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
