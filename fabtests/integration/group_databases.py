#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""PostgreSQL on a group of three pools that moves between two machines.

usage: group_databases.py --build DIR [--rounds N] [--seed N] [--control NAME]

The machines are network namespaces, with etcd and three fi_rpmemd on a bridge.
What runs on a machine is the command of docs/storage.md, "A database that moves
to another machine": rpmem_lead run db -- on_rpmem.sh -- PostgreSQL. A member's
fi_rpmemd runs with the shadow library of databases.py, and a cut of it keeps what
its msync covered and a random part of the other pages. Rounds, in a random order:

  member  the power of one or two members is cut, while PostgreSQL continues
  all     all power is cut; two members return, and the third one later
  stop    the primary is stopped, the other machine takes over, and the primary
          continues: none of its writes may reach the pools or be acknowledged
  link    like stop, but the primary's network is cut

After each round but member (unless it is the last), every acknowledged row is
there, and amcheck and e2fsck find nothing wrong. With --control one protection
is left out, and the run fails unless a loss is found: ack-at-1 (a commit
completes at one member of three, which is lost), share (members are not taken
away from the previous writer).
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import databases  # noqa: E402
from databases import Postgres  # noqa: E402
from ledger import Ledger, Lost  # noqa: E402
from volume import (Volume, build_planted, end, plant, run,  # noqa: E402
                    wait_until)

SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
NET = "10.77.0."
PLANTED = {
    "ack-at-1": [
        ("util/libpool/group.c",
         "(unsigned int)__builtin_popcount(o->has & current) < g->k)",
         "(unsigned int)__builtin_popcount(o->has & current) < 1)")],
    "share": [
        ("util/libpool/group_threads.c",
         "	ret = pool_open_as(pool, m->where, &attr, m->of->owner, &m->seen,\n",
         "	attr.exclusive = 0;\n"
         "	ret = pool_open_as(pool, m->where, &attr, m->of->owner, &m->seen,\n")],
}
# SIGINT asks for a fast shutdown. The lock file may be of another machine.
DATABASE = """
cd "$RPMEM_MOUNT" || exit
as="setpriv --reuid postgres --regid postgres --init-groups"
bin=/usr/lib/postgresql/15/bin
if [ ! -d pg ]; then
        install -d -o postgres -g postgres pg &&
                $as $bin/initdb -A trust --no-sync --wal-segsize=1 -D pg &&
                sync -f pg || exit
fi
rm -f pg/postmaster.pid
$as $bin/postgres -D pg -k "$1" -c listen_addresses= -c shared_buffers=8MB \\
        -c max_wal_size=8MB -c min_wal_size=4MB -c checkpoint_timeout=30s &
trap "kill -INT $!" TERM
wait $!
wait $!
"""


def tree(pid):
    """The ids of a process and of all its descendants."""
    found, level = [], [str(pid)]
    while level:
        found += level
        level = subprocess.run(["ps", "-o", "pid=", "--ppid", ",".join(level)],
                               stdout=subprocess.PIPE, text=True,
                               check=False).stdout.split()
    return [int(p) for p in found]


def send(pids, sig):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


class Member(Volume):
    """A pool of the group, and its daemon, whose power can be cut."""

    def __init__(self, build, folder, rng):
        os.mkdir(folder)
        super().__init__(build, folder, rng, None)
        self.bytes = 96 << 20

    def serve(self, *more):
        super().serve("--listen", NET + "1", "--secret",
                      self.at("../secret"), *more)

    @property
    def place(self):
        return f"{NET}1:{self.port}:vol"

    def cut(self):
        """Cut the member's power. serve() restores it."""
        end(self.daemon)
        pages = self.open_pages()
        self.image(self.at("next"), pages, self.rng.random())
        os.rename(self.at("next"), self.pool)
        shutil.copy(self.pool, self.safe)


