# SPDX-License-Identifier: BSD-2-Clause
"""A copy of the tree, built file by file, in which mutants are tried."""
import concurrent.futures
import functools
import glob
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading

# Warnings that are errors in the project and show real mistakes.
STRICT = ["-Werror=return-type", "-Werror=int-conversion",
          "-Werror=incompatible-pointer-types",
          "-Werror=implicit-function-declaration"]
# Uninitialized variables have a fixed value, so that a run can be repeated.
MUTANT = ["-O0", "-ftrivial-auto-var-init=pattern"] + STRICT
MIB = 1 << 20
# The part of librpmem_pool that has tests without a network.
POOL = [f"util/libpool/{n}.c" for n in ("commits", "connect", "journal",
                                          "piece", "wait", "work")]
# Files of the programs that have named mutants.
UTIL = ("advise_machine", "advise_memory", "advise", "conf", "dirty_shutdowns", "doctor_disk", "export_key", "metrics",
        "one_shot", "plugpull_judge", "plugpull_ledger", "setup", "setup_server",
        "stats_text")
# The files of fi_rpmem_crashtest that record, and make, check and shrink images,
# and its reports.
CRASH = [f"util/crashtest/{n}.c" for n in ("call", "check",
                                             "directory_tree", "explore",
                                             "filter", "history", "record",
                                             "record_tree", "report",
                                             "report_html", "report_style",
                                             "report_text", "runlog",
                                             "sample", "shrink", "trace")]
BUILDS = {
    "plain": [],
    "address": ["-fsanitize=address,undefined", "-g1",
                "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread", "-g1"],
}
SEED = "1"  # of the tests' random generators: the same for each mutant


class Broken(Exception):
    """The check itself is impossible."""


def command(args, **kw):
    return subprocess.run(args, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          errors="replace", **kw)


