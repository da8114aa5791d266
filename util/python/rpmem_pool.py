# SPDX-License-Identifier: BSD-2-Clause
"""Write to a pool of fi_rpmemd on another machine, and make it durable.

    with rpmem_pool.open("storage1:vol0", secret="/etc/rpmem.secret") as pool:
        pool.write(b"durable", 0)
        pool.commit()

Many operations at one time, without waiting:

        for i, block in enumerate(blocks):
            pool.submit_write(block, 4096 * i)
        pool.submit_commit(context="all of them")
        left = len(blocks) + 1
        while left:
            for op in pool.poll():
                left -= 1
                if op.error:
                    raise op.error

Each call raises OSError with the errno, and the cause and remedy as text.
rpmem_pool(3) describes the calls. Threads may share a pool.
"""
import ctypes
import os

POWER, PROCESS, NONE = range(3)
EXCLUSIVE, TAKE, OBSERVE = 1, 2, 3
_CLASSES = ("power", "process", "none")
_STATES = ("away", "copying", "lagging", "current")
_DURABLE = 1
_BUFFERED = 2
_WRITE, _READ, _COMMIT, _ZERO = 1, 2, 3, 4


class _Attr(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("secret_file", ctypes.c_char_p),
        ("required", ctypes.c_int),
        ("timeout", ctypes.c_uint),
        ("exclusive", ctypes.c_int),
        ("parts", ctypes.c_uint),
        ("part", ctypes.c_uint),
        ("wait", ctypes.c_int),
    ]


class _Then(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("value", ctypes.c_uint64)]


class _Op(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("buf", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("offset", ctypes.c_uint64),
        ("then", ctypes.POINTER(_Then)),
        ("context", ctypes.c_void_p),
        ("result", ctypes.c_int),
        ("error", ctypes.c_char_p),
    ]


class _Info(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("length", ctypes.c_uint64),
        ("reached", ctypes.c_int),
        ("method", ctypes.c_char_p),
        ("granularity", ctypes.c_uint32),
        ("preferred_size", ctypes.c_uint32),
        ("kept", ctypes.c_uint64),
        ("reconnects", ctypes.c_uint64),
        ("read_only", ctypes.c_int),
        ("members", ctypes.c_uint),
        ("current", ctypes.c_uint),
        ("uuid", ctypes.c_uint64 * 2),
    ]


class _Member(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("where", ctypes.c_char_p),
        ("state", ctypes.c_int),
        ("left", ctypes.c_uint64),
        ("error", ctypes.c_char_p),
    ]


_lib = ctypes.CDLL("librpmem_pool.so.0")
_lib.rpmem_pool_error.restype = ctypes.c_char_p
_lib.rpmem_pool_close.restype = None
_lib.rpmem_pool_open.argtypes = [
    ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.POINTER(_Attr)]
_lib.rpmem_pool_close.argtypes = [ctypes.c_void_p]
_lib.rpmem_pool_query.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Info)]
_lib.rpmem_pool_member.argtypes = [
    ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(_Member)]
_lib.rpmem_pool_write.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64,
    ctypes.c_uint]
_lib.rpmem_pool_read.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
_lib.rpmem_pool_zero.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint]
_lib.rpmem_pool_commit.argtypes = [ctypes.c_void_p]
_lib.rpmem_pool_divide.argtypes = [ctypes.c_void_p, ctypes.c_uint]
_lib.rpmem_pool_submit.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Op)]
_lib.rpmem_pool_poll.argtypes = [
    ctypes.c_void_p, ctypes.POINTER(ctypes.POINTER(_Op)), ctypes.c_uint,
    ctypes.c_int]


def _check(ret):
    if ret < 0:
        raise OSError(-ret, _lib.rpmem_pool_error().decode())


def _bytes_of(data):
    """A buffer with the bytes of data, which is not copied if it is writable."""
    view = memoryview(data).cast("B")
    if view.readonly:
        view = bytearray(view)
    return (ctypes.c_char * len(view)).from_buffer(view), len(view)


class Operation:
    """An operation that poll() has returned: its context, and how it ended.

    error is None or an OSError; data the bytes of a read.
    """

    def __init__(self, context):
        self.context = context
        self.error = self.data = self._op = self._buf = None

    def _end(self):
        if self._op.result:
            self.error = OSError(-self._op.result, self._op.error.decode())
        elif self._op.type == _READ:
            self.data = self._buf.raw if self._buf else b""
        self._op = self._buf = None


