#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Three servers of raft_kv over many lives.

usage: raft_lives.py PROGRAM FI_RPMEMD SHADOW KILLS PORT

Clients write and read while SIGKILL ends the leader, a follower, or all with
their daemons, whose pools then keep what msync had covered, and a random part
of the other pages. The daemon of the leader is stopped, too: another server
leads until it goes on. At the end each acknowledged write is there, and the reads of all clients are
linearizable. Then the daemons of two servers are stopped: no acknowledged
write may be lost when all servers end, and the leader stays away. RP_SEED
repeats the choices.
"""
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import linearizability

SERVERS = (1, 2, 3)
PAGE = 4096
WAIT = 60  # seconds after which a step counts as hung
REPLY = 3  # seconds after which a client asks another server


class Cluster:
    def __init__(self, program, rpmemd, shadow, port, seed):
        self.program, self.rpmemd, self.shadow = program, rpmemd, shadow
        self.port = port
        self.size = "4M"
        self.random = random.Random(f"{seed} cuts")
        self.uncovered = 0  # pages that no msync covered, over all cuts
        self.epoch = 0  # part of the key names: new keys have short histories
        self.procs = {}
        self.addresses = [f"127.0.0.1:{port + i}" for i in SERVERS]

    def spawn(self, name, argv, **env):
        with open(f"{name}.out", "ab") as out:
            self.procs[name] = subprocess.Popen(
                argv, stdout=out, stderr=out, env={**os.environ, **env})

    def await_file(self, name, test):
        end = time.monotonic() + WAIT
        while not test():
            if self.procs[name].poll() is not None or time.monotonic() > end:
                sys.exit(f"FAIL: {name} is not ready: "
                         + open(f"{name}.out", errors="replace").read()[-500:])
            time.sleep(0.02)

    def start_daemons(self, create=False):
        for i in SERVERS:
            pool, ready = f"pool{i}", f"port{i}"
            port = "0" if create else open(ready).read().strip()
            if not create:
                os.remove(ready)
            env = {} if create else {
                "RPMEM_SHADOW": f"{pool}:{pool}.safe",
                "LD_PRELOAD": os.environ.get("RP_PRELOAD", "") + self.shadow}
            self.spawn(f"daemon{i}", [self.rpmemd, "--port", port,
                                      "--port-file", ready]
                       + ["--create", self.size] * create + [pool], **env)
        for i in SERVERS:
            self.await_file(f"daemon{i}",
                            lambda i=i: os.path.exists(f"port{i}"))

    def start_servers(self, *which):
        for i in which:
            name = f"server{i}"
            open(f"{name}.out", "w").close()
            where = f"127.0.0.1:{open(f'port{i}').read().strip()}:pool{i}"
            self.spawn(name, [self.program, str(i), where,
                              str(self.port + 10 + i)] + self.addresses,
                       RAFT_KV_ELECTION="300", RAFT_KV_SNAPSHOT="100")
        for i in which:
            self.await_file(f"server{i}", lambda i=i: "ready" in open(
                f"server{i}.out").read())

    def end(self, name):
        proc = self.procs.pop(name)
        proc.kill()
        proc.wait()

    def end_follower(self):
        """End a server, to which the leader writes before it reads the end."""
        clients = [Client(self, n, "unseen") for n in range(4)]
        for c in clients:
            c.ask("get unseen")
        leader = clients[-1].leader
        victim = 1 + leader % 3
        proc = self.procs[f"server{leader}"]
        proc.send_signal(signal.SIGSTOP)
        for c in clients:
            if c.sock:
                c.sock.sendall(b"put unseen 1\n")
        self.end(f"server{victim}")
        proc.send_signal(signal.SIGCONT)
        for c in clients:
            c.hang_up()
        return victim

    def stop_disk(self, clients):
        """Stop the daemon of the leader: other servers go on without it."""
        asking = Client(self, 0, "disk")
        asking.ask("get disk")
        asking.hang_up()
        daemon = self.procs[f"daemon{asking.leader}"]
        daemon.send_signal(signal.SIGSTOP)
        await_acks(self, clients, 50)
        daemon.send_signal(signal.SIGCONT)

    def end_all(self):
        for name in list(self.procs):
            self.end(name)

    def cut_pool(self, name):
        """Keep what msync covered, and a random part of the other pages."""
        kept = self.random.choice((0, self.random.random()))
        with open(name, "rb") as new, open(f"{name}.safe", "r+b") as safe:
            at = 0
            while True:
                page, old = new.read(PAGE), safe.read(PAGE)
                if not page:
                    break
                if page != old:
                    self.uncovered += 1
                    if self.random.random() < kept:
                        safe.seek(at)
                        safe.write(page)
                        safe.seek(at + len(page))
                at += len(page)
        shutil.copyfile(f"{name}.safe", name)

    def power_cut(self, gone=None):
        """End all servers, and cut their pools. One server stays away."""
        self.end_all()
        for i in SERVERS:
            self.cut_pool(f"pool{i}")
        self.start_daemons()
        self.start_servers(*(i for i in SERVERS if i != gone))


class Client(threading.Thread):
    def __init__(self, cluster, number, seed):
        super().__init__(daemon=True)
        self.cluster, self.number = cluster, number
        self.random = random.Random(f"{seed} {number}")
        self.ops, self.kept = [], {}
        self.sock = self.file = None
        self.leader = 1 + number % 3
        self.stopped = False
        self.acked = 0

    def line(self, text, seconds=WAIT):
        """The reply, or "" if the connection ended: the outcome is unknown."""
        try:
            if not self.sock:
                self.sock = socket.create_connection(
                    ("127.0.0.1", self.cluster.port + 10 + self.leader), 2)
                self.file = self.sock.makefile("r")
        except OSError:
            self.leader = 1 + self.leader % 3
            time.sleep(0.02)
            return "leader 0"
        try:
            self.sock.settimeout(seconds)
            self.sock.sendall(text.encode() + b"\n")
            reply = self.file.readline().strip()
        except OSError:
            reply = ""
        if not reply:
            self.hang_up()
        return reply

    def hang_up(self):
        if self.sock:
            self.file.close()
            self.sock.close()
        self.sock = None

    def ask(self, text, seconds=WAIT):
        """The start time and the reply of the last attempt."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            call = time.monotonic()
            reply = self.line(text, seconds)
            if not reply.startswith("leader"):
                return call, reply
            self.hang_up()
            other = int(reply.split()[1])
            self.leader = other or 1 + self.leader % 3
            time.sleep(0.02)
        sys.stderr.write("FAIL: there is no leader\n")
        os._exit(1)

    def step(self, key, value=None):
        text = f"put {key} {value}" if value else f"get {key}"
        call, reply = self.ask(text, REPLY)
        known = reply.startswith(("ok", "none"))
        if not reply:
            self.leader = 1 + self.leader % 3
        ret = time.monotonic() if known else math.inf
        if not value and reply.startswith("ok"):
            read = reply.split()[1]
        else:
            read = value
        self.ops.append(linearizability.Op(call, ret, key, bool(value), read))
        self.acked += known
        return known

    def run(self):
        n = 0
        while not self.stopped:
            n += 1
            key = f"shared{self.cluster.epoch}-{self.random.randrange(4)}"
            what = self.random.randrange(4)
            if what == 0:
                self.step(key)
            elif what == 1:
                name = f"own{self.number}-{n % 200}"
                self.kept.pop(name, None)
                if self.step(name, f"v{n}"):
                    self.kept[name] = f"v{n}"
            else:
                self.step(key, f"{self.number}-{n}")


