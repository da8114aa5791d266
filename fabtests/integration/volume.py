# SPDX-License-Identifier: BSD-2-Clause
"""A file system on a remote pool whose target and client can be cut."""
import glob
import mmap
import os
import shutil
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from file_system import FILE_SYSTEMS  # noqa: E402

HEADER = 65536  # length of a pool file's header
PAGE = 4096
APART = ("unshare", "--mount")  # a command with its own mounts


PLUGIN = "util/nbdkit/rpmem.c"
COMMIT = "\tconst int ret = report_result(rpmem_pool_commit(pool));\n"
# Bugs planted in the plugin: (file, text, replacement).
PLANTED = {
    # FLUSH succeeds at once.
    "flush-ignored": [(PLUGIN, COMMIT, "\tconst int ret = 0;\n")],
    # Each connection of a client has its own handle of the pool, so FLUSH covers
    # the writes of its connection alone.
    "flush-of-own-writes": [
        (PLUGIN, "\tattr.exclusive = take ? RPMEM_POOL_TAKE : "
         "RPMEM_POOL_EXCLUSIVE;\n", "\tattr.exclusive = 0;\n"),
        (PLUGIN, "attr.exclusive && !info.read_only", "!info.read_only"),
        (PLUGIN, "\treturn NBDKIT_HANDLE_NOT_NEEDED;\n",
         "\tstruct rpmem_pool *own;\n\n"
         "\treturn rpmem_pool_open(&own, where, &attr) ? NULL : own;\n"),
        # Another connection reads what has completed.
        (PLUGIN, "\t       : RPMEM_POOL_BUFFERED;\n", "\t       : 0;\n"),
        (PLUGIN, "rpmem_pool_read(pool, ", "rpmem_pool_read(handle, "),
        (PLUGIN, "rpmem_pool_write(pool, ", "rpmem_pool_write(handle, "),
        (PLUGIN, "rpmem_pool_zero(pool, ", "rpmem_pool_zero(handle, "),
        (PLUGIN, COMMIT, COMMIT.replace("(pool)", "(handle)"))],
    # A restarted target does not get what it lacks.
    "no-replay": [
        ("util/libpool/work.c", "\twhile (p->replay_next < p->nreplay) {\n",
         "\tp->nreplay = 0;\n\twhile (p->replay_next < p->nreplay) {\n")],
}


def wait_until(what, ready, process=None, seconds=60):
    """Wait until ready() is true; the limit only ends a run that hangs."""
    end = time.monotonic() + seconds
    while not ready():
        if process and process.poll() is not None:
            raise RuntimeError(f"{what}: the process ended")
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not ready after {seconds} s")
        time.sleep(0.02)


def run(*command, **kw):
    """Run a command, which must succeed; returns its output as text."""
    p = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120,
                       stderr=subprocess.STDOUT, check=False, **kw)
    if p.returncode:
        raise RuntimeError(f"{' '.join(command)}: {p.stdout}")
    return p.stdout


def end(process):
    """Kill a process at once."""
    if process and process.poll() is None:
        process.kill()
    if process:
        process.wait()


def accepts(path):
    """Does a server listen on this Unix socket?"""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
        except OSError:
            return False
    return True


def plant(source, plants):
    """Return the changed sources of the plugin, by path."""
    text = {}
    for path in glob.glob(source + "/util/libpool/*.c") + [
            os.path.join(source, PLUGIN)]:
        with open(path, encoding="ascii") as f:
            text[os.path.relpath(path, source)] = f.read()
    for path, old, new in plants:
        if text[path].count(old) != 1:
            raise RuntimeError(f"{path} does not contain the text to change")
        text[path] = text[path].replace(old, new)
    return text


def build_planted(build, folder, plants):
    """Build the plugin with planted bugs."""
    source = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
    text = plant(source, plants)
    files = [os.path.join(folder, path.replace("/", "_")) for path in text]
    for path, content in zip(files, text.values()):
        with open(path, "w", encoding="ascii") as f:
            f.write(content)
    plugin = os.path.join(folder, "plugin.so")
    run("gcc", "-std=gnu11", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", plugin,
        "-I" + build, *("-I" + os.path.join(source, d)
                        for d in (".", "include", "prov", "util")), *files,
        build + "/util/.libs/libutil.a", build + "/prov/core/.libs/libcore.a",
        "-lfabric", "-lpmem2", "-lnettle", "-lxxhash", "-lpthread", "-lm",
        "-ldl")
    return plugin


