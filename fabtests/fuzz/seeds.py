#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes the seed corpus: one valid example of each kind of input.

    fabtests/fuzz/seeds.py fabtests/fuzz/corpus

Run it again when a layout changes. Inputs found by fuzzers are not added.
"""
import os
import struct
import sys


def message(kind, body=b"", token=7, version=2):
    return struct.pack("<HBBIQ", 0x5052, version, kind, 16 + len(body),
                       token) + body


def request_message(effect, ranges, tail=b"", level=2, flags=0, n=None):
    if not flags:
        n, ranges = len(ranges), b"".join(struct.pack("<QQQ", KEY, *r)
                                          for r in ranges)
    return message(2, struct.pack("<HBBBBH", n, level, 2, effect, flags, 0)
                   + ranges + tail)


# A key: DAX by agent-clwb, class power, port 18515.
KEY = 0xB5_4853_0123456789
HELLO = message(1, struct.pack("<QQIHH", KEY, 5, 5000, 1, 0), 0)
GRANT = struct.pack("<QQQQBBB5x", 77, 4096, 0, 1 << 20, 2, 5, 1)
PACKED = struct.pack("<Q", KEY) + bytes([0x80, 64, 64, 16, 8, 5]) \
    + b"\x80\x80\2\1"
wire = {
    "hello": HELLO,
    "hello-padded": HELLO + bytes(16),
    "hello-v1": message(1, HELLO[16:], 0, 1),
    "request": request_message(0, [(64, 64)]),
    "request-2": request_message(0, [(0, 1)] * 2, level=1),
    "fence": request_message(0, [], level=1),
    "then": request_message(1, [(64, 64)], struct.pack("<QQQ", KEY, 8, 42)),
    "notify": request_message(2, [(0, 1)] * 2, struct.pack("<Q", 42)),
    "store": request_message(3, [(64, 5)], b"bytes"),
    "stores": request_message(3, [(64, 5), (128, 3)], b"bytes...", 1),
    "packed": request_message(0, PACKED, flags=1, n=5),
    "packed-then": request_message(1, PACKED, struct.pack("<QQQ", KEY, 8, 42),
                                   flags=1, n=5),
    # A sum of one int64, and a compare and swap of two uint32.
    "atomic": request_message(4, [(64, 8)], bytes([2, 6, 0, 0, 0, 0, 0, 0])
                              + bytes(8)),
    "cswap": request_message(4, [(64, 8)], bytes([12, 5, 1, 0, 0, 0, 0, 0])
                             + bytes(16)),
    "query": message(3, struct.pack("<QB7x", KEY, 2)),
    "hello-ack": message(65, struct.pack("<IIQHHI", 0, 0, 0x1CE, 64, 1, 0)
                         + GRANT, 0),
    "refused": message(65, struct.pack("<IIQHHI", 5, 0, 0, 0, 0, 0)
                       + bytes(40), 0),
    "reply": message(66, struct.pack("<IIHHBBBB", 0, 0, 0, 64, 2, 2, 6, 0)),
    "reply-atomic": message(66, struct.pack("<IIHHBBBB", 0, 0, 0, 64, 2, 2, 6,
                                            0) + b"oldvalue"),
    "failed": message(66, struct.pack("<IIHHBBBB", 11, 5, 0, 64, 0, 0, 0, 0)),
    "progress": message(67, token=0),
    "info": message(68, struct.pack("<IBBBBBBHIII", 0, 2, 6, 4, 1, 1, 0, 4,
                                    4096, 4096, 4096) + GRANT + b"ext4"),
    "info-failed": message(68, struct.pack("<IBBBBBBHIII", 5, 0, 0, 0, 0, 0, 0,
                                           0, 0, 0, 0) + bytes(40)),
}


# fuzz_agent.c: one_step(), some_request(), some_range().
def hello(who, key):
    return bytes([0, who, key])


def query(who, key):
    return bytes([4, who, key, 2, 9])


def request(who, how, what, *ranges, then=b""):
    """how: bit 0 is level - 1, bit 1 and up `required`; what: the effect."""
    out = bytes([1, who, how | len(ranges) << 3, what])
    for region, addr, length in ranges:
        out += struct.pack("<BHH", region, addr, length - 1)
    return out + then + b"\7"


RUN = b"\x0f\0"
THEN = struct.pack("<BHH", 0x10, 64, 7)
agent = {
    "commit": hello(0, 0) + request(0, 5, 0, (0, 100, 200)) + RUN,
    "msync": hello(0, 2) + query(0, 0)
    + request(0, 5, 0, (2, 5, 4000), (0, 64, 64)) + RUN,
    "two": hello(0, 0) + hello(1, 2) + request(0, 5, 0, (0, 0, 64))
    + request(1, 5, 0, (2, 0, 64)) + RUN + b"\x0c\0" + RUN,
    "replaced": hello(0, 2) + request(0, 5, 0, (2, 0, 64)) + hello(0, 2) + RUN,
    "failed": hello(0, 2) + b"\x1a\0" + request(0, 5, 0, (2, 0, 64)) + RUN
    + request(0, 5, 0, (2, 0, 64)) + RUN,
    "stuck": hello(0, 0) + b"\x17\0\0" + request(0, 5, 0, (0, 0, 64))
    + query(0, 2) + RUN + b"\7\0" + RUN + b"\x08\0" + RUN,
    "gone": hello(0, 2) + request(0, 5, 0, (2, 0, 64)) + b"\x0b\0\2" + RUN
    + b"\x0b\0\2" + hello(0, 2) + request(0, 5, 0, (2, 0, 64)) + RUN,
    "wrong-keys": b"".join(hello(i % 6, 0xC0) for i in range(40))
    + b"\6\0\x20" + RUN + b"\6\0\xff" + RUN,
    "wrong-query": hello(0, 0) + query(0, 0xC0) + RUN + b"\6\0\x20" + RUN
    + b"\6\0\xff" + RUN,
    "many": b"".join(hello(i, i) for i in range(6)) + RUN,
    "greedy": hello(0, 2) + request(0, 5, 0, (2, 0, 64)) * 5 + RUN,
    "then": hello(0, 2) + query(0, 0)
    + request(0, 5, 1, (2, 0, 64), then=THEN)
    + request(0, 0, 3, (0x10, 64, 8)) + RUN,
    "notify": hello(0, 0) + request(0, 5, 2, (0, 0, 64)) + RUN,
    "store": hello(0, 2) + request(0, 5, 3, (2, 5, 99)) + RUN,
    "atomic": hello(0, 0) + request(0, 0x65, 0x8E, (0x10, 64, 8)) + RUN,
    "raw": hello(0, 0) + b"\5\0" + struct.pack("<H", len(wire["query"]))
    + wire["query"],
}

# fuzz_initiator.c: LLVMFuzzerTestOneInput(), one_step().
def config(method, fences=True, flush=False, more=0xF0):
    """Class power. Bits of more: 1 no inline stores, 2 idle close, 8 native."""
    return bytes([method - 1 | 0x10 | fences << 5 | flush << 6, more])


def write(length, how=0x0A, addr=0):
    return struct.pack("<BBHBB", 6, 0, length - 1, how, addr)


def commit(n=1, effect=0, how=0x0A):
    return bytes([8, n | effect << 3, how]) + bytes(n)


def tell(token, how=0):
    return bytes([how, token])


ACK, DONE, PROGRESS, LOST = b"\0\0", b"\5\0", b"\x0f", b"\4\0"
FAILED = b"\x85\0"
UP = commit() + ACK
READ = struct.pack("<BBHBB", 7, 0, 99, 0, 0)
initiator = {
    "commit": config(5) + UP + commit() + PROGRESS + tell(0) + DONE + PROGRESS,
    "store": config(5) + UP + write(64) + PROGRESS + tell(0) + DONE + PROGRESS,
    "rdma": config(5, more=0xF1) + UP + write(64) + PROGRESS + DONE + DONE
    + tell(0) + PROGRESS,
    "fence": config(2) + UP + write(300, 8) + commit() + PROGRESS + DONE * 3
    + PROGRESS,
    "native": config(1, flush=True, more=0xF8) + UP + write(5000) + PROGRESS
    + DONE * 3 + PROGRESS,
    "then": config(5) + UP + commit(2, 1) + PROGRESS + tell(0) + DONE
    + PROGRESS,
    "notify": config(5) + UP + commit(1, 2) + PROGRESS + tell(0, 0x10)
    + b"\x0b" + PROGRESS,
    "slices": config(5) + UP + bytes([8, 0x80, 0x0A]) + bytes(range(200)) * 2
    + PROGRESS + tell(0) + tell(1) + tell(2) + DONE * 3 + PROGRESS,
    "read": config(5) + UP + write(64) + READ + PROGRESS + tell(0) + DONE * 3,
    "atomic": config(5) + UP + bytes([9, 0x0A, 0, 2, 6]) + PROGRESS
    + tell(0, 0x80) + b"\x08" + DONE + PROGRESS,
    "query": config(5) + UP + b"\x0a\0\0" + PROGRESS + tell(0, 1) + DONE,
    "second-key": config(5) + UP + commit(1, 0, 0x4A) + PROGRESS + tell(0, 1)
    + DONE + PROGRESS + commit(1, 0, 0x4A) + PROGRESS + tell(1) + DONE,
    "refused": config(5) + commit() + b"\0\x40\5\1" + PROGRESS + commit()
    + PROGRESS,
    "lost": config(5) + UP + write(64) * 3 + PROGRESS + LOST + PROGRESS
    + commit() + ACK + commit() + PROGRESS,
    "silent": config(5) + UP + commit() + b"\xfb" * 4 + PROGRESS + commit(),
    "removed": config(2) + UP + write(300, 8) + PROGRESS + b"\x8d" + commit()
    + ACK + commit() + PROGRESS,
    "rdma-failed": config(2) + UP + write(300) + PROGRESS + FAILED + PROGRESS
    + commit() + ACK + commit() + PROGRESS,
    "blocked": config(5) + UP + b"\x1c" + commit() + PROGRESS + b"\x0c"
    + PROGRESS + tell(0) + DONE,
    "raw": config(5) + UP + commit() + PROGRESS + b"\3\0"
    + struct.pack("<H", len(wire["reply"])) + wire["reply"] + PROGRESS,
}


def setup_msg(kind, body, version=3):
    return b"RPMS" + struct.pack("<HHII", version, kind, 16 + len(body), 0) + body


def text(s):
    return struct.pack("<H", len(s)) + s


MAC = bytes(32)
CHALLENGE = [setup_msg(1, struct.pack("<II", n, 0) + b"n" * 32) for n in (0, 1)]
EXPORT = setup_msg(66, struct.pack("<QQQQQ", KEY, 0, 4096, 5, 1) + b"u" * 16
                   + struct.pack("<HBBI", 1, 2, 6, 1) + text(b"one")
                   + text(b"tcp") + text(b"\2\0\0\1") + text(b"ext4")
                   + struct.pack("<QQ", 300, 1) + MAC)
LIST = setup_msg(67, struct.pack("<H", 2) + b"".join(
    struct.pack("<QBB", 4096, 2, 6) + text(n) for n in (b"one", b"two")) + MAC)
ERROR = setup_msg(127, struct.pack("<I", 4) + text(b"no such pool") + MAC)
GET = setup_msg(2, b"c" * 32 + text(b"one") + MAC)
NONE = setup_msg(2, b"c" * 32 + text(b"three") + MAC)
GET_LIST = setup_msg(3, b"c" * 32 + text(b"") + MAC)
LENGTH = setup_msg(4, b"c" * 32 + text(b"one") + struct.pack("<Q", 9) + MAC)
OPEN = setup_msg(5, b"c" * 32 + text(b"one") + struct.pack("<QIHH", 7, 1, 0, 0) + MAC)
PART = setup_msg(5, b"c" * 32 + text(b"two") + struct.pack("<QIHH", 7, 1, 2, 1) + MAC)
DIVIDE = setup_msg(6, b"c" * 32 + text(b"one") + struct.pack("<QI", 7, 2) + MAC)
OTHER = setup_msg(2, b"c" * 32 + text(b"one") + MAC, 2)
setup = {"decode-%d" % i: b"\0" + m for i, m in enumerate(
    (CHALLENGE[0], GET, GET_LIST, EXPORT, LIST, ERROR, LENGTH, OPEN,
     PART, DIVIDE))}
# Longer than the reader's buffer.
LONG_NAME = setup_msg(2, b"c" * 32 + text(b"x" * 300) + MAC)
LONG_ADDR = EXPORT.replace(text(b"\2\0\0\1"), text(b"a" * 200))
LONG_ADDR = setup_msg(66, LONG_ADDR[16:])
setup["long-name"] = b"\0" + LONG_NAME
setup["long-addr"] = b"\0" + LONG_ADDR
for i, m in enumerate((GET, GET_LIST, NONE, OTHER, LENGTH, OPEN, PART,
                       DIVIDE)):
    setup["open-%d" % i] = b"\1\0" + m
    setup["proved-%d" % i] = b"\7\5" + m
setup["unproved"] = b"\3\0" + GET
setup_client = {
    "export": b"\0" + CHALLENGE[0] + EXPORT,
    "list": b"\1" + CHALLENGE[0] + LIST,
    "export-proved": b"\6" + CHALLENGE[1] + EXPORT,
    "list-proved": b"\7" + CHALLENGE[1] + LIST,
    "unproved": b"\2" + CHALLENGE[1] + EXPORT,
    "error": b"\0" + CHALLENGE[0] + ERROR,
    "long-addr": b"\0" + CHALLENGE[0] + LONG_ADDR,
}


def header(size, generation, clean=1, version=1):
    return b"ofirpmem" + struct.pack("<II", version, clean) + b"u" * 16 \
        + struct.pack("<QQQ", size, 65536, generation) + bytes(8)


SIZE = 65536 + 8192
pool = {
    "good": struct.pack("<QB", KEY, 3) + header(SIZE, 0) + header(SIZE, 1),
    "torn": struct.pack("<QB", KEY, 1) + header(SIZE, 2) + header(SIZE, 1),
    "version": struct.pack("<QB", 0x8000000001, 3) + header(SIZE, 0, 1, 2) * 2,
    "long": struct.pack("<QB", 1, 3) + header(SIZE + 4096, 0) * 2,
    "short": struct.pack("<QB", 1, 3) + header(SIZE - 4096, 0) * 2,
}

desc = b"\1" + struct.pack("<2sBBIQQII6BH3H2xQ4x4x", b"RP", 2, 40, 64, 4096,
                            8192, 7, 8, 6, 2, 2, 1, 2, 0, 0, 31, 14, 19,
                            0xb53334c500000007)
wire_desc = {
    "good": desc,
    "version": desc[:3] + b"\3" + desc[4:],
    "unsealed": b"\0" + desc[1:],
    "side": b"\3" + struct.pack("<2sBBI4IQIIQ12x4x", b"RP", 2, 41, 64, 7, 8, 9,
                                10, 4096, 11, 12, 8192),
}
rendezvous = struct.Struct("<2sBBI4xIII16s16s64s4x4x")
wire_desc["lookup"] = b"\x0f" + rendezvous.pack(
    b"RP", 2, 42, 128, 0, 17, 7, b"a" * 16, b"b" * 16, wire_desc["side"][1:])
wire_desc["desc"] = b"\x0d" + rendezvous.pack(
    b"RP", 2, 46, 128, 7, 0, 0, bytes(16), bytes(16), desc[1:])
wire_desc["released"] = b"\5" + rendezvous.pack(
    b"RP", 2, 48, 128, 7, 0, 0, bytes(16), bytes(16), bytes(64))

# fuzz_ring.c: one_step(). Bit 7 selects the other end.
PUT, CARRY, TAKE, TELL = b"\0", b"\7", b"\x88", b"\x8b"
ring = {
    "one": b"\0" + PUT + CARRY + TAKE,
    "pieces": b"\0" + PUT + b"\x06\x20" + TAKE + b"\4\0\3" + TAKE + CARRY + TAKE,
    "full": b"\1" + PUT * 20 + CARRY + TAKE * 9 + TELL + b"\x87" + PUT * 4
    + CARRY + TAKE * 20,
    "refused": b"\0" + b"\3" + PUT + CARRY + TAKE,
    "both": b"\0" + (PUT + b"\x80" + CARRY + b"\x87" + TAKE + b"\x08") * 20,
    "poked": b"\0" + PUT + CARRY + b"\x8c\x05" + struct.pack("<H", 330)
    + b"abcde" + TAKE,
    "forged": b"\0" + b"\x8d" + struct.pack("<HB", 64, 130) + TAKE,
    "too-long": b"\0" + b"\x8d" + struct.pack("<HB", 329, 128) + TAKE,
    "raced": b"\0" + PUT + CARRY + b"\x8e" + struct.pack("<HB", 5, 1) + TAKE
    + b"\x8f" + TAKE,
}

# fuzz_tcp.c: the hostile side, the length of the first part, then frames.
RKEY = 0x1122334455667788


def frame(kind, length=0, data=b"", flags=0, rma=None):
    return struct.pack("<HBBIQ", 0x5052, 2, 31 + kind, flags, length) \
        + (struct.pack("<QQ", *rma) if rma else b"") + data


def hostile(who, frames, first=30):
    return who + struct.pack("<H", first) + b"".join(frames)


INITIATOR, TARGET = b"\0", b"\1\1"
MESSAGE = frame(4, 16, message(3))
tcp = {
    "messages": hostile(INITIATOR, [MESSAGE] * 40),
    "write": hostile(INITIATOR, [
        frame(5, 100, bytes(100), 1, (8, RKEY)), MESSAGE,
        frame(6, 8, rma=(8, RKEY)), frame(5, 1, b"x", 0, (4095, RKEY))]),
    "beyond": hostile(INITIATOR, [frame(5, 2, b"xx", 0, (4095, RKEY))]),
    "read-only": hostile(INITIATOR, [frame(5, 2, b"xx", 0, (0, RKEY + 1))]),
    "reads": hostile(INITIATOR, [frame(6, 4096, rma=(0, RKEY))] * 60),
    "answers": hostile(TARGET, [
        frame(7, 100, bytes(100)), frame(8, 1), frame(7, 8, bytes(8)),
        MESSAGE]),
    "too-many": hostile(TARGET, [frame(7, 100, bytes(100)), frame(8, 2)]),
    "rejects": hostile(b"\1\0", [frame(3, 3, b"why")]),
    "accepts": hostile(b"\1\0", [frame(2, 3, b"yes"), MESSAGE]),
}

# Steps of fuzz_log.c, after one byte that selects the layout.
SUPER = b"\1" + struct.pack("<BH", 0x80 | 1, 7)
ENTRY = b"\2" + struct.pack("<BBHB", 0, 0, 5, 0)
NEXT = b"\2" + struct.pack("<BBHB", 0, 1, 5, 1)
log = {"empty-%d" % n: bytes([n]) for n in range(4)}
log["appended"] = b"\0" + b"\5a\5b\4\5c"
log["stored"] = b"\1" + b"\5a\5b\4\5c"
log["entries"] = b"\0" + ENTRY + NEXT + b"\4\5x"
log["second"] = b"\0" + SUPER + ENTRY + b"\4"
log["nothing"] = b"\0" + b"\2" + struct.pack("<BBHB", 0, 0, 0, 0) + b"\4\5z"
log["pad"] = b"\0" + b"\2" + struct.pack("<BBHB", 2, 0, 0, 0) + b"\4"
log["far"] = b"\0\1" + struct.pack("<BH", 0x24, 63) + b"\1" + struct.pack("<BH", 0x23, 63) + ENTRY + NEXT
log["tail"] = b"\2" + ENTRY + b"\3" + struct.pack("<BQ", 1, 128) + b"\4\5y"

# Steps of fuzz_rpc_ring.c: of entries, calls, replies, flushes, restarts.
def ring_entry(pos, size, room=0, behind=b"\0\0\0", result=1):
    return bytes([1, 1, pos, 0, 0, 0]) + struct.pack("<H", size) \
        + bytes([room, 0]) + behind + bytes([result])


RING_CALL = b"\5\6\0\0"
RING_SUPER = b"\0\1\0\1\1\1\0\1\3\0"
rpc_ring = {
    "calls": b"\0" + (ring_entry(0, 100, 4) + RING_CALL) * 4,
    "flushed": b"\1" + (ring_entry(0, 100, 4) + RING_CALL) * 4 + b"\7",
    "whole-rings": b"\1" + ring_entry(0, 2000) + RING_CALL
                   + (ring_entry(30, 2000) + RING_CALL) * 4 + b"\7",
    "restart": b"\1" + (ring_entry(0, 100, 4) + RING_CALL) * 2 + b"\x08\0\5",
    "result": b"\0" + ring_entry(0, 100, 4, result=8) + b"\5"
              + ring_entry(0, 100, 4) + RING_CALL,
    "process": b"\0" + RING_SUPER + b"\4" + ring_entry(0, 100) + RING_CALL,
    "damaged": b"\0" + ring_entry(0, 100) + ring_entry(3, 100)
               + b"\3\0\x30\4damn" + b"\x08\0" + RING_CALL,
}

for name, seeds in (("wire", wire), ("agent", agent), ("initiator", initiator),
                    ("setup", setup), ("setup_client", setup_client),
                    ("pool", pool), ("log", log), ("wire_desc", wire_desc),
                    ("ring", ring), ("tcp", tcp), ("rpc_ring", rpc_ring)):
    folder = os.path.join(sys.argv[1], name)
    os.makedirs(folder, exist_ok=True)
    for seed, data in seeds.items():
        with open(os.path.join(folder, seed), "wb") as f:
            f.write(data)
