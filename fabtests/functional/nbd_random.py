#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Random requests on a disk of nbdkit's rpmem plugin, with cuts and restarts.

usage: nbd_random.py BUILD PLUGIN SEED STEPS

Three connections have several requests in flight: writes, zeros, FUA, FLUSH and
reads, of cells of 512 bytes that hold the number of their write. The target's
power is cut: each page of its pool is then the durable one (vol.safe of the
shadow library) or the newer one. nbdkit is stopped, or killed.

The model knows for each cell the newest write that a completed FLUSH or FUA
covers: the durable image must have it, or a later one, in each word. A read must
return the newest completed write, and so must the image behind an orderly stop.
A cell has one request in flight at most.
"""
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

import nbd

HEADER = 65536  # of a pool file
CELL = 512
CELLS = 192
BASE = (1 << 20) - 40 * CELL  # the cells cross a MiB
PAGE = 4096
CONNECTIONS = 3
IN_FLIGHT = 4  # of each connection


class Wrong(Exception):
    """The disk breaks its promise."""


class Cell:
    """Writes that the durable image may have, oldest first: (number, value)."""

    def __init__(self):
        self.may = [(0, 0)]
        self.completed = 0  # number of the newest completed write
        self.busy = False

    def cover(self, number):
        """A FLUSH or FUA has covered this write."""
        while self.may[0][0] < number:
            self.may.pop(0)

    def values(self):
        return {value for _, value in self.may}


class Request:
    def __init__(self, verb, cells, number, fua):
        self.verb, self.cells, self.number, self.fua = verb, cells, number, fua
        self.buffer = self.cookie = None
        self.covers = None  # of a FLUSH: for each cell, the completed write


class Disk:
    """The target and nbdkit."""

    def __init__(self, build, plugin, rng):
        self.build, self.plugin, self.rng = build, plugin, rng
        self.port = "0"
        self.daemon = self.nbdkit = None
        self.log = open("random.log", "w", encoding="utf-8")
        self.env = dict(os.environ, RPMEM_SHADOW="vol:vol.safe",
                        LD_PRELOAD=os.path.join(
                            build, "fabtests/fault/.libs/libshadow.so"))

    def wait(self, process, ready):
        """The limit only ends a run that hangs."""
        for _ in range(3000):
            if ready():
                return
            if process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"{process.args[0]} does not serve")

    def serve(self):
        if os.path.exists("ready"):
            os.unlink("ready")
        self.daemon = subprocess.Popen(
            [os.path.join(self.build, "util/fi_rpmemd"), "--port", self.port,
             "--port-file", "ready", "vol"], env=self.env, stdout=self.log,
            stderr=self.log)
        self.wait(self.daemon, lambda: os.path.exists("ready"))
        with open("ready", encoding="ascii") as f:
            self.port = f.read().strip()

    def attach(self):
        if os.path.exists("disk"):
            os.unlink("disk")
        self.nbdkit = subprocess.Popen(
            ["nbdkit", "-f", "-U", os.path.abspath("disk"), self.plugin,
             f"target=127.0.0.1:{self.port}", "pool=vol"], stdout=self.log,
            stderr=self.log)

        def serves():
            try:
                self.connect()
                return True
            except nbd.Error:
                return False

        self.wait(self.nbdkit, serves)

    def connect(self):
        h = nbd.NBD()
        h.connect_unix(os.path.abspath("disk"))
        return h

    def detach(self, how):
        self.nbdkit.send_signal(how)
        self.nbdkit.wait()

    def cut(self):
        """Cut the target's power; returns once it serves again."""
        self.daemon.kill()
        self.daemon.wait()
        kept = self.rng.choice((0, self.rng.random()))
        shutil.copy("vol.safe", "next")
        with open("vol", "rb") as src, open("next", "r+b") as dst:
            at = (HEADER + BASE) // PAGE * PAGE
            while at < HEADER + BASE + CELLS * CELL:
                if self.rng.random() < kept:
                    src.seek(at)
                    dst.seek(at)
                    dst.write(src.read(PAGE))
                at += PAGE
        shutil.copy("next", "vol.safe")
        os.rename("next", "vol")

    def end(self):
        for p in self.daemon, self.nbdkit:
            if p and p.poll() is None:
                p.kill()
                p.wait()


