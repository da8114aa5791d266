#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds programs with a planted bug for crashtest_pool.sh.

usage: crash_planted.py BUILD plugin|log FOLDER: the plugin of nbdkit that ignores
FLUSH, or crash_log whose log stores the tail beside its entries.
"""
import glob
import os
import subprocess
import sys

sys.dont_write_bytecode = True
SOURCE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
sys.path[1:1] = [SOURCE + "/fabtests/integration", SOURCE + "/fabtests/mutation"]
import named  # noqa: E402
import nbd_planted  # noqa: E402
from volume import build_planted  # noqa: E402

BUG_OF_LOG = "log-tail-before-data"


def build_log(build, folder):
    """The client, linked with the sources of the log instead of the library."""
    mutant, = [m for m in named.read(SOURCE) if m.name == BUG_OF_LOG]
    planted = os.path.join(SOURCE, mutant.path)
    with open(planted, encoding="ascii") as f:
        text = named.apply(f.read(), mutant)
    changed = os.path.join(folder, "planted.c")
    with open(changed, "w", encoding="ascii") as f:
        f.write(text)
    rest = [p for p in glob.glob(SOURCE + "/util/liblog/*.c")
            if not os.path.samefile(p, planted)]
    subprocess.run(
        ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-o",
         os.path.join(folder, "crash_log"), "-I" + build,
         *("-I" + os.path.join(SOURCE, d)
           for d in (".", "include", "prov", "util", "util/liblog")),
         SOURCE + "/fabtests/functional/crash_log.c", changed, *rest,
         "-L" + build + "/util/.libs", "-lrpmem_pool", "-lxxhash", "-lpthread"],
        check=True)


def main(build, what, folder):
    if what == "log":
        build_log(build, folder)
        return
    changes, = [p[2] for p in nbd_planted.BUGS if p[0] == "flush-ignored"]
    build_planted(build, folder, changes)


if __name__ == "__main__":
    main(*sys.argv[1:])