class Lab:
    """Builds shared by all workers; only mutants are compiled anew."""

    def __init__(self, source):
        self.dir = tempfile.mkdtemp(prefix="mutate.", dir=scratch(source))
        self.tree = os.path.join(self.dir, "tree")
        for part in ("include", "prov/core", "prov/rc", "prov/rpmem", "prov/verbs",
                     "fabtests/unit", "fabtests/fault", "docs", "util"):
            shutil.copytree(os.path.join(source, part),
                            os.path.join(self.tree, part))
        # Everything else that config.h defines is -D_GNU_SOURCE.
        with open(self.path("config.h"), "w") as f:
            f.write("#define PACKAGE_NAME \"ofi_rpmem\"\n")
            if has_verbs("ibv_wr_flush"):
                f.write("#define HAVE_IBV_WR_FLUSH 1\n")
            if has_rdmacm():
                f.write("#define HAVE_RDMACM 1\n")
        # libpmem2 1.12 leaks two small blocks of each deleted map.
        with open(os.path.join(self.dir, "leaks"), "w") as f:
            f.write("leak:libpmem2.so\n")
        self.core = sorted(os.path.basename(p) for p in glob.glob(
            os.path.join(self.tree, "prov/core/*.c")))
        self.verbs = sorted(os.path.basename(p) for p in glob.glob(
            os.path.join(self.tree, "prov/verbs/*.c"))) if has_verbs() else []
        # Private connections; has_rdmacm(): both backends are built.
        self.rc = sorted(os.path.basename(p) for p in glob.glob(
            os.path.join(self.tree, "prov/rc/*.c"))) if has_rdmacm() else []
        # Not what the rig of calls replaces.
        self.libs = sorted(
            os.path.relpath(p, self.tree) for lib in ("liblog", "librpc")
            for p in glob.glob(os.path.join(self.tree, f"util/{lib}/*.c"))
            if os.path.basename(p) not in ("loop.c", "port.c", "server.c"))
        self.libs += sorted(os.path.relpath(p, self.tree) for p in glob.glob(
            os.path.join(self.tree, "util/libpool/group*.c")))
        self.libs += POOL + CRASH + ["util/librpmem/librpmem.c",
                                     "util/librpmem/session.c"]
        self.libs += [f"util/{n}.c" for n in UTIL]
        if has_raft():
            self.libs += [f"util/libraft/{n}.c" for n in RAFT]
        # Sizes of the group's rig: see fabtests/unit/local.mk.
        with open(self.path("fabtests/unit/local.mk"), encoding="ascii") as f:
            self.sizes = re.findall(r"-DGROUP_\w+=\w+", f.read())
        self.limits = {}  # (build, suite): CPU seconds, once it was built
        self.used = {}    # suite: names of the files of prov/core in it
        self.clean = {}   # (bench, file): its unchanged code, optimized
        self.lock = threading.Lock()

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.tree, *parts)

    def core_text(self, name):
        with open(self.path(name), encoding="ascii") as f:
            return f.read()

    def cflags(self, build, overlay=None):
        first = [f"-I{overlay}"] if overlay else []
        return (["-std=gnu11", "-D_GNU_SOURCE", "-fno-strict-aliasing"] +
                BUILDS[build] + self.sizes + first +
                [f"-I{self.path('fabtests/unit/plain')}",
                 f"-I{self.tree}", f"-I{self.path('include')}",
                 f"-I{self.path('prov')}", f"-I{self.path('fabtests')}",
                 f"-I{self.path('util')}",
                 "-DRP_PROVIDER_DIR=\"/\"", f"-DRP_SRCDIR=\"{self.tree}\""])

    def compile(self, build, source, obj, flags, overlay=None):
        return command(["gcc", "-c", "-o", obj] + flags +
                       self.cflags(build, overlay) + [source])

    def obj(self, build, name):
        """The object of an unchanged source, made on first use."""
        obj = os.path.join(self.dir, build, name.replace("/", "_") + ".o")
        if not os.path.exists(obj):
            os.makedirs(os.path.dirname(obj), exist_ok=True)
            # Two workers may compile it at once.
            new = f"{obj}.{threading.get_ident()}"
            r = self.compile(build, self.path(name), new, ["-O2", "-w"])
            if r.returncode:
                raise Broken(r.stdout)
            os.rename(new, obj)
        return obj

    def archive(self, build):
        name = os.path.join(self.dir, build, "core.a")
        if not os.path.exists(name):
            new = f"{name}.{threading.get_ident()}"
            r = command(["ar", "rc", new] +
                        [self.obj(build, "prov/core/" + c)
                         for c in self.core] +
                        [self.obj(build, "prov/verbs/" + c)
                         for c in self.verbs] +
                        [self.obj(build, "prov/rc/" + c)
                         for c in self.rc] +
                        [self.obj(build, c) for c in self.libs])
            if r.returncode:
                raise Broken(r.stdout)
            os.rename(new, name)
        return name

    def has(self, killer, path):
        """Does the suite link this file? Unknown for headers: true."""
        return path.endswith(".h") or \
            os.path.basename(path)[:-2] in self.used.get(killer.name, ())

    def compile_all(self, build, killers, jobs):
        """Make the objects of the sources and of these suites, jobs at once."""
        names = {f"prov/core/{c}" for c in self.core}
        names |= {f"prov/verbs/{c}" for c in self.verbs}
        names |= {f"prov/rc/{c}" for c in self.rc}
        names |= set(self.libs)
        names |= {f"fabtests/{s}" for k in killers for s in k.sources}
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda n: self.obj(build, n), sorted(names)))

    def link_all(self, killers):
        """Find the files that each suite has in it."""
        for k in killers:
            Bench(self, "unbroken").link("plain", k, {})
            if not self.used[k.name]:
                raise Broken(f"{k.name} has nothing of the sources in it")

    def limit(self, build, killer):
        """CPU seconds of the suite on the unbroken code, where it passes."""
        key = build, killer.name
        with self.lock:
            if key not in self.limits:
                start = cpu_seconds()
                bench = Bench(self, "unbroken")
                failure = bench.execute(
                    build, [bench.link(build, killer, {}), "--fail-fast"], 30)
                if failure:
                    raise Broken(f"{killer.name} ({build}) fails on unbroken "
                                 f"code: {failure}")
                self.limits[key] = cpu_seconds() - start
            return self.limits[key]

    def ready_also(self, shell):
        bench, path = Bench(self, "unbroken"), "prov/core/ranges.c"
        bench.put({path: self.core_text(path)})
        failure = bench.also(shell, path)
        if failure:
            raise Broken(f"{shell}: fails on unbroken code: {failure}")


