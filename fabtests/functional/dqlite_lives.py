#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Three servers of dqlite on three pools over many lives.

usage: dqlite_lives.py SERVER PRELOAD FI_RPMEMD SHADOW KILLS PORT [FAULT]

Two clients insert rows while SIGKILL ends the leader, a follower, a daemon
below running servers, or all; a pool then keeps only what msync had covered.
At the end a leader has each acknowledged row, and nothing else; then servers
in new folders have them, on the pools alone and without the last leader.
Servers that name another pool as theirs lose nothing. RP_SEED repeats the
choices. With FAULT, such as skip-flush, the daemons have it when the last rows
are inserted, so that these must be missing.
"""
import hashlib
import os
import random
import shutil
import sys
import threading
import time

sys.dont_write_bytecode = True
import dqlite  # noqa: E402
import raft_lives  # noqa: E402
from raft_lives import SERVERS, WAIT, await_acks  # noqa: E402

ERRORS = (dqlite.Failure, OSError)


class Cluster(raft_lives.Cluster):
    def __init__(self, program, preload, rpmemd, shadow, port, seed):
        super().__init__(program, rpmemd, shadow, port, seed)
        self.preload = preload
        self.size = "32M"
        self.fault = None  # a fault that is injected into daemons
        self.at = {}  # names of pools at other servers
        # dqlite makes IDs from addresses, but the first server is number 1.
        self.ids = [1] + [int.from_bytes(hashlib.sha1(a.encode()).digest()[:7],
                                         "little") for a in self.addresses[1:]]

    def spawn(self, name, argv, **env):
        if self.fault and name.startswith("daemon"):
            env.update(RPMEM_FAULT=self.fault,
                       FI_PROVIDER_PATH=os.path.abspath("faulty"))
        super().spawn(name, argv, **env)

    def where(self, i):
        return f"127.0.0.1:{open(f'port{i}').read().strip()}:pool{i}"

    def start_servers(self, *which):
        for i in which:
            os.makedirs(f"folder{i}", exist_ok=True)
            open(f"server{i}.out", "w").close()
            env = {"LD_PRELOAD": os.environ.get("RP_PRELOAD", "")
                   + self.preload, "RPMEM_RAFT_POOL": self.where(i)}
            if i in self.at:
                env["RPMEM_RAFT_AT"] = self.at[i]
            self.spawn(f"server{i}", [
                self.program, str(self.ids[i - 1]), self.addresses[i - 1],
                f"folder{i}"], **env)
        for i in which:
            self.await_file(f"server{i}", lambda i=i: "ready" in open(
                f"server{i}.out").read())

    def restart_daemon(self, i):
        """Cut the power of one pool's machine."""
        self.end(f"daemon{i}")
        shutil.copyfile(f"pool{i}.safe", f"pool{i}")
        port = open(f"port{i}").read().strip()
        os.remove(f"port{i}")
        self.spawn(f"daemon{i}", [
            self.rpmemd, "--port", port, "--port-file", f"port{i}",
            f"pool{i}"], RPMEM_SHADOW=f"pool{i}:pool{i}.safe",
            LD_PRELOAD=os.environ.get("RP_PRELOAD", "") + self.shadow)
        self.await_file(f"daemon{i}", lambda: os.path.exists(f"port{i}"))