class Run:
    def __init__(self, disk, rng):
        self.disk, self.rng = disk, rng
        self.cells = [Cell() for _ in range(CELLS)]
        self.number = 0
        self.handles = []
        self.flying = [[] for _ in range(CONNECTIONS)]
        self.step = 0

    def connect(self):
        self.handles = [self.disk.connect() for _ in range(CONNECTIONS)]

    def compare(self, content, first, allowed, what):
        """Each word of the cells must be one of those allowed in its cell."""
        words = struct.unpack(f"<{len(content) // 8}Q", content)
        for i in range(len(content) // CELL):
            found = set(words[i * CELL // 8:(i + 1) * CELL // 8])
            may = allowed(self.cells[first + i])
            if not found <= may:
                raise Wrong(f"{what}: cell {first + i} has {sorted(found)}, "
                            f"not only {sorted(may)}")

    def image(self, cells, what, allowed=Cell.values):
        """Compare the durable image of these cells with the model."""
        with open("vol.safe", "rb") as f:
            for c in cells:
                f.seek(HEADER + BASE + c * CELL)
                self.compare(f.read(CELL), c, allowed, what)

    @staticmethod
    def newest(cell):
        return {cell.may[-1][1]}

    def start(self, verb, fua):
        c = self.rng.choice([i for i in range(CONNECTIONS)
                             if len(self.flying[i]) < IN_FLIGHT])
        h = self.handles[c]
        if verb == "flush":
            r = Request(verb, range(0), 0, False)
            r.covers = [cell.completed for cell in self.cells]
            r.cookie = h.aio_flush()
            self.flying[c].append(r)
            return
        n = self.rng.randint(1, 16)
        first = self.rng.randrange(CELLS - n + 1)
        cells = range(first, first + n)
        if any(self.cells[i].busy for i in cells):
            return
        self.number += 1
        r = Request(verb, cells, self.number, fua)
        flags = nbd.CMD_FLAG_FUA if fua else 0
        at, size = BASE + first * CELL, n * CELL
        for i in cells:
            self.cells[i].busy = True
            if verb != "read":
                self.cells[i].may.append(
                    (r.number, r.number if verb == "write" else 0))
        if verb == "write":
            r.buffer = nbd.Buffer.from_bytearray(
                bytearray(struct.pack("<Q", r.number) * (size // 8)))
            r.cookie = h.aio_pwrite(r.buffer, at, flags=flags)
        elif verb == "zero":
            r.cookie = h.aio_zero(size, at, flags=flags)
        else:
            r.buffer = nbd.Buffer(size)
            r.cookie = h.aio_pread(r.buffer, at)
        self.flying[c].append(r)

    def complete(self, r):
        for i in r.cells:
            self.cells[i].busy = False
        if r.verb == "flush":
            for cell, number in zip(self.cells, r.covers):
                cell.cover(number)
            self.image(range(CELLS), "FLUSH has completed")
        elif r.verb == "read":
            self.compare(bytes(r.buffer.to_bytearray()), r.cells[0],
                         self.newest, "read")
        else:
            for i in r.cells:
                self.cells[i].completed = r.number
                if r.fua:
                    self.cells[i].cover(r.number)
            if r.fua:
                self.image(r.cells, f"{r.verb} with FUA has completed")

    def progress(self, wait):
        active = [c for c in range(CONNECTIONS) if self.flying[c]]
        if not active:
            return
        if wait:
            select.select([self.handles[c].aio_get_fd() for c in active], [],
                          [], 0.05)
        for c in active:
            h = self.handles[c]
            while h.poll(0) > 0:
                pass
            for r in list(self.flying[c]):
                if h.aio_command_completed(r.cookie):
                    self.flying[c].remove(r)
                    self.complete(r)

    def drain(self):
        while any(self.flying):
            self.progress(True)

    def cut(self):
        self.disk.cut()
        self.image(range(CELLS), "power cut")
        self.disk.serve()

    def stop(self):
        """Stop nbdkit: all completed writes must be durable."""
        self.drain()
        self.handles = []
        self.disk.detach(signal.SIGTERM)
        for cell in self.cells:
            cell.cover(cell.completed)
        self.image(range(CELLS), "nbdkit was stopped")
        self.disk.attach()
        self.connect()

    def kill(self):
        """Kill nbdkit: what the next one reads is durable, and not too old."""
        self.disk.detach(signal.SIGKILL)
        self.flying = [[] for _ in range(CONNECTIONS)]
        self.image(range(CELLS), "nbdkit was killed")
        self.disk.attach()
        self.connect()
        content = bytes(self.handles[0].pread(CELLS * CELL, BASE))
        self.compare(content, 0, Cell.values, "the next nbdkit")
        with open("vol.safe", "rb") as f:
            f.seek(HEADER + BASE)
            if f.read(CELLS * CELL) != content:
                raise Wrong("the next nbdkit reads what is not durable")
        for i, cell in enumerate(self.cells):
            words = content[i * CELL:(i + 1) * CELL]
            value = struct.unpack("<Q", words[:8])[0]
            if words != words[:8] * (CELL // 8):
                # A write in flight has come in part.
                self.number += 1
                value = self.number
                self.handles[0].pwrite(
                    bytearray(struct.pack("<Q", value) * (CELL // 8)),
                    BASE + i * CELL, flags=nbd.CMD_FLAG_FUA)
            self.number += 1
            cell.may = [(self.number, value)]
            cell.completed = self.number
            cell.busy = False

    def run(self, steps):
        events = [self.cut] * 5 + [self.stop, self.kill]
        at = {}
        for _ in range(max(1, steps // 400)):
            for event in events:
                at.setdefault(self.rng.randrange(steps), []).append(event)
        for self.step in range(steps):
            for event in at.get(self.step, []):
                event()
            verb = self.rng.choices(("write", "zero", "read", "flush"),
                                    (60, 12, 20, 8))[0]
            while all(len(f) >= IN_FLIGHT for f in self.flying):
                self.progress(True)
            self.start(verb, verb in ("write", "zero") and
                       self.rng.random() < 0.15)
            self.progress(False)
        self.drain()
        self.start("flush", False)
        self.drain()
        self.image(range(CELLS), "the last FLUSH", self.newest)


def main():
    build, plugin, seed, steps = (
        os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]),
        int(sys.argv[3]), int(sys.argv[4]))
    rng = random.Random(seed)
    disk = Disk(build, plugin, rng)
    run = Run(disk, rng)
    try:
        disk.serve()
        disk.attach()
        run.connect()
        # The image is of random bytes so far.
        run.handles[0].zero(CELLS * CELL, BASE, flags=nbd.CMD_FLAG_FUA)
        run.run(steps)
        print(f"ok - seed {seed}: {run.number} requests")
        return 0
    except (Wrong, nbd.Error) as e:
        print(f"not ok - seed {seed}, step {run.step}: {e}", flush=True)
        disk.log.flush()
        with open("random.log", encoding="utf-8", errors="replace") as f:
            sys.stdout.writelines("# " + x for x in f.readlines()[-10:])
        return 1
    finally:
        disk.end()


if __name__ == "__main__":
    sys.exit(main())