class Bench:
    """One worker's folder, with its current mutant."""

    def __init__(self, lab, name):
        self.lab = lab
        self.dir = os.path.join(lab.dir, name)
        os.makedirs(os.path.join(self.dir, "tmp"), exist_ok=True)

    def put(self, changed):
        """changed: {path: text} of the files to compile instead."""
        self.text, self.changed = changed, {}
        self.overlay = os.path.join(self.dir, "inc")
        shutil.rmtree(self.overlay, ignore_errors=True)
        for path, text in changed.items():
            where = os.path.join(self.overlay,
                                 path.removeprefix("prov/"))
            os.makedirs(os.path.dirname(where), exist_ok=True)
            with open(where, "w", encoding="ascii") as f:
                f.write(text)
            self.changed[path] = where

    def build(self, build, flags=MUTANT, tag=""):
        """Objects of the changed files; None: one does not compile."""
        objs = {}
        names = list(self.changed)
        if any(n.endswith(".h") for n in names):
            names = ["prov/core/" + c for c in self.lab.core]
        for n in names:
            source = self.changed.get(n, self.lab.path(n))
            obj = os.path.join(self.dir, f"{build}{tag}-" +
                               os.path.basename(n) + ".o")
            if self.lab.compile(build, source, obj, flags,
                                self.overlay).returncode:
                return None
            objs[n] = obj
        return objs

    def same_code(self):
        """Does an optimizing compiler see no difference at all?"""
        changed = self.text
        new = self.optimized()
        key = self.dir, *changed
        if key not in self.lab.clean:
            # At the same path, because the path is in the object.
            self.put({path: self.lab.core_text(path) for path in changed})
            self.lab.clean[key] = self.optimized()
            self.put(changed)
        return new == self.lab.clean[key]

    def optimized(self):
        objs = self.build("plain", ["-O2"], "-opt")
        return {n: read(o) for n, o in objs.items()}

    def run(self, build, killer, objs):
        """The suite's first failure with the mutant; None: it passed."""
        took = self.lab.limit(build, killer)
        return self.execute(
            build, [self.link(build, killer, objs), "--fail-fast"], took)

    def link(self, build, killer, objs):
        """The suite as a program, with these objects in place of theirs."""
        lab = self.lab
        prog = os.path.join(self.dir, "test_" + killer.name)
        # A changed object comes before its original in the archive.
        parts = [lab.obj(build, "fabtests/" + s) for s in killer.sources]
        r = command(["gcc", "-o", prog] + BUILDS[build] + parts +
                    list(objs.values()) + [lab.archive(build)] +
                    [f"-Wl,--wrap={w}" for w in killer.wraps] +
                    ["-Wl,--as-needed", "-lxxhash", "-lnettle", "-linih",
                     "-ljansson", "-lmicrohttpd", "-lfabric"] +
                    (["-libverbs"] if lab.verbs else []) +
                    (["-lrdmacm"] if lab.rc else []) +
                    (["-lraft", "-luv"] if has_raft() else []) +
                    ["-lpmem2", "-lpthread", "-lm", "-Wl,-t,-t"])
        if r.returncode:
            raise Broken(r.stdout)
        lab.used.setdefault(killer.name, set(
            re.findall(r"(?:prov_(?:core|verbs|rc)|util_crashtest|"
                       r"util_lib(?:log|pool|raft|rpc|rpmem)|"
                       rf"util(?=_(?:{'|'.join(UTIL)})\.))_(\w+)"
                       r"\.c\.o", r.stdout)))
        return prog

    def also(self, shell, path):
        return self.execute(None, ["sh", "-c", shell], 60, MUTANT=path,
                            MUTANT_TEXT=self.changed[path])

    def execute(self, build, args, took, **more):
        env = dict(os.environ, TMPDIR=os.path.join(self.dir, "tmp"),
                   RP_SEEDS_FROM=SEED, RP_LONG="0", FI_TCP_IFACE="lo",
                   ASAN_OPTIONS="detect_leaks=1:hard_rss_limit_mb=1024",
                   LSAN_OPTIONS="print_suppressions=0:suppressions=" +
                   os.path.join(self.lab.dir, "leaks"),
                   TSAN_OPTIONS="halt_on_error=1:hard_rss_limit_mb=1024",
                   **more)
        env.pop("RP_SEED", None)
        log = os.path.join(self.dir, "log")
        with open(log, "w") as out:
            p = subprocess.Popen(
                ["prlimit", f"--cpu={math.ceil(1 + 6 * took)}", "--core=0",
                 f"--fsize={64 * MIB}"] +
                ([f"--as={2048 * MIB}"] if build == "plain" else []) + args,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env,
                cwd=self.dir, start_new_session=True)
            try:
                code = p.wait(timeout=20 + 20 * took)
            except subprocess.TimeoutExpired:
                code = "hangs"
            finally:
                # A new session: a test may still run in its group.
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                p.wait()
        if code == 0:
            return None
        failed = re.findall(r"^\[FAIL\] (\S+)", read(log).decode(
            errors="replace"), re.M)
        return failed[0] if failed else f"exit {code}"


# The suite of librpmem_raft links these.
RAFT = ("conf", "io", "replay", "ring", "snapshot", "store", "uvpoll", "wire",
        "writer")


@functools.lru_cache(None)
def has_raft():
    """Is libraft installed?"""
    return not command(["sh", "-c", "echo '#include <raft.h>' | "
                        "gcc -E -x c -"]).returncode


@functools.lru_cache(None)
def has_rdmacm():
    """Are private connections over verbs built?"""
    return not command(["sh", "-c", "echo '#include <rdma/rdma_cma.h>' | "
                        "gcc -E -x c -"]).returncode


@functools.lru_cache(None)
def has_verbs(name="ibv_wr_start"):
    """Is libibverbs installed, and does it have this call?"""
    return not command(
        ["sh", "-c", f"echo '#include <infiniband/verbs.h>' | "
         f"gcc -E - | grep -q '{name}'"]).returncode


def cpu_seconds():
    """CPU time used so far by all programs that were run."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def read(path):
    with open(path, "rb") as f:
        return f.read()


def scratch(source):
    """A folder on a disk: some suites need a trusted file system."""
    return os.environ.get("TMPDIR") or ("/var/tmp" if os.path.isdir("/var/tmp")
                                        else source)
