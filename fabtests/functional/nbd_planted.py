#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Plants bugs in nbdkit's plugin; nbd.sh and nbd_random.sh must find them.

usage: nbd_planted.py [NAME]..., in a build folder, with $srcdir

nbd.sh must fail at the line of the bug, nbd_random.sh at any check. Without
names and without RP_LONG=1 one bug is tried: RP_SHARE=K/N selects it, else
chance.
"""
import os
import random
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)),
                                "../integration"))
from volume import PLANTED, PLUGIN, build_planted, plant  # noqa: E402

# Name, effect, [(file, text, replacement)...], first failure of nbd.sh.
BUGS = [
    ("flush-ignored", "FLUSH succeeds at once", PLANTED["flush-ignored"],
     "a flush does not cover its own connection"),
    ("flush-of-own-writes", "FLUSH covers its connection's writes alone",
     PLANTED["flush-of-own-writes"],
     "a flush does not cover the other connection"),
    ("fua-ignored", "FUA is ignored",
     [(PLUGIN, "\treturn flags & NBDKIT_FLAG_FUA ? RPMEM_POOL_DURABLE\n"
       "\t\t\t\t       : RPMEM_POOL_BUFFERED;\n",
       "\treturn RPMEM_POOL_BUFFERED;\n")],
     "a write with FUA is not durable"),
    ("fua-of-zeros-ignored", "zeros with FUA are not durable",
     [(PLUGIN,
       "\t\trpmem_pool_zero(pool, count, offset, write_flags(flags)));\n",
       "\t\trpmem_pool_zero(pool, count, offset, RPMEM_POOL_BUFFERED));\n")],
     "zeros with FUA are not durable"),
    ("no-replay", "a restarted target does not get what it lacks",
     PLANTED["no-replay"], "client far flush"),
    ("no-commit-at-stop", "an orderly stop does not commit",
     [(PLUGIN, " || !rpmem_pool_commit(pool))\n", ")\n")],
     "a stop of nbdkit loses writes"),
]


def run_suite(source, plugin, script):
    """Run a suite with this plugin; returns its output and exit status."""
    done = subprocess.run(
        [os.path.join(source, "fabtests/functional", script)],
        env=dict(os.environ, RP_NBD_PLUGIN=plugin),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout, done.returncode


def choose(names, every):
    if names or every:
        return [p for p in BUGS if not names or p[0] in names]
    turn = os.environ.get("RP_SHARE", "").split("/")[0]
    return [BUGS[int(turn) % len(BUGS)] if turn
            else random.choice(BUGS)]


def main(names):
    source = os.path.abspath(os.environ.get("srcdir", "."))
    build = os.getcwd()
    every = os.environ.get("RP_LONG") == "1"
    if os.environ.get("RP_SANITIZE") or not os.path.exists(
            "util/.libs/nbdkit-rpmem-plugin.so"):
        print("SKIP: the plain build with nbdkit does this")
        return 77
    # The scripts make longer runs without bugs.
    os.environ["RP_LONG"] = "0"
    # Each bug must have its place, also if it is not tried now.
    for _, _, changes, _ in BUGS:
        plant(source, changes)
    bad = 0
    with tempfile.TemporaryDirectory(dir=build, prefix="planted.") as scratch:
        for name, what, changes, expected in choose(names, every):
            plugin = build_planted(build, scratch, changes)
            for script, failure, start in (
                    ("nbd.sh", r"^FAIL: (.*)$", expected),
                    ("nbd_random.sh", r"^not ok - (.*)$", "seed ")):
                output, code = run_suite(source, plugin, script)
                if code == 77:
                    print(output, end="")
                    return 77
                first = re.search(failure, output, re.M)
                found = code and first and first[1].startswith(start)
                bad += not found
                print(f"{'ok' if found else 'not ok'} - {name}: {what}: "
                      f"{script}: {first[1] if first else output}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
