#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Is a history of reads and writes of registers linearizable?

The search of Wing and Gong with the cache of Lowe, as in Porcupine, for each
key alone: a history is linearizable if the history of each key is.
"""
import collections
import math

# An operation begins at call and ends at ret (math.inf: its outcome is
# unknown). value: the value written if write is true, else the value read, or
# None.
Op = collections.namedtuple("Op", "call ret key write value")


class Event:
    """A call or return, in the list of all events in order of time."""

    def __init__(self, op, number, match):
        self.op, self.number, self.match = op, number, match
        self.prev = self.next = None


def events_of(ops):
    """Return the head of the list; the match of a call is its return."""
    found = []
    for number, op in enumerate(ops):
        end = Event(op, number, None)
        found.append((op.call, 0, Event(op, number, end)))
        found.append((op.ret, 1, end))
    found.sort(key=lambda e: e[:2])
    head = last = Event(None, -1, None)
    for _, _, event in found:
        last.next, event.prev = event, last
        last = event
    return head


def lift(call):
    """Remove a call and its return from the list."""
    for e in (call, call.match):
        e.prev.next = e.next
        if e.next:
            e.next.prev = e.prev


def unlift(call):
    for e in (call.match, call):
        e.prev.next = e
        if e.next:
            e.next.prev = e


def register(ops):
    """Check the operations of one key, which has no value at first."""
    ops = [o for o in ops if o.write or o.ret != math.inf]
    head = events_of(ops)
    done, value, stack, seen = 0, None, [], set()
    event = head.next
    while head.next:
        if event and event.match:
            op = event.op
            after = op.value if op.write else value
            state = (done | 1 << event.number, after)
            if (op.write or op.value == value) and state not in seen:
                seen.add(state)
                stack.append((event, done, value))
                done, value = state
                lift(event)
                event = head.next
            else:
                event = event.next
        elif event and event.op.ret == math.inf:
            return True  # these may never have been executed
        else:
            if not stack:
                return False
            event, done, value = stack.pop()
            unlift(event)
            event = event.next
    return True


def wrong_keys(ops):
    """Return the keys whose histories are not linearizable."""
    keys = collections.defaultdict(list)
    for op in ops:
        keys[op.key].append(op)
    return sorted(k for k, of in keys.items() if not register(of))


def self_test():
    """Check histories with a known answer; return how many are wrong."""
    inf = math.inf
    w = lambda c, r, v: Op(c, r, "k", True, v)
    g = lambda c, r, v: Op(c, r, "k", False, v)
    cases = [
        (True, [w(0, 1, "a"), g(2, 3, "a")]),
        (False, [w(0, 1, "a"), g(2, 3, None)]),  # a write that was lost
        (False, [w(0, 1, "a"), w(2, 3, "b"), g(4, 5, "a")]),  # a stale read
        (True, [w(0, 3, "a"), w(1, 4, "b"), g(5, 6, "a")]),
        (True, [w(0, inf, "a"), g(1, 2, None), g(3, 4, "a")]),
        (False, [w(0, inf, "a"), g(1, 2, "a"), g(3, 4, None)]),
        (False, [w(0, 9, "a"), g(1, 2, "a"), g(3, 4, None)]),
        (False, [w(0, 3, "a"), w(0, 3, "b"), g(4, 5, "a"), g(6, 7, "b")]),
        (True, [w(0, 9, "a"), w(0, 9, "b"), g(1, 2, "b"), g(3, 4, "a")]),
        (False, [g(0, 1, "a")]),  # a value that nobody wrote
    ]
    return sum(register(ops) != good for good, ops in cases)