class Client(threading.Thread):
    """Inserts the numbers that are `first` modulo 2, each until it is acked."""

    def __init__(self, cluster, first):
        super().__init__(daemon=True)
        self.cluster, self.first = cluster, first
        self.conn = None
        self.leader = 1
        self.stopped = False
        self.acked = 0
        self.last = ""  # the last error

    def hang_up(self):
        if self.conn:
            self.conn.close()
        self.conn = None

    def connect(self):
        """Connect to the leader that the present server knows."""
        self.hang_up()
        addresses = self.cluster.addresses
        conn = dqlite.Connection(addresses[self.leader - 1])
        try:
            leader = conn.leader()
            if leader not in addresses:
                raise dqlite.Failure("no leader")
            if leader != addresses[self.leader - 1]:
                conn.close()
                conn = dqlite.Connection(leader)
                self.leader = addresses.index(leader) + 1
            conn.open("test")
        except ERRORS:
            conn.close()
            raise
        self.conn = conn

    def until_done(self, step):
        """Call step(connection) until it succeeds; returns its result."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            try:
                if not self.conn:
                    self.connect()
                return step(self.conn)
            except ERRORS as e:
                self.last = str(e)
                if not self.conn:
                    self.leader = 1 + self.leader % len(SERVERS)
                self.hang_up()
                time.sleep(0.02)
        sys.stderr.write(f"FAIL: the servers commit nothing: {self.last}\n")
        self.cluster.end_all()
        os._exit(1)

    def insert(self, n):
        self.until_done(lambda c: c.execute(
            "INSERT OR IGNORE INTO rows VALUES(?, ?)", n, f"row-{n}-of-test"))
        self.acked += 1

    def run(self):
        while not self.stopped:
            self.insert(2 * self.acked + self.first)


def join(cluster):
    """Make a cluster of three voters, and a table."""
    cluster.start_servers(*SERVERS)
    client = Client(cluster, 0)
    for i in SERVERS[1:]:
        client.until_done(lambda c, i=i: c.add(cluster.ids[i - 1],
                                               cluster.addresses[i - 1]))
        client.until_done(lambda c, i=i: c.make_voter(cluster.ids[i - 1]))
    client.until_done(lambda c: c.execute(
        "CREATE TABLE rows(n INTEGER PRIMARY KEY, t TEXT)"))
    client.hang_up()


def lives(cluster, clients, kills, choice):
    """Send SIGKILL after a seeded number of acknowledged rows."""
    kinds = ("leader", "daemon", "all", "follower")
    counts = dict.fromkeys(kinds, 0)
    for n in range(kills):
        await_acks(cluster, clients, 10 + choice.randrange(60))
        kind = kinds[n % len(kinds)]
        counts[kind] += 1
        leader = clients[0].leader
        victim = leader if kind == "leader" else 1 + leader % 3
        if kind == "all":
            cluster.power_cut()
        elif kind == "daemon":
            cluster.restart_daemon(1 + choice.randrange(3))
        else:
            cluster.end(f"server{victim}")
            await_acks(cluster, clients, 10 + choice.randrange(60))
            cluster.start_servers(victim)
    await_acks(cluster, clients, 20)
    return counts


def require_rows(cluster, want):
    """The leader has exactly these rows."""
    client = Client(cluster, 0)
    rows = client.until_done(lambda c: c.numbers(
        "SELECT n FROM rows WHERE t = 'row-' || n || '-of-test' ORDER BY n"))
    client.hang_up()
    if rows != sorted(want):
        lost = sorted(set(want) - set(rows))[:9]
        sys.exit(f"FAIL: {len(rows)} rows instead of {len(want)}: "
                 f"acknowledged and lost: {lost}")


def move_leader(cluster, client, i):
    """Make server i the leader."""
    def step(conn):
        if client.leader != i:
            conn.make_leader(cluster.ids[i - 1])
            raise dqlite.Failure(f"server {i} does not lead yet")
    client.until_done(step)


def without_leader(cluster, done, leader=None):
    """The last row outlives a power cut behind its acknowledgement.

    The pools are all that remains, and the leader stays away.
    """
    client = Client(cluster, 0)
    if leader:
        move_leader(cluster, client, leader)
    for n in range(100):  # a leader opens rings on their first use
        client.insert(done + n)
        time.sleep(0.002)
    client.hang_up()
    leader = client.leader
    cluster.end_all()
    for i in SERVERS:
        shutil.copyfile(f"pool{i}.safe", f"pool{i}")
        shutil.rmtree(f"folder{i}")
    cluster.start_daemons()
    cluster.start_servers(*(i for i in SERVERS if i != leader))
    require_rows(cluster, range(done + 100))
    cluster.start_servers(leader)
    return done + 100


def await_text(name, text):
    """Wait until a file that another process writes has the text."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        with open(name, "rb") as f:
            if text.encode() in f.read():
                return True
        time.sleep(0.1)
    return False


def require_pools(done):
    """The last row is in the pools, and no other file has the state."""
    for i in SERVERS:
        if not await_text(f"pool{i}", f"row-{done - 1}-of-test"):
            sys.exit(f"FAIL: pool{i} has no row {done - 1}")
        if os.listdir(f"folder{i}") != ["metadata1"]:
            sys.exit(f"FAIL: folder{i} has {os.listdir(f'folder{i}')}")


def main():
    program, preload, rpmemd, shadow, kills, port, *fault = sys.argv[1:]
    seed = os.environ.get("RP_SEED") or str(random.randrange(1 << 32))
    print(f"RP_SEED={seed}", flush=True)
    cluster = Cluster(program, preload, rpmemd, shadow, int(port), seed)
    try:
        cluster.start_daemons(create=True)
        cluster.end_all()
        for i in SERVERS:
            shutil.copyfile(f"pool{i}", f"pool{i}.safe")
        cluster.start_daemons()
        join(cluster)
        clients = [Client(cluster, first) for first in (0, 1)]
        for c in clients:
            c.start()
        counts = lives(cluster, clients, int(kills), random.Random(seed))
        # All rows up to one number.
        for c in clients:
            c.stopped = True
        for c in clients:
            c.join(WAIT)
        done = max(c.acked for c in clients)
        for c in clients:
            while c.acked < done:
                c.insert(2 * c.acked + c.first)
            c.hang_up()
        done *= 2
        require_rows(cluster, range(done))
        if fault:
            cluster.fault = fault[0]
            cluster.power_cut()
        done = without_leader(cluster, done)
        require_pools(done)
        cluster.at = dict.fromkeys(SERVERS, cluster.where(1))
        cluster.power_cut()
        done = without_leader(cluster, done, 1)
        lead = Client(cluster, 0)
        move_leader(cluster, lead, 1)
        lead.insert(done)
        if not await_text("server1.out", "is not the pool of server"):
            sys.exit("FAIL: no server says that a pool is named wrongly")
    finally:
        cluster.end_all()
    print(f"{done} rows, kills: {counts}")


main()