class Pool:
    """An open pool."""

    def __init__(self, where, secret=None, required=POWER, timeout=0,
                 exclusive=False, parts=0, part=0, wait=0):
        attr = _Attr(size=ctypes.sizeof(_Attr), required=required,
                     timeout=timeout, exclusive=exclusive, parts=parts,
                     part=part, wait=wait)
        if secret is not None:
            attr.secret_file = os.fsencode(secret)
        self._ops = {}  # submitted operations, by the address of their struct
        self._pool = ctypes.c_void_p()
        _check(_lib.rpmem_pool_open(ctypes.byref(self._pool), where.encode(),
                                    ctypes.byref(attr)))

    def _handle(self):
        if not self._pool:
            raise ValueError("the pool is closed")
        return self._pool

    def write(self, data, offset, durable=False, buffered=False):
        """Write bytes.

        With durable, return when they are durable; with buffered, before
        other readers see them: a commit makes them visible and durable.
        """
        buf, length = _bytes_of(data)
        _check(_lib.rpmem_pool_write(self._handle(), buf, length, offset,
                                     durable * _DURABLE + buffered * _BUFFERED))

    def zero(self, length, offset, durable=False, buffered=False):
        """Write zeros, which the target fills in itself."""
        _check(_lib.rpmem_pool_zero(self._handle(), length, offset,
                                    durable * _DURABLE + buffered * _BUFFERED))

    def read(self, length, offset):
        """Read bytes of the pool."""
        buf = ctypes.create_string_buffer(length) if length else b""
        _check(_lib.rpmem_pool_read(self._handle(), buf, length, offset))
        return buf.raw if length else b""

    def commit(self):
        """Make durable every write that has returned."""
        _check(_lib.rpmem_pool_commit(self._handle()))

    def divide(self, parts):
        """Divide a pool that is open exclusively into equal parts; 1: none."""
        _check(_lib.rpmem_pool_divide(self._handle(), parts))

    def _submit(self, context, buf, **fields):
        done = Operation(context)
        done._buf, done._op = buf, _Op(**fields)
        if buf:
            done._op.buf = ctypes.addressof(buf)
        address = ctypes.addressof(done._op)
        # Another thread may poll the operation before the call returns.
        self._ops[address] = done
        try:
            _check(_lib.rpmem_pool_submit(self._handle(),
                                          ctypes.byref(done._op)))
        except BaseException:
            del self._ops[address]
            raise

    def submit_write(self, data, offset, durable=False, buffered=False,
                     context=None):
        """Start a write. poll() returns it, with the context.

        data must not change until then.
        """
        buf, length = _bytes_of(data)
        self._submit(context, buf, type=_WRITE, len=length, offset=offset,
                     flags=durable * _DURABLE + buffered * _BUFFERED)

    def submit_zero(self, length, offset, durable=False, buffered=False,
                    context=None):
        """Start writing zeros."""
        self._submit(context, None, type=_ZERO, len=length, offset=offset,
                     flags=durable * _DURABLE + buffered * _BUFFERED)

    def submit_read(self, length, offset, context=None):
        """Start a read: poll() returns an operation with its data."""
        buf = ctypes.create_string_buffer(length) if length else None
        self._submit(context, buf, type=_READ, len=length, offset=offset)

    def submit_commit(self, then=None, context=None):
        """Start a commit of all writes that were submitted before.

        then: (offset, value), a store of 8 bytes behind all of them.
        """
        store = ctypes.pointer(_Then(*then)) if then else None
        self._submit(context, None, type=_COMMIT, then=store)

    def poll(self, most=64, timeout_ms=-1):
        """Return up to `most` Operations that have ended; wait for the first.

        timeout_ms -1 waits without end, 0 does not wait.
        """
        done = (ctypes.POINTER(_Op) * most)()
        n = _lib.rpmem_pool_poll(self._handle(), done, most, timeout_ms)
        _check(n)
        ended = [self._ops.pop(ctypes.addressof(p.contents)) for p in done[:n]]
        for operation in ended:
            operation._end()
        return ended

    def info(self):
        """Return a dict: length, reached, method, kept, read_only, ..."""
        info = _Info(size=ctypes.sizeof(_Info))
        _check(_lib.rpmem_pool_query(self._handle(), ctypes.byref(info)))
        found = {name: getattr(info, name) for name, _ in _Info._fields_[1:]}
        found["reached"] = _CLASSES[info.reached]
        found["method"] = info.method.decode()
        found["read_only"] = bool(info.read_only)
        found["uuid"] = bytes(info.uuid)
        return found

    def members(self):
        """Return a dict for each member of a group: where, state, left, error."""
        found = []
        for index in range(self.info()["members"]):
            m = _Member(size=ctypes.sizeof(_Member))
            _check(_lib.rpmem_pool_member(self._handle(), index,
                                          ctypes.byref(m)))
            found.append({"where": m.where.decode(),
                          "state": _STATES[m.state], "left": m.left,
                          "error": m.error.decode() if m.error else None})
        return found

    def close(self):
        """Close without a commit."""
        if self._pool:
            _lib.rpmem_pool_close(self._pool)
            self._pool = ctypes.c_void_p()
            self._ops.clear()  # the library uses none of them any more

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open(where, secret=None, required=POWER, timeout=0, exclusive=False,
         parts=0, part=0, wait=0):
    """Open a pool, "HOST:POOL" or "HOST:PORT:POOL".

    exclusive: False, EXCLUSIVE, TAKE or OBSERVE. parts, part: open one part of a
    pool that divide() has divided. wait: seconds to wait for a daemon that does
    not listen yet; -1: none.
    """
    return Pool(where, secret, required, timeout, exclusive, parts, part, wait)
