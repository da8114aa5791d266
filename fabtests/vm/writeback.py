#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Copies the bytes that a guest's kernel writes back to its NVDIMMs.

usage: writeback.py GDB-SOCKET MEMORY,... MEDIUM BASE SYMBOLS

The guest waits in qemu's gdb server before its first instruction. Then it stops
whenever the kernel is about to write lines back, or to make non-temporal stores.
At each stop this script copies the lines of MEMORY, or the source of the stores,
to MEDIUM, and continues the guest. MEMORY: the files of the NVDIMMs, in the order
of their addresses. BASE: the physical address of the first one. SYMBOLS:
"name=address,...". Ends with the guest, and prints the number of stops.
"""
import mmap
import socket
import sys

PAGE = 4096
RDX, RSI, RDI, RIP = 3, 4, 5, 16
# First instructions without an effect: the guest can continue after them.
NOTHING = {bytes.fromhex("f30f1efa"): 4, bytes.fromhex("0f1f440000"): 5}


class Gone(Exception):
    """The guest has ended."""


class GdbServer:
    """A client of gdb's remote protocol, with the necessary commands."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.heard = b""

    def more(self):
        try:
            got = self.sock.recv(65536)
        except ConnectionError:
            got = b""
        if not got:
            raise Gone
        self.heard += got

    def answer(self):
        while True:
            begin = self.heard.find(b"$")
            end = self.heard.find(b"#", begin + 1)
            if begin >= 0 and 0 <= end <= len(self.heard) - 3:
                break
            self.more()
        text = self.heard[begin + 1:end]
        self.heard = self.heard[end + 3:]
        return text.decode("latin-1")

    def send(self, text):
        data = text.encode()
        try:
            # A packet also acknowledges all packets received before it.
            self.sock.sendall(b"+$%s#%02x" % (data, sum(data) & 255))
        except ConnectionError:
            raise Gone from None

    def ask(self, text):
        self.send(text)
        return self.answer()

    def must(self, text):
        got = self.ask(text)
        if got != "OK":
            sys.exit(f"the gdb server answers {got!r} to {text!r}")

    def memory(self, addr, size):
        """Read guest memory; None: nothing is mapped there."""
        got = self.ask(f"m{addr:x},{size:x}")
        return None if got.startswith("E") else bytes.fromhex(got)

    def register(self, number):
        return int.from_bytes(bytes.fromhex(self.ask(f"p{number:x}")), "little")

    def go_to(self, addr):
        self.must(f"P{RIP:x}={addr.to_bytes(8, 'little').hex()}")


def mapped(path):
    with open(path, "r+b") as f:
        return mmap.mmap(f.fileno(), 0)


class Memory:
    """Several files as one sequence of bytes."""

    def __init__(self, paths):
        self.files = [mapped(p) for p in paths]

    def bytes(self, at, end):
        got = b""
        for f in self.files:
            got += f[max(at, 0):max(end, 0)]
            at, end = at - len(f), end - len(f)
        return got


class Follower:
    def __init__(self, server, memory, medium, base, symbols):
        self.server, self.base = server, base
        self.memory, self.medium = memory, medium
        self.at = {symbols[name]: name for name in self.handlers}
        self.direct = symbols["page_offset_base"]
        self.stops = dict.fromkeys(self.handlers, 0)
        self.skip = {}

    def place(self, addr):
        """The files' offset of a kernel address; None: not in the files."""
        direct = int.from_bytes(self.server.memory(self.direct, 8), "little")
        at = addr - direct - self.base
        return at if 0 <= at < len(self.medium) else None

    def write_back(self):
        """Handle a write-back (address, length): copy the lines to the medium."""
        at = self.place(self.server.register(RDI))
        if at is None:
            return False
        end = at + self.server.register(RSI)
        at -= at % 64
        end += -end % 64
        self.medium[at:end] = self.memory.bytes(at, end)
        return True

    def past_caches(self):
        """Handle a non-temporal copy (destination, source, length)."""
        at = self.place(self.server.register(RDI))
        if at is None:
            return False
        source, left = self.server.register(RSI), self.server.register(RDX)
        while left:
            n = min(left, 2048, PAGE - source % PAGE)
            got = self.server.memory(source, n)
            # If a user page is not mapped, the kernel fetches it, and nothing
            # is stored before that.
            if got is not None:
                self.medium[at:at + n] = got
            at, source, left = at + n, source + n, left - n
        return True

    handlers = {
        "arch_wb_cache_pmem": write_back,
        "__memcpy_flushcache": past_caches,
    }

    def behind(self, addr):
        """The address after the function's first instruction, a no-op."""
        if addr not in self.skip:
            first = self.server.memory(addr, 5)
            for code, size in NOTHING.items():
                if first.startswith(code):
                    self.skip[addr] = addr + size
                    break
            else:
                sys.exit(f"{self.at[addr]} begins with {first.hex()}")
        return self.skip[addr]

    def follow(self):
        server = self.server
        # A client that reads single registers must read their description
        # first.
        server.ask("qSupported:xmlRegisters=i386")
        server.ask("qXfer:features:read:target.xml:0,ffb")
        for addr in self.at:
            server.must(f"Z1,{addr:x},1")
        while True:
            stopped = server.ask("c")
            if stopped[0] in "WX":
                raise Gone
            addr = server.register(RIP)
            name = self.at.get(addr)
            if not name:
                sys.exit(f"stopped at {addr:x}: {stopped}")
            self.stops[name] += self.handlers[name](self)
            server.go_to(self.behind(addr))


def main():
    path, memory, medium, base, symbols = sys.argv[1:]
    table = dict(s.split("=") for s in symbols.split(","))
    follower = Follower(GdbServer(path), Memory(memory.split(",")),
                        mapped(medium),
                        int(base, 16),
                        {k: int(v, 16) for k, v in table.items()})
    try:
        follower.follow()
    except Gone:
        pass
    print(", ".join(f"{n} {k}" for k, n in follower.stops.items()))


main()