class Machine:
    """A machine for the database: a network namespace."""

    def __init__(self, number, test):
        self.name, self.test = f"m{number}", test
        self.process = None
        self.sockets = test.at(f"sockets{number}")
        os.mkdir(self.sockets)
        shutil.chown(self.sockets, "postgres")
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "eth0",
            "netns", self.name)
        run("ip", "link", "set", f"v{number}", "up", "master", "br0")
        for command in (f"address add {NET}{number + 1}/24 dev eth0",
                        "link set eth0 up", "link set lo up"):
            run("ip", "-n", self.name, *command.split())

    def link(self, state):
        run("ip", "-n", self.name, "link", "set", "eth0", state)

    def lead(self, *command):
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, "bash",
             os.path.join(SOURCE, "util/rpmem_lead.sh"), "run", "--ttl", "2",
             "db", "--", *command], env=self.test.env,
            stdin=subprocess.DEVNULL, stdout=self.test.log, stderr=self.test.log)

    def start(self):
        # Remove old sockets, as a reboot does.
        for name in os.listdir(self.sockets):
            os.unlink(os.path.join(self.sockets, name))
        self.lead(os.path.join(SOURCE, "util/on_rpmem.sh"), "--secret",
                  self.test.at("secret"), "--", "sh", "-c", DATABASE, "-",
                  self.sockets)

    def status(self):
        return self.process.wait(60)

    def stop(self):
        """Stop the database as an operator does."""
        self.process.terminate()
        if self.status():
            raise Lost(f"the database ended with {self.process.returncode}")

    def kill(self):
        if self.process and self.process.poll() is None:
            pids = tree(self.process.pid)
            send(pids, signal.SIGSTOP)
            # Stop first, so that no new process appears between the two looks.
            pids = set(pids) | set(tree(self.process.pid))
            send(pids, signal.SIGKILL)
            self.process.wait()


class Server(Postgres):
    """The database on one of the machines."""
    at = None  # the machine on which it runs
    first = 0  # number of its first client in the ledger

    def start_on(self, machine):
        self.at = machine
        self.sockets = machine.sockets
        machine.start()
        socket = os.path.join(self.sockets, ".s.PGSQL.5432")
        wait_until("PostgreSQL", lambda: os.path.exists(socket),
                   machine.process)
        wait_until("PostgreSQL", lambda: subprocess.run(
            self.psql("-c", "select 1"), stdout=subprocess.DEVNULL, check=False,
            stderr=subprocess.DEVNULL, **self.user).returncode == 0,
            machine.process)

    def clients_end(self):
        """Wait for the end of all clients, whose connections have ended."""
        for t in self.threads:
            t.join(60)
            if t.is_alive():
                raise RuntimeError("a client of the stale primary hangs")


