# SPDX-License-Identifier: BSD-2-Clause
"""Write to a pool of fi_rpmemd on another machine, and make it durable.

    with rpmem_pool.open("storage1:vol0", secret="/etc/rpmem.secret") as pool:
        pool.write(b"durable", 0)
        pool.commit()

Each call raises OSError with the errno, and the cause and remedy as text.
rpmem_pool(3) describes the calls. Threads may share a pool.
"""
import ctypes
import os

POWER, PROCESS, NONE = range(3)
EXCLUSIVE, TAKE = 1, 2
_CLASSES = ("power", "process", "none")
_STATES = ("away", "copying", "lagging", "current")
_DURABLE = 1
_BUFFERED = 2


class _Attr(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("secret_file", ctypes.c_char_p),
        ("required", ctypes.c_int),
        ("timeout", ctypes.c_uint),
        ("exclusive", ctypes.c_int),
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


def _check(ret):
    if ret < 0:
        raise OSError(-ret, _lib.rpmem_pool_error().decode())


class Pool:
    """An open pool."""

    def __init__(self, where, secret=None, required=POWER, timeout=0,
                 exclusive=False):
        attr = _Attr(size=ctypes.sizeof(_Attr), required=required,
                     timeout=timeout, exclusive=exclusive)
        if secret is not None:
            attr.secret_file = os.fsencode(secret)
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
        view = memoryview(data).cast("B")
        if view.readonly:
            buf = bytes(view)
        else:
            buf = (ctypes.c_char * len(view)).from_buffer(view)
        _check(_lib.rpmem_pool_write(self._handle(), buf, len(view), offset,
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

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open(where, secret=None, required=POWER, timeout=0, exclusive=False):
    """Open a pool, "HOST:POOL" or "HOST:PORT:POOL"."""
    return Pool(where, secret, required, timeout, exclusive)
