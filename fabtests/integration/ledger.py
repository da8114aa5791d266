# SPDX-License-Identifier: BSD-2-Clause
"""Records that a volume of databases.py must still have after cuts."""
import contextlib
import mmap
import os
import signal
import threading

PAGE = 4096
MARK = 512  # bytes of a page by which the test finds the page in the pool


# Options of psql: a damaged index is an error; a damaged tuple has a line that
# begins with heap. Tables of TOAST have kind t.
AMCHECK = (
    "-c", "select bt_index_check(c.oid, true) from pg_class c "
    "join pg_am a on a.oid = c.relam where c.relkind = 'i' "
    "and a.amname = 'btree' and c.relpersistence = 'p'",
    "-c", "select 'heap', c.oid::regclass, v.blkno, v.msg "
    "from pg_class c, lateral verify_heapam(c.oid) v "
    "where c.relkind in ('r', 't') and c.relpersistence = 'p'")


class Lost(Exception):
    """A promise of durability was broken."""


class Ledger:
    """Acknowledged numbers: for each client those from 1 to n."""

    def __init__(self):
        self.n = []
        self.grew = threading.Condition()

    def add(self, clients):
        """Add some clients; returns the number of the first one."""
        self.n += [0] * clients
        return len(self.n) - clients

    def note(self, client, number):
        with self.grew:
            self.n[client] = number
            self.grew.notify_all()

    def total(self):
        return sum(self.n)

    def wait_for(self, more, alive):
        """Wait until `more` numbers are acknowledged, while alive() is true."""
        goal = self.total() + more
        with self.grew:
            while self.total() < goal:
                if not self.grew.wait(60) or not alive():
                    raise RuntimeError("the clients make no progress")

    def compare(self, client, found):
        """Compare with found, the set of the numbers in the database."""
        missing = [i for i in range(1, self.n[client] + 1) if i not in found]
        if missing:
            raise Lost(f"client {client}: {len(missing)} of "
                       f"{self.n[client]} acknowledged are missing, "
                       f"first {missing[0]}")


class Witness:
    """A page of the volume that is placed, and not durable, at a target's cut.

    The page bypasses the caches of the client, which therefore never writes it
    again: only the plugin's replay brings it back.
    """

    def __init__(self, volume):
        self.volume = volume
        self.page = mmap.mmap(-1, PAGE)  # aligned, for O_DIRECT
        self.at = None  # offset of the page in the pool
        self.synced = None

    def open(self):
        return os.open(os.path.join(self.volume.mount, "witness"),
                       os.O_RDWR | os.O_CREAT | os.O_DIRECT)

    def write(self, fd):
        self.page[:] = self.volume.rng.randbytes(PAGE)
        os.pwritev(fd, [self.page], 0)

    def sync(self, fd):
        os.fsync(fd)
        self.synced = self.page[:]

    def create(self):
        fd = self.open()
        self.write(fd)
        self.sync(fd)
        os.close(fd)
        with open(self.volume.pool, "rb") as f, \
                mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as pool:
            self.at = pool.find(self.page[:MARK])
        if self.at < 0:
            raise RuntimeError("the pool does not have a synced page")

    def is_durable(self):
        with open(self.volume.safe, "rb") as f:
            f.seek(self.at)
            return f.read(MARK) == self.page[:MARK]

    @contextlib.contextmanager
    def placed(self, others=0):
        """Stop the target while the page is not durable; sync it at the end.

        As many other pages are not durable, either.
        """
        target = self.volume.daemon
        fd = self.open()
        try:
            for _ in range(1000):
                self.write(fd)
                target.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, target.pid, os.WSTOPPED)
                if not self.is_durable() and (
                        not others or len(self.volume.open_pages()) > others):
                    break
                # A commit of the database has covered the page: try again.
                target.send_signal(signal.SIGCONT)
            else:
                raise RuntimeError("each page becomes durable at once")
            yield
            self.sync(fd)
        finally:
            os.close(fd)

    def check(self, folder):
        with open(os.path.join(folder, "witness"), "rb") as f:
            if f.read() != self.synced:
                raise Lost("a page that was synced after the target's cut is "
                           "missing")
