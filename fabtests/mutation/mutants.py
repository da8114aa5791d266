# SPDX-License-Identifier: BSD-2-Clause
"""Finds what can be broken in a C file, one small change at a time."""
import collections
import re

from clang import cindex
from clang.cindex import CursorKind as K

# start, end: the part of the file that `new` replaces; same number of lines.
Mutant = collections.namedtuple(
    "Mutant", "file line function source kind change start end new")

ORDER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
EQUAL = ("==", "!=")
STEP = {"++": "--", "--": "++", "+=": "-=", "-=": "+="}
LOGIC = {"&&": "||", "||": "&&"}
LOOPS = (K.FOR_STMT, K.WHILE_STMT, K.DO_STMT)
BODIES = LOOPS + (K.IF_STMT,)
# A failing assert is impossible, so no test can show that one is missing; a
# log line is only deleted as a whole.
NO_LOOK_INSIDE = re.compile(r"(assert|rp_log)\s*\(")
NOT_DELETED = (K.DECL_STMT, K.NULL_STMT, K.COMPOUND_STMT, K.CASE_STMT,
               K.DEFAULT_STMT, K.LABEL_STMT)


def normal(text):
    return " ".join(text.split())


def parens(text):
    return text if re.fullmatch(r"[\w.>\[\]-]*", text) else f"({text})"