def await_acks(cluster, clients, some):
    want = sum(c.acked for c in clients) + some
    end = time.monotonic() + WAIT
    while sum(c.acked for c in clients) < want:
        for name, proc in cluster.procs.items():
            if proc.poll() is not None:
                sys.exit(f"FAIL: {name} ended with {proc.returncode}")
        if time.monotonic() > end:
            sys.exit("FAIL: the servers commit nothing")
        time.sleep(0.01)


def lives(cluster, clients, kills, choice):
    """Send SIGKILL after a seeded number of acknowledged operations."""
    kinds = ("leader", "follower", "disk", "all")
    counts = dict.fromkeys(kinds, 0)
    for n in range(kills):
        cluster.epoch = n
        await_acks(cluster, clients, 20 + choice.randrange(100))
        what = kinds[n % 4]
        counts[what] += 1
        victim = None
        if what == "all":
            cluster.power_cut()
        elif what == "disk":
            cluster.stop_disk(clients)
        elif what == "follower":
            victim = cluster.end_follower()
        else:
            victim = clients[0].leader
            cluster.end(f"server{victim}")
        await_acks(cluster, clients, 20 + choice.randrange(100))
        if victim:
            cluster.start_servers(victim)
    await_acks(cluster, clients, 50)
    return counts


def require_key(client, key):
    _, now = client.ask(f"get {key}")
    if now != "ok 1":
        sys.exit(f"FAIL: {key} was acknowledged and is lost: {now}")


