#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Forward Ethernet frames between two interfaces, with delay, loss and stalls.

usage: slow_link.py INTERFACE INTERFACE SEED, as root

Stands in for "tc netem" where the kernel lacks it. Each frame is delayed by 1 to
15 ms, so frames overtake each other; 1 of 50 is lost; 1 of 500 stalls the link
for 300 ms.
"""
import heapq
import random
import select
import socket
import sys
import time

ETH_P_ALL, SOL_PACKET, PACKET_VNET_HDR = 3, 263, 15
OUTGOING = 4  # kind of a frame that this program has sent itself


def open_port(name):
    """Frames come and go with their offload header: they exceed the MTU."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                      socket.htons(ETH_P_ALL))
    s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    s.bind((name, 0))
    return s


def main():
    ports = [open_port(name) for name in sys.argv[1:3]]
    rng = random.Random(int(sys.argv[3]))
    frames, number, open_at = [], 0, 0.0
    while True:
        wait = max(0, frames[0][0] - time.monotonic()) if frames else None
        for port in select.select(ports, [], [], wait)[0]:
            frame, (_, _, kind, *_) = port.recvfrom(1 << 17)
            if kind == OUTGOING or rng.random() < 1 / 50:
                continue
            now = time.monotonic()
            if rng.random() < 1 / 500:
                open_at = now + 0.3
            number += 1
            heapq.heappush(frames, (max(now, open_at) +
                                    rng.uniform(0.001, 0.015), number,
                                    ports[port is ports[0]], frame))
        while frames and frames[0][0] <= time.monotonic():
            _, _, port, frame = heapq.heappop(frames)
            try:
                port.send(frame)
            except OSError:  # the interface is down, or its queue is full
                pass


main()
