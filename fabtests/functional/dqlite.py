# SPDX-License-Identifier: BSD-2-Clause
"""A client of dqlite, in its wire protocol (https://dqlite.io/docs/protocol)."""
import socket
import struct

SECONDS = 20  # after which a server counts as hung
FAILURE, SERVER, DB, STMT, RESULT, ROWS, EMPTY = 0, 1, 4, 5, 6, 7, 8
LEADER, OPEN, PREPARE, EXEC, QUERY, FINALIZE = 0, 3, 4, 5, 6, 7
ADD, ASSIGN, TRANSFER = 12, 13, 17
INTEGER, TEXT = 1, 3
ROWS_DONE = 0xffffffffffffffff
ROWS_PART = 0xeeeeeeeeeeeeeeee


class Failure(Exception):
    """The server's reply is a failure."""


def text(s):
    s = s.encode() + b"\0"
    return s + bytes(-len(s) % 8)


def number(n):
    return struct.pack("<Q", n)


def params(values):
    head = bytes([len(values)])
    head += bytes(INTEGER if isinstance(v, int) else TEXT for v in values)
    return head + bytes(-len(head) % 8) + b"".join(
        number(v) if isinstance(v, int) else text(v) for v in values)


class Reply:
    def __init__(self, kind, body):
        self.kind, self.body, self.at = kind, body, 0

    def number(self, size=8):
        self.at += size
        return int.from_bytes(self.body[self.at - size:self.at], "little")

    def text(self):
        end = self.body.index(b"\0", self.at)
        s = self.body[self.at:end].decode()
        self.at = end + 1 + -(end + 1) % 8
        return s


class Connection:
    """One connection to a server, which may have one database open."""

    def __init__(self, address):
        host, port = address.split(":")
        self.sock = socket.create_connection((host, int(port)), SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(number(1))
        self.statements = {}

    def close(self):
        self.sock.close()

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the server has closed the connection")
            data += part
        return data

    def reply(self, kind):
        words, got, _, _ = struct.unpack("<IBBH", self.receive(8))
        reply = Reply(got, self.receive(8 * words))
        if got == FAILURE:
            raise Failure(f"{reply.number()}: {reply.text()}")
        if got != kind:
            raise Failure(f"reply {got} instead of {kind}")
        return reply

    def call(self, kind, body, reply):
        assert len(body) % 8 == 0
        self.sock.sendall(struct.pack("<IBBH", len(body) // 8, kind, 0, 0)
                          + body)
        return self.reply(reply)

    def leader(self):
        """The address of the leader, or "" if the server knows none."""
        reply = self.call(LEADER, number(0), SERVER)
        reply.number()
        return reply.text()

    def open(self, name):
        self.call(OPEN, text(name) + number(0) + text("volatile"), DB)

    def prepare(self, sql):
        if sql not in self.statements:
            reply = self.call(PREPARE, number(0) + text(sql), STMT)
            reply.number(4)
            self.statements[sql] = reply.number(4)
        return struct.pack("<II", 0, self.statements[sql])

    def execute(self, sql, *values):
        self.call(EXEC, self.prepare(sql) + (params(values) if values else b""),
                  RESULT)

    def numbers(self, sql):
        """The only column, of integers, of a query's rows."""
        reply = self.call(QUERY, self.prepare(sql), ROWS)
        found = []
        while True:
            assert reply.number() == 1
            reply.text()  # the column's name
            while True:
                head = reply.number()
                if head in (ROWS_DONE, ROWS_PART):
                    break
                assert head == INTEGER
                found.append(reply.number())
            if head == ROWS_DONE:
                return found
            reply = self.reply(ROWS)

    def add(self, server, address):
        self.call(ADD, number(server) + text(address), EMPTY)

    def make_voter(self, server):
        self.call(ASSIGN, number(server) + number(0), EMPTY)

    def make_leader(self, server):
        self.call(TRANSFER, number(server), EMPTY)