class Volume:
    """A file system on a pool, and the daemon, whose power can be cut."""

    def __init__(self, build, folder, rng, control, fs="ext4"):
        self.build, self.dir, self.rng = build, folder, rng
        self.control, self.fs = control, FILE_SYSTEMS[fs]
        self.bytes = self.fs.pool
        self.mount = os.path.join(folder, "mnt")
        self.pool = os.path.join(folder, "vol")
        self.port = "0"
        self.daemon = self.nbdkit = self.fuse = self.loop = None
        self.env = dict(os.environ, RPMEM_SHADOW=f"{self.pool}:{self.safe}",
                        FI_TCP_IFACE="lo", LD_PRELOAD=os.path.join(
                            build, "fabtests/fault/.libs/libshadow.so"))
        if control == "skip-flush":
            os.mkdir(self.at("prov"))
            os.symlink(os.path.join(
                build, "fabtests/fault/.libs/librpmem-fault-fi.so"),
                self.at("prov/librpmem-fault-fi.so"))
            self.env.update(RPMEM_FAULT=control,
                            FI_PROVIDER_PATH=self.at("prov"))
        self.plugin = os.path.join(build,
                                   "util/.libs/nbdkit-rpmem-plugin.so")
        if control in PLANTED:
            self.plugin = build_planted(build, folder, PLANTED[control])
        self.log = open(self.at("log"), "w", encoding="utf-8")
        self.opened = 0  # pages that no msync covered, over all cuts

    def at(self, name):
        return os.path.join(self.dir, name)

    @property
    def safe(self):
        return self.pool + ".safe"

    def serve(self, *more):
        ready = self.at("port")
        if os.path.exists(ready):
            os.unlink(ready)
        self.daemon = subprocess.Popen(
            [os.path.join(self.build, "util/fi_rpmemd"), "--port", self.port,
             "--port-file", ready, *more, self.pool], env=self.env,
            stdout=self.log, stderr=self.log)
        wait_until("fi_rpmemd", lambda: os.path.exists(ready), self.daemon)
        with open(ready, encoding="ascii") as f:
            self.port = f.read().strip()

    def create(self):
        """Create the pool; False: its class is not power."""
        self.serve("--create", str(self.bytes))
        end(self.daemon)
        with open(self.at("log"), encoding="utf-8") as f:
            if " power " not in f.read():
                return False
        shutil.copy(self.pool, self.safe)
        self.serve()
        return True

    def attach(self):
        sock, shown = self.at("nbd"), self.at("fuse/nbd")
        os.makedirs(self.at("fuse"), exist_ok=True)
        os.makedirs(self.mount, exist_ok=True)
        if os.path.exists(sock):
            os.unlink(sock)
        # In namespaces of their own they cannot unmount what they serve: in a
        # namespace's last process that would wait for itself.
        self.nbdkit = subprocess.Popen(
            [*APART, "nbdkit", "-f", "-U", sock, self.plugin, "pool=vol",
             f"target=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)
        wait_until("nbdkit", lambda: accepts(sock), self.nbdkit)
        # With more connections each of them gets fewer FLUSHes.
        connections = "16" if self.control == "flush-of-own-writes" else "4"
        self.fuse = subprocess.Popen(
            [*APART, "nbdfuse", "-C", connections, shown,
             f"nbd+unix:///?socket={sock}"],
            stdout=self.log, stderr=self.log)
        wait_until("nbdfuse", lambda: os.path.exists(
            f"/proc/{self.fuse.pid}/root{shown}"), self.fuse)
        self.loop = run("nsenter", "-t", str(self.fuse.pid), "-m", "losetup",
                        "--find", "--show", shown).strip()

    def format(self):
        run(*self.fs.make, self.loop)
        run("mount", "-o", self.fs.no_fsync if self.control == "no-fsync"
            else self.fs.options, self.loop, self.mount)

    def open_pages(self):
        """Offsets of the pages that no msync covered."""
        with open(self.pool, "rb") as a, open(self.safe, "rb") as b, \
                mmap.mmap(a.fileno(), 0, access=mmap.ACCESS_READ) as new, \
                mmap.mmap(b.fileno(), 0, access=mmap.ACCESS_READ) as old:
            found = [at for at in range(0, len(new), PAGE)
                     if new[at:at + PAGE] != old[at:at + PAGE]]
        self.opened += len(found)
        return found

    def image(self, path, pages, kept):
        """Make an image with each of the pages with probability `kept`."""
        shutil.copy(self.safe, path)
        with open(self.pool, "rb") as src, open(path, "r+b") as dst:
            for at in pages:
                if self.rng.random() < kept:
                    src.seek(at)
                    dst.seek(at)
                    dst.write(src.read(PAGE))

    def cut_target(self):
        """Cut the target's power and restart it, while clients continue."""
        end(self.daemon)
        # The control has to lose bytes: only the replay restores them.
        self.image(self.at("next"), self.open_pages(),
                   0 if self.control else self.rng.random())
        os.rename(self.at("next"), self.pool)
        shutil.copy(self.pool, self.safe)
        self.serve()

    def cut_client(self):
        """Cut the client's power."""
        end(self.nbdkit)
        end(self.fuse)

    def cut_all(self):
        """Cut the power of target and client."""
        end(self.daemon)
        self.cut_client()

    def detach(self):
        """Remove mounts and loop device that a cut client has left."""
        for command in (["umount", "-l", self.mount],
                        ["losetup", "-d", self.loop or "none"]):
            subprocess.run(command, stdout=self.log, stderr=self.log,
                           check=False)
        self.loop = None

    def close(self):
        self.cut_all()
        self.detach()
        self.log.close()
