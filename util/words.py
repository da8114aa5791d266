#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Finds comments, names and commit titles that break CONTRIBUTING's word list.

usage: util/words.py [FILE...]

Without FILE: every C, shell and Python file that git knows, and the titles of
the commits since the last tag. One line for each finding, FILE:LINE: what; the
exit status is 1 when there is any.
"""
import io
import os
import re
import subprocess
import sys
import tokenize

# First words of a comment that stand for a missing noun.
HEADLESS = re.compile(
    r"(Who|Whoever|Whose|What|Whatever|Whichever|Of|Those|That of|Where"
    r"|Wherever|As much|Nothing of)\b(?! is\b.*\?$)")

# Word in a comment -> the usual word for it.
WORDS = {
    r"asker|xport": "session",
    r"greet(s|ed|ing|ings)?|welcome": "HELLO, HELLO_ACK, handshake",
    r"answer(s|ed|ing)?": "reply",
    r"ask(s|ed|ing)? (the |an? |its |their )?(agent|target|peer|server|daemon)":
        "request, query",
    r"mailbox(es)?|bell": "ring, doorbell",
    r"patience|signs of life": "deadline, heartbeat",
    r"doubt|taint(s|ed)?|unsure": "poisoned, indeterminate",
    r"awake|asleep|naps?|rouse[sd]?|hush|looks on|lies? down":
        "polling, idle, parked, wake",
    r"visitors?": "client",
    r"strangers?": "unverified peer",
    r"unasked": "implicit, unrequested",
    r"under way": "outstanding, in progress",
    r"(a |its |one |former |next |new |old )li(fe|ves)": "incarnation",
    r"(of (our|its|their) own|linked) (connection|endpoint)s?":
        "private connection",
    r"travels? together": "coalesce",
}
# Part of a name, between underscores -> the word to use.
NAMES = {
    "asker": "session", "asked": "a noun", "told": "a noun", "own": "a noun",
    "there": "a noun", "held": "deferred", "linked": "connected",
    "greet": "hello", "greeting": "hello", "welcome": "hello_ack",
    "patience": "deadline", "visitor": "client", "stranger": "unverified",
    "doubt": "poison", "taint": "poison", "nap": "idle", "awake": "polling",
    "asleep": "idle", "rouse": "wake", "hush": "quiet", "mailbox": "ring",
    "unasked": "implicit", "whose": "owner", "xport": "channel",
}
COMMENT_WORDS = [(re.compile(r"\b(%s)\b" % w, re.I), say)
                 for w, say in WORDS.items()]
KINDS = {".c": "c", ".h": "c", ".sh": "sh", ".py": "py"}
# The files with the word list itself and its test.
EXEMPT = ("util/words.py", "fabtests/functional/words.sh")

C_TOKEN = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*',
    re.S)


def c_parts(text):
    """Yields each comment and each name as (kind, line, text)."""
    for m in C_TOKEN.finditer(text):
        t = m.group()
        line = text.count("\n", 0, m.start()) + 1
        if t.startswith("/*"):
            yield "comment", line, re.sub(r"\n\s*\* ?", " ", t[2:-2]).strip()
        elif t.startswith("//"):
            yield "comment", line, t[2:].strip()
        elif t[0] not in "\"'":
            yield "name", line, t


def sh_parts(text):
    block, start = [], 0
    for n, line in enumerate(text.split("\n") + [""], 1):
        m = re.match(r"\s*#(?!!) ?(.*)", line)
        if m:
            start = start or n
            block.append(m.group(1))
            continue
        if block:
            yield "comment", start, " ".join(block).strip()
            block, start = [], 0
        m = re.search(r"\s# (.*)", line)
        if m:
            yield "comment", n, m.group(1)
        m = re.match(r"\s*(\w+)\(\)", line)
        if m:
            yield "name", n, m.group(1)


def py_parts(text):
    try:
        for t in tokenize.generate_tokens(io.StringIO(text).readline):
            if t.type == tokenize.COMMENT:
                yield "comment", t.start[0], t.string.lstrip("#! ")
            elif t.type == tokenize.NAME:
                yield "name", t.start[0], t.string
    except tokenize.TokenError:
        return


PARTS = {"c": c_parts, "sh": sh_parts, "py": py_parts}


def kind_of(path):
    kind = KINDS.get(os.path.splitext(path)[1])
    if kind or os.path.splitext(path)[1]:
        return kind
    try:
        with open(path, "rb") as f:
            first = f.readline(80)
    except OSError:
        return None
    return "py" if b"python" in first else "sh" if first[:2] == b"#!" else None


def findings(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    seen = set()
    for kind, line, part in PARTS[kind_of(path)](text):
        if kind == "comment":
            if HEADLESS.match(part):
                yield line, 'starts without its subject: "%s"' % part[:50]
            for word, say in COMMENT_WORDS:
                m = word.search(part)
                if m:
                    yield line, '"%s": say %s' % (m.group(), say)
        elif part not in seen:
            seen.add(part)
            for p in part.lower().split("_"):
                if p in NAMES:
                    yield line, "name %s: %s: say %s" % (part, p, NAMES[p])


def git(*args):
    r = subprocess.run(("git",) + args, capture_output=True, text=True,
                       check=False)
    return r.stdout.strip() if r.returncode == 0 else None


def titles():
    """Yields titles since the last tag, or since this script was added."""
    base = git("describe", "--tags", "--abbrev=0") or git(
        "log", "--diff-filter=A", "-1", "--format=%H", "--", "util/words.py")
    for line in (git("log", "--no-merges", "--format=%h %s", base + "..HEAD")
                 or "").split("\n") if base else ():
        commit, _, title = line.partition(" ")
        if title and not re.match(r"[\w./, +-]{1,40}: \S", title):
            yield commit, 'title without "area: ": %s' % title
        elif len(title) > 72:
            yield commit, "title of %d columns: %s" % (len(title), title)


def main():
    files = sys.argv[1:]
    if files and files[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    os.chdir(os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
    bad = 0
    for path in files or (git("ls-files") or "").split("\n"):
        if path in EXEMPT or not os.path.isfile(path) or not kind_of(path):
            continue
        for line, what in findings(path):
            print("%s:%s: %s" % (path, line, what))
            bad += 1
    for commit, what in () if files else titles():
        print("commit %s: %s" % (commit, what))
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
