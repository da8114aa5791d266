#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a power cut may have left on NVDIMMs.

usage: images.py MEMORY:BEGIN,... MEDIUM SEED PERCENT OUT

MEMORY: the files behind the NVDIMMs, in the order of their addresses, and where
data begin there (what is before that the kernel makes anew); MEDIUM: one file of
the same bytes as far as they were written back. Each 64-byte line of the data in
which they differ is, with the chance of PERCENT, that of the medium. Writes
OUT0, OUT1, ... and says how many lines differed and how many were taken back.
"""
import mmap
import random
import subprocess
import sys

PAGE, LINE = 4096, 64


def mapped(path):
    with open(path, "r+b") as f:
        return mmap.mmap(f.fileno(), 0)


def differing(a, first, b, begin):
    """Offsets in a of the lines that b, from begin on, has otherwise."""
    for page in range(first, len(a), PAGE):
        mine, other = a[page:page + PAGE], b[begin + page:begin + page + PAGE]
        if mine == other:
            continue
        for at in range(0, PAGE, LINE):
            if mine[at:at + LINE] != other[at:at + LINE]:
                yield page + at


def main():
    memory, medium, seed, percent, out = sys.argv[1:]
    chance = random.Random(int(seed))
    medium = mapped(medium)
    begin = lines = reverted = 0
    for i, part in enumerate(memory.split(",")):
        path, first = part.rsplit(":", 1)
        subprocess.run(["cp", "--sparse=always", path, f"{out}{i}"], check=True)
        image = mapped(f"{out}{i}")
        for at in differing(image, int(first), medium, begin):
            lines += 1
            if chance.random() * 100 < int(percent):
                reverted += 1
                image[at:at + LINE] = medium[begin + at:begin + at + LINE]
        begin += len(image)
    print(f"{lines} {reverted}")


main()