def without_leader(cluster, client):
    """Writes that a leader acknowledged survive when it stays away.

    First all servers end after an acknowledgement, then while no write can
    become durable at the followers.
    """
    for key in ("last", "still"):
        # Warm up first, because a leader opens a ring on its first use.
        for n in range(100):
            client.ask(f"put warm {n}")
            time.sleep(0.005)
        leader, reply = client.leader, "ok"
        if key == "still":
            for i in SERVERS:
                if i != leader:
                    cluster.procs[f"daemon{i}"].send_signal(signal.SIGSTOP)
            _, reply = client.ask(f"put {key} 1", 1)
        else:
            client.ask(f"put {key} 1")
        client.hang_up()
        cluster.power_cut(gone=leader)
        if reply.startswith("ok"):
            require_key(client, key)
        if key == "last":
            cluster.start_servers(leader)


def main():
    program, rpmemd, shadow, kills, port = sys.argv[1:]
    seed = os.environ.get("RP_SEED") or str(random.randrange(1 << 32))
    if linearizability.self_test():
        sys.exit("FAIL: the checker of histories is wrong")
    print(f"RP_SEED={seed}", flush=True)
    cluster = Cluster(program, rpmemd, shadow, int(port), seed)
    try:
        cluster.start_daemons(create=True)
        cluster.end_all()
        for i in SERVERS:
            shutil.copyfile(f"pool{i}", f"pool{i}.safe")
        cluster.start_daemons()
        cluster.start_servers(*SERVERS)
        clients = [Client(cluster, n, seed) for n in range(3)]
        for c in clients:
            c.start()
        counts = lives(cluster, clients, int(kills), random.Random(seed))
        for c in clients:
            c.stopped = True
        for c in clients:
            c.join(WAIT)
        reader = Client(cluster, 9, seed)
        ops = [op for c in clients for op in c.ops]
        lost = [k for c in clients for k, v in c.kept.items()
                if reader.ask(f"get {k}")[1] != f"ok {v}"]
        for key in sorted({op.key for op in ops}):
            reader.step(key)
        wrong = linearizability.wrong_keys(ops + reader.ops)
        without_leader(cluster, reader)
    finally:
        for proc in cluster.procs.values():
            proc.send_signal(signal.SIGCONT)
        cluster.end_all()
    print(f"{len(ops)} operations, kills: {counts}, {cluster.uncovered} pages "
          f"not covered (RP_SEED={seed})")
    if lost:
        sys.exit(f"FAIL: acknowledged and lost: {lost} (RP_SEED={seed})")
    if wrong:
        sys.exit(f"FAIL: not linearizable: {wrong} (RP_SEED={seed})")


if __name__ == "__main__":
    main()