class Run:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.rng = random.Random(args.seed)
        self.log = open(self.at("log"), "w", encoding="utf-8")
        self.build = args.build
        if args.control:
            self.plant(args.control)
        with open(os.open(self.at("secret"), os.O_WRONLY | os.O_CREAT, 0o600),
                  "w", encoding="ascii") as f:
            f.write(self.rng.randbytes(16).hex())
        self.env = dict(os.environ, RPMEM_BUILD=self.build,
                        ETCDCTL_ENDPOINTS=f"http://{NET}1:2379",
                        TMPDIR=self.at("tmp"))
        self.env.pop("FI_TCP_IFACE", None)
        self.etcd = None
        self.members, self.machines = [], []
        self.db = Server(None)
        self.ledger = Ledger()

    def at(self, name):
        return os.path.join(self.folder, name)

    def plant(self, control):
        """Make a build folder whose plugin has a planted bug."""
        self.build = self.at("build")
        os.makedirs(self.at("build/util/.libs"))
        os.makedirs(self.at("build/prov"))
        for name in ("util/fi_rpmemd", "prov/rpmem"):
            os.symlink(os.path.join(self.args.build, name),
                       os.path.join(self.build, name))
        plugin = build_planted(self.args.build, self.folder, PLANTED[control])
        os.rename(plugin, self.at("build/util/.libs/nbdkit-rpmem-plugin.so"))

    def set_up(self):
        """Create pools, etcd and database. False: msync reaches no disk."""
        os.makedirs("/run/netns", exist_ok=True)
        run("mount", "-t", "tmpfs", "none", "/run/netns")
        os.mkdir(self.at("tmp"), 0o755)
        run("ip", "address", "add", NET + "1/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        run("ip", "link", "set", "lo", "up")
        for i in range(3):
            m = Member(self.args.build, self.at(f"member{i}"), self.rng)
            m.env["FI_TCP_IFACE"] = "br0"
            self.members.append(m)
            if not m.create():
                return False
        url = f"http://{NET}1:"
        self.etcd = subprocess.Popen(
            ["etcd", "--data-dir", self.at("etcd"), "--log-level", "error",
             "--listen-client-urls", url + "2379", "--advertise-client-urls",
             url + "2379", "--listen-peer-urls", url + "2380",
             "--initial-advertise-peer-urls", url + "2380",
             "--initial-cluster", "default=" + url + "2380"],
            stdout=self.log, stderr=self.log)
        wait_until("etcd", lambda: subprocess.run(
            ["etcdctl", "get", "x"], env=self.env, stdout=self.log,
            stderr=self.log, check=False).returncode == 0, self.etcd)
        run(os.path.join(SOURCE, "util/rpmem_lead.sh"), "set", "db",
            ",".join(m.place for m in self.members) + ";k=2", env=self.env)
        self.machines = [Machine(i + 1, self) for i in range(2)]
        self.db.start_on(self.machines[0])
        run(*self.db.psql("-c", "create extension amcheck; create table t "
                          "(c int, n int, primary key (c, n))"), **self.db.user)
        self.begin(self.db)
        return True

    def begin(self, db):
        db.first = len(self.ledger.n)
        db.begin(None, self.ledger)

    def acknowledged(self, db):
        """The number of rows acknowledged to a database's clients."""
        return sum(self.ledger.n[db.first:db.first + db.clients])

    @property
    def standby(self):
        return self.machines[self.db.at is self.machines[0]]

    def wait_rows(self):
        self.ledger.wait_for(self.rng.randint(20, 100), self.db.alive)

    def round_member(self):
        cut = self.rng.sample(self.members, self.rng.randint(1, 2))
        for m in cut:
            m.cut()
        if len(cut) == 1 and self.rng.random() < 0.5:
            self.wait_rows()
        for m in cut:
            m.serve()

    def round_all(self):
        """Cut all power; the member with the most rows returns last."""
        lost = self.rng.choice(self.members)
        others = [m for m in self.members if m is not lost]
        if self.args.control:
            for m in others:
                m.daemon.send_signal(signal.SIGSTOP)
            # From now on only the lost member holds the acknowledged rows.
            self.ledger.wait_for(5, self.db.alive)
        for m in self.members:
            end(m.daemon)
        self.db.at.kill()
        self.db.kill()
        for m in self.members:
            m.cut()
        for m in others:
            m.serve()
        self.take_over(self.rng.choice(self.machines))
        lost.serve()

    def take_over(self, machine):
        """Recover the database on a machine; it must have all rows."""
        db = Server(None)
        try:
            db.start_on(machine)
        except RuntimeError as e:
            raise Lost(f"no recovery: {e}") from e
        self.db = db
        db.check(None, self.ledger)
        self.begin(db)

    def round_stop(self):
        old, primary = self.db, self.db.at
        leader, pids = primary.process, tree(primary.process.pid)
        send(pids, signal.SIGSTOP)
        pids = tree(leader.pid)
        send(pids, signal.SIGSTOP)
        names = {p: open(f"/proc/{p}/cmdline", "rb").read() for p in pids}
        watch = [p for p, c in names.items() if b"rpmem_lead" in c]
        self.take_over(self.standby)
        self.wait_rows()
        # Continue the stale primary first, then the processes that would end
        # it.
        before = self.acknowledged(old)
        send([p for p in pids if p not in watch], signal.SIGCONT)
        if self.args.control:
            wait_until("the stale primary",
                       lambda: self.acknowledged(old) > before)
        else:
            old.clients_end()
        send(watch, signal.SIGCONT)
        self.end_stale(old, primary, leader)

    def end_stale(self, old, primary, leader):
        # The status is 124, or that of a database whose writes have failed.
        if not leader.wait(60) and not self.args.control:
            raise Lost("the stale leader was told nothing")
        old.kill()

    def round_link(self):
        old, primary = self.db, self.db.at
        leader = primary.process
        primary.link("down")
        self.take_over(self.standby)
        self.end_stale(old, primary, leader)
        primary.link("up")

    def examine(self):
        """Stop the database as an operator does, and examine the volume."""
        db = self.db
        db.stopping = True
        db.at.stop()
        db.kill()
        image = self.at("image")
        plugin = os.path.join(self.build, "util/.libs/nbdkit-rpmem-plugin.so")
        m = db.at
        m.lead("sh", "-c", 'FI_PROVIDER_PATH="$4" nbdkit -U - "$1" '
               'secret="$2" take=true pool="$RPMEM_GROUP" '
               '--run "nbdcopy \\$uri $3"', "-", plugin, self.at("secret"),
               image, os.path.join(self.build, "prov/rpmem/.libs"))
        if m.status():
            raise Lost("the volume cannot be read")
        try:
            run("e2fsck", "-fn", image)
        except RuntimeError as e:
            raise Lost(str(e)) from e
        self.take_over(self.rng.choice(self.machines))

    def run(self):
        """Run all rounds. Returns None, or what was lost."""
        try:
            if not self.set_up():
                return "skip"
            kinds = {"ack-at-1": ["all"], "share": ["stop"]}.get(
                self.args.control)
            if not kinds:
                kinds = ["member", "stop", "all"]
                kinds += [self.rng.choice(["member", "stop", "all", "link"])
                          for _ in range(self.args.rounds - 3)]
            for i, kind in enumerate(kinds):
                self.wait_rows()
                print(f"# {kind}", flush=True)
                getattr(self, "round_" + kind)()
                if kind != "member" or i + 1 == len(kinds):
                    self.wait_rows()
                    self.examine()
            print(f"# {len(kinds)} rounds, {self.ledger.total()} acknowledged, "
                  f"{sum(m.opened for m in self.members)} pages not covered",
                  flush=True)
        except Lost as e:
            return str(e)
        finally:
            for m in self.machines:
                m.kill()
            self.db.kill()
            for m in self.members:
                end(m.daemon)
            end(self.etcd)
            for line in run("losetup", "--list", "--noheadings", "--output",
                            "NAME,BACK-FILE").splitlines():
                if self.folder in line:
                    subprocess.run(["losetup", "-d", line.split()[0]],
                                   check=False)
        return None


def missing(args):
    """The reason why this machine cannot run the test, or None."""
    why = databases.missing(argparse.Namespace(build=args.build, fs="ext4",
                                               database="postgres"))
    for tool in ("etcd", "etcdctl", "ip", "nbdcopy", "setpriv"):
        if not why and not shutil.which(tool):
            why = f"{tool} is missing; util/packages.sh names the packages"
    if not why and subprocess.run(
            ["ip", "link", "add", "br0", "type", "bridge"],
            stderr=subprocess.DEVNULL, check=False).returncode:
        return "no bridge can be made in this network namespace"
    return why


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n")[2][7:])
    p.add_argument("--build", required=True)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", type=int,
                   default=int.from_bytes(os.urandom(4), "little"))
    p.add_argument("--control", choices=PLANTED)
    args = p.parse_args()
    args.build = os.path.abspath(args.build)
    name = "PostgreSQL on a group" + (f", {args.control}" if args.control
                                      else "")
    why = missing(args)
    if why:
        print(f"ok - {name} # SKIP {why}")
        return 0
    # The controls run with --long alone: notice here that one has no place.
    for plants in PLANTED.values():
        plant(SOURCE, plants)
    print(f"# {name}: seed {args.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="rpmemdb", dir="/var/tmp")
    os.chmod(folder, 0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        test = Run(args, folder)
        lost = test.run()
        if lost == "skip":
            print(f"ok - {name} # SKIP no disk: msync reaches none here")
            return 0
        if lost:
            print(f"# {lost}")
        bad = bool(lost) != bool(args.control)
        if bad:
            with open(test.at("log"), encoding="utf-8") as f:
                sys.stdout.writelines("# " + x for x in f.readlines()[-30:])
        print(f"{'not ok' if bad else 'ok'} - {name}: "
              f"{'the loss is found' if args.control else 'nothing is lost'}")
        return int(bad)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
