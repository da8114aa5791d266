#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Results of fi_rpmem_crashtest, and what their HTML page must show."""
import html.parser
import json
import re
import struct
import sys
import zlib

HOSTILE = ("</pre></title><script>console.error('owned')</script>"
           "<img src=x onerror=\"console.error('owned')\">&lt;'\"\x1b[2J\u202e")
# Characters of HOSTILE that act on the display: the page shows code points.
SHOWN = HOSTILE.replace("\x1b", "\\u{1b}").replace("\u202e", "\\u{202e}")
TAGS = set("""html head meta link title style body header h1 b p main section
    h2 table thead tbody tr th td code span i article h3 strong q h4 label
    input div bdi ol ul li pre details summary""".split())


def event(n, kind, target="", **more):
    return dict(n=n, t_us=n * 10, pid=7, kind=kind, target=target, **more)


def write(n, target, durable_at=None):
    return event(n, "write", target, offset=n * 4096, length=4096,
                 durable_at=durable_at)


def failure(cut, lost, output):
    return {"cut": cut, "kept": 1, "acknowledged": 2, "status": 1,
            "lost": [{"event": n, "unit": "page", "offset": n * 4096,
                      "length": 4096} for n in lost],
            "last_acknowledged": HOSTILE, "output": output,
            "repeat": "fi_rpmem_crashtest --image " + HOSTILE}


def hostile():
    events = [write(0, HOSTILE, 1), event(1, "flush", HOSTILE),
              event(2, "ack", text=HOSTILE), write(3, HOSTILE),
              write(4, "b"), event(5, "ack", text=HOSTILE)]
    return {"command": [HOSTILE, "--x"], "mode": "files", "seed": 1,
            "verdict": "convicted", "reason": HOSTILE,
            "images": {"made": 9, "distinct": 8, "checked": 8, "failed": 2},
            "events": events,
            "failures": [failure(5, [3], HOSTILE + "\nline 2\n"),
                         failure(5, [3, 4], "no row 3\n")]}


def long():
    events = [event(n, "flush", "f%d" % (n % 30)) if n % 500 == 0
              else write(n, "f%d" % (n % 30)) for n in range(10000)]
    return {"verdict": "convicted", "events": events,
            "failures": [failure(9999, [777, 5001, 9998], "gone\n")]}


RESULTS = {"hostile": hostile, "long": long, "empty": dict}


class Page(html.parser.HTMLParser):
    """Elements of a page, and the text of those that are compared."""

    def __init__(self, text):
        super().__init__()
        self.failures, self.lost, self.outputs, self.repeats = 0, [], [], []
        self.bad, self.into, self.policy, self.legend = [], None, "", False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        kind = attrs.get("class", "")
        if tag not in TAGS:
            self.bad.append(tag)
        self.bad += [a for a in attrs if a.startswith("on") or a == "src"]
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag == "article":
            self.failures += 1
            self.lost.append(0)
        if tag == "span" and kind in ("m lost", "m torn"):
            self.lost[-1] += 1
        self.into = {"output": self.outputs,
                     "repeat": self.repeats}.get(kind)
        if self.into is not None:
            self.into.append("")

    def handle_endtag(self, tag):
        if tag == "pre":
            self.into = None

    def handle_data(self, data):
        if self.into is not None:
            self.into[-1] += data


def check_page(result, text):
    page = Page(text)
    wanted = result.get("failures", [])
    assert not page.bad, "elements or attributes: %s" % page.bad
    assert page.policy.startswith("default-src 'none'"), page.policy
    assert "</html>" in text, "the page ends early"
    assert page.failures == len(wanted), page.failures
    assert page.lost == [len(f["lost"]) for f in wanted], page.lost
    assert page.outputs == [f["output"].replace(HOSTILE, SHOWN)
                            for f in wanted], page.outputs
    assert page.repeats == [f["repeat"].replace(HOSTILE, SHOWN)
                            for f in wanted], page.repeats


def keys(value):
    """The names of all members of a result."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set()


def check_keys(result, man):
    """The members of a real result are those of the man page, and are right."""
    section = man.split(".Ss Result\n")[1].split("\n.S")[0]
    words = re.findall(r"^\.(?:It|Pq)? ?Li (.*)", section, re.M)
    found = {w for line in words for w in re.findall(r"[a-z_]+", line)}
    values = set("files device pool null acquitted convicted not tested".split())
    assert keys(result) == found - values, keys(result) ^ (found - values)
    images, events = result["images"], result["events"]
    failure, = result["failures"]
    assert (result["version"], result["mode"], result["verdict"],
            result["seed"], result["killed"]) == (1, "files", "convicted", 7, 0)
    assert result["command"][1:] == ["replace", "none"], result["command"]
    assert images["made"] >= images["distinct"] >= images["checked"] > 0, images
    assert images["checked"] >= images["failed"] > 0, images
    assert [e["n"] for e in events] == list(range(len(events)))
    assert all(a["t_us"] <= b["t_us"] for a, b in zip(events, events[1:]))
    assert {"write", "rename", "ack"} <= {e["kind"] for e in events}
    acks = [e["text"] for e in events[:failure["cut"] + 1] if e["kind"] == "ack"]
    assert failure["acknowledged"] == len(acks) > 0, failure
    assert failure["last_acknowledged"] == acks[-1], failure
    assert failure["stable"] and failure["minimal"] and not failure["timed_out"], failure
    assert failure["status"] == 9 and failure["lost"], failure
    for lost in failure["lost"]:
        event = events[lost["event"]]
        assert lost["event"] <= failure["cut"], lost
        assert event["durable_at"] is None or (
            event["durable_at"] > failure["cut"]), event
    assert " --image %d:" % failure["cut"] in failure["repeat"], failure


def check_picture(data):
    """A painted page has several colours; an empty one has one."""
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (1200, 1600), (width, height)
    body, at = b"", 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IDAT":
            body += data[at + 8:at + 8 + size]
        at += size + 12
    assert len(set(zlib.decompress(body))) > 100, "the picture is empty"


def main():
    what, name, *rest = sys.argv[1:]
    if what == "make":
        with open(rest[0], "w") as f:
            json.dump(RESULTS[name](), f)
    elif what == "page":
        with open(name) as result, open(rest[0]) as text:
            check_page(json.load(result), text.read())
    elif what == "keys":
        with open(name) as result, open(rest[0]) as man:
            check_keys(json.load(result), man.read())
    else:
        with open(name, "rb") as f:
            check_picture(f.read())


main()