class Finder:
    def __init__(self, path, name, args):
        with open(path, encoding="ascii") as f:
            self.text = f.read()
        self.path, self.name = path, name
        self.enough = None
        unit = cindex.Index.create().parse(
            path, args, options=cindex.TranslationUnit
            .PARSE_DETAILED_PROCESSING_RECORD)
        bad = [d for d in unit.diagnostics if d.severity >= 3]
        if bad:
            raise SystemExit(f"mutate: {name}: {bad[0]}")
        self.found = {}
        self.lines = self.text.split("\n")
        tops = [c for c in unit.cursor.get_children()
                if c.location.file and c.location.file.name == path]
        self.macros = [self.span(c) for c in tops
                       if c.kind == K.MACRO_INSTANTIATION]
        for c in tops:
            self.function = c.spelling
            if c.kind == K.FUNCTION_DECL and c.is_definition():
                for child in c.get_children():
                    if child.kind == K.COMPOUND_STMT:
                        self.visit(child)
            elif c.kind == K.VAR_DECL:
                for child in c.get_children():
                    self.visit(child)

    def span(self, c):
        return c.extent.start.offset, c.extent.end.offset

    def of(self, c):
        s, e = self.span(c)
        return self.text[s:e]

    def in_macro(self, c):
        """Is all of it the product of one macro?"""
        s, e = self.span(c)
        return any(a <= s and e <= b for a, b in self.macros)

    def add(self, kind, start, end, new, what=None):
        old = self.text[start:end]
        line = self.text.count("\n", 0, start) + 1
        change = what or f"{short(old)} -> {short(new)}"
        new += "\n" * (old.count("\n") - new.count("\n"))
        self.found.setdefault((start, end, new), Mutant(
            self.name, line, self.function, normal(self.lines[line - 1]),
            kind, change, start, end, new))

    # --- one kind of change each ---

    def delete(self, c):
        s, e = self.span(c)
        if s == e or self.text[s:e].startswith("assert"):
            return
        new = "" if self.text[e:].lstrip()[:1] == ";" else ";"
        self.add("delete", s, e, new, short(self.text[s:e]))

    def delete_item(self, c):
        """One initializer of a list, with its comma."""
        s, e = self.span(c)
        comma = re.match(r"\s*,", self.text[e:])
        end = e + (comma.end() if comma else 0)
        self.add("delete", s, end, "", short(self.text[s:e]))

    def negate(self, c):
        s, e = self.span(c)
        text = self.text[s:e]
        if c.kind == K.UNARY_OPERATOR and text.startswith("!"):
            self.add("negate", s, e, text[1:])
        elif text in ("true", "false"):
            self.flip(s, e)
        else:
            self.add("negate", s, e, f"!({text})")

    def flip(self, s, e):
        new = "false" if self.text[s:e] == "true" else "true"
        self.add("constant", s, e, new)

    def swap(self, a, b, operands=False):
        (s, ae), (bs, e) = self.span(a), self.span(b)
        t = self.text
        if t[s:ae] == t[bs:e] or ae > bs:
            return
        first, second = t[s:ae], t[bs:e]
        if operands:
            first, second = parens(first), parens(second)
        self.add("swap", s, e, second + t[ae:bs] + first)

    # --- the walk ---

    def visit(self, c):
        text = self.of(c)
        if NO_LOOK_INSIDE.match(text):
            return
        if text in ("true", "false"):
            self.flip(*self.span(c))
            return
        if self.in_macro(c):
            return
        getattr(self, "on_" + c.kind.name.lower(), lambda c, k: None)(
            c, list(c.get_children()))
        for child in c.get_children():
            self.visit(child)

    def statement(self, c):
        if c.kind not in NOT_DELETED:
            self.delete(c)

    def on_compound_stmt(self, c, kids):
        for k in kids:
            self.statement(k)

    def labelled(self, c, kids):
        if kids:
            self.statement(kids[-1])

    on_case_stmt = on_default_stmt = on_label_stmt = labelled

    def on_if_stmt(self, c, kids):
        self.negate(kids[0])
        for k in kids[1:]:
            self.statement(k)

    def on_while_stmt(self, c, kids):
        if self.span(kids[0])[0] > self.span(c)[0]:
            self.negate(kids[0])
        self.statement(kids[-1])

    def on_do_stmt(self, c, kids):
        self.negate(kids[-1])
        self.statement(kids[0])

    def on_for_stmt(self, c, kids):
        self.statement(kids[-1])
        start = self.span(c)[0]
        head = re.match(r"for\s*\(([^;]*);([^;]*);", self.text[start:])
        if head:
            a, b = start + head.start(2), start + head.end(2)
            for k in kids:
                if a <= self.span(k)[0] and self.span(k)[1] <= b:
                    self.negate(k)

    def on_conditional_operator(self, c, kids):
        self.negate(kids[0])

    def on_unary_operator(self, c, kids):
        s, e = self.span(c)
        text = self.text[s:e]
        if text[:2] in STEP:
            self.add("constant", s, e, STEP[text[:2]] + text[2:])
        elif text[-2:] in STEP:
            self.add("constant", s, e, text[:-2] + STEP[text[-2:]])
        elif text.startswith("!"):
            self.negate(c)

    def operator(self, kids):
        end, start = self.span(kids[0])[1], self.span(kids[1])[0]
        gap = self.text[end:start]
        at = end + len(gap) - len(gap.lstrip())
        return at, gap.strip()

    def on_compound_assignment_operator(self, c, kids):
        at, op = self.operator(kids)
        if op in STEP:
            self.add("constant", at, at + 2, STEP[op],
                     f"{short(self.of(c))}: {op} -> {STEP[op]}")

    def on_binary_operator(self, c, kids):
        at, op = self.operator(kids)
        if op in LOGIC:
            self.negate(kids[0])
            self.negate(kids[1])
        new = LOGIC.get(op) or ORDER.get(op)
        if new:
            kind = "swap" if op in LOGIC else "constant"
            s, e = self.span(c)
            self.add(kind, s, e, self.text[s:at] + new +
                     self.text[at + len(op):e])
        if op in ORDER or op in EQUAL:
            self.negate(c)
        if op in ORDER or op == "-":
            self.swap(*kids, operands=True)
        if op == "|":
            s, e = self.span(c)
            for k in kids:
                self.add("delete", s, e, self.of(k))

    def on_call_expr(self, c, kids):
        args = list(c.get_arguments())
        if c.spelling == "calloc":
            # The other order is the same, and more does no harm.
            self.enough = self.span(args[0])
            return
        for a, b in zip(args, args[1:]):
            if a.type.get_canonical().spelling == \
               b.type.get_canonical().spelling:
                self.swap(a, b)

    def on_integer_literal(self, c, kids):
        s, e = self.span(c)
        for step in ("+ 1", "- 1"):
            if step == "+ 1" and self.enough == (s, e):
                continue
            self.add("constant", s, e, f"({self.text[s:e]} {step})")

    def on_decl_ref_expr(self, c, kids):
        if c.referenced and c.referenced.kind == K.ENUM_CONSTANT_DECL:
            s, e = self.span(c)
            self.add("constant", s, e, f"({self.text[s:e]} + 1)")

    def on_init_list_expr(self, c, kids):
        for k in kids:
            if self.of(k).startswith((".", "[")):
                self.delete_item(k)
        rows = [k for k in kids if k.kind == K.INIT_LIST_EXPR]
        for row in rows:
            self.delete_item(row)
        for a, b in zip(rows, rows[1:]):
            self.swap(a, b)


def short(text):
    text = normal(text)
    return text if len(text) <= 70 else text[:67] + "..."


def find(path, name, args):
    """Every mutant of one file, in the order of the file."""
    found = Finder(path, name, args).found
    return [found[k] for k in sorted(found)]


def apply(text, m):
    return text[:m.start] + m.new + text[m.end:]
