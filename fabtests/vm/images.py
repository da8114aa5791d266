#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes images of NVDIMMs that a power cut may leave.

usage: images.py MEMORY:BEGIN,... MEDIUM SEED PERCENT OUT

MEMORY: the files of the NVDIMMs, in the order of their addresses, and the offset
at which data begin (the kernel rebuilds the bytes before it). MEDIUM: one file
with the bytes that were written back. Each 64-byte line of the data that differs
between the two is taken from MEDIUM with a probability of PERCENT. Writes OUT0,
OUT1, ... and prints how many lines differed and how many were taken from MEDIUM.
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
    """Offsets of the lines of a that differ from b, which starts at begin."""
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
