# SPDX-License-Identifier: BSD-2-Clause
"""Named mutants: one file per source, each mutant anchored in its function.

named/core/ring.mutants has the mutants of prov/core/ring.c, and named/liblog,
named/crashtest, named/libpool, named/libraft, named/librpc and named/librpmem
those of the folders of these names in util, named/util those of util itself:

    ## ring-in-pieces
    A message is taken before its last byte has arrived.
    in: rp_ring_take
    --- old
    text of the source: whole lines
    --- new
    text in its place

The old text must stand exactly once in that function, or in the whole C file if
there is no "in:". Blank lines at the end of a mutant are ignored.

usage: named.py SOURCE: print each mutant that does not fit its source.
"""
import collections
import glob
import os
import re
import sys

Named = collections.namedtuple("Named", "name what path function old new")


class Wrong(Exception):
    """A mutant that does not fit its source, or text that is no mutant."""


def read(source):
    """All mutants of a source tree, in the order of their names."""
    found = []
    folder = os.path.join(source, "fabtests/mutation/named")
    for path in glob.glob(os.path.join(folder, "*", "*.mutants")):
        part = os.path.relpath(path, folder)[:-8]
        c_file = part + ".c"
        if not part.startswith("util/"):
            folders = "lib", "crashtest/"
            c_file = ("util/" if part.startswith(folders) else "prov/") + c_file
        with open(path, encoding="ascii") as f:
            first, *blocks = re.split(r"^## ", f.read(), flags=re.M)
        if first.strip() or not blocks:
            raise Wrong(f"{path}: a mutant begins with ## and its name")
        found += [parse(path, c_file, b) for b in blocks]
    names = [n.name for n in found]
    for n in set(names):
        if names.count(n) > 1:
            raise Wrong(f"two mutants are called {n}")
    return sorted(found)


def parse(path, c_file, block):
    """One mutant of the file path, for the source c_file."""
    m = re.fullmatch(r"(\S+)\n(\S[^\n]*)\n(?:in: (\w+)\n)?--- old\n(.+?\n)"
                     r"--- new\n(.*?\n|)\n*", block, re.S)
    if not m:
        raise Wrong(f"{path}: ## {block.partition(chr(10))[0]}: expected a name, "
                    "a sentence, in: (optional), --- old, --- new, each on its "
                    "line, without blank lines between them")
    return Named(m[1], m[2], c_file, m[3], m[4], m[5] if m[5].strip() else "")


def span(text, function):
    """Where the definition of a function begins and ends, or None."""
    for m in re.finditer(rf"^(?![ \t#/*]).*\b{function}\(", text, re.M):
        body = text.find("\n{\n", m.start())
        semicolon = text.find(";", m.start())
        end = text.find("\n}\n", body)
        if 0 <= body < end and not 0 <= semicolon < body:
            return m.start(), end + 3
    return None


def apply(text, mutant):
    """The text of the source with this mutant."""
    first, end = 0, len(text)
    if mutant.function:
        where = span(text, mutant.function)
        if not where:
            raise Wrong(f"{mutant.name}: {mutant.path} has no function "
                        f"{mutant.function}")
        first, end = where
    lines = re.compile("^" + re.escape(mutant.old), re.M)
    times = len(lines.findall(text, first, end))
    if times != 1:
        raise Wrong(f"{mutant.name}: its old text is {times} times in "
                    f"{mutant.function or mutant.path}, and must be there once")
    at = lines.search(text, first, end).start()
    return text[:at] + mutant.new + text[at + len(mutant.old):]


def main():
    bad = 0
    try:
        for mutant in read(sys.argv[1]):
            try:
                with open(os.path.join(sys.argv[1], mutant.path),
                          encoding="ascii") as f:
                    apply(f.read(), mutant)
            except (OSError, Wrong) as e:
                print(e)
                bad = 1
    except Wrong as e:
        print(e)
        bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
