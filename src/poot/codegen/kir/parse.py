"""Reads a kernel's text. The grammar is shown at the head of `text`."""

from __future__ import annotations

import math
from typing import cast

from poot.codegen.kir.nodes import (
    ELEMENT_BYTES,
    Blob,
    For,
    Frag,
    If,
    Imm,
    Ins,
    Kernel,
    Lit,
    Operand,
    Param,
    Reg,
    Role,
    Roles,
    Shared,
    Stmt,
    Token,
    Ty,
    Type,
    While,
)
from poot.codegen.kir.ops import KIR_OPS
from poot.ir.tokens import Cursor

# Operands written as mem[index]: for each op the attributes that name the memory of its first
# operands.
SUBSCRIPTS: dict[str, tuple[str, ...]] = {
    "load": ("mem",),
    "prefetch": ("mem",),
    "store": ("mem",),
    "atomic": ("mem",),
    "cp_async": ("dst", "mem"),
    "mbar_init": ("mem",),
    "mbar_arrive": ("mem",),
    "mbar_wait": ("mem",),
    "tma_load": ("dst", "mem"),
    "tma_store": ("mem",),
    "frag_load": ("mem",),
    "frag_store": ("mem",),
    "wgmma": ("a", "b"),
}
_WORD_VALUES: dict[str, object] = {"true": True, "false": False, "none": None}
_LANES = (2, 4, 8, 16)
_BLOB_FIELDS = {"dtype", "box", "swizzle"}


class _Parser:
    def __init__(self, text: str) -> None:
        self.at = Cursor(text)
        self.regs: dict[str, Reg] = {}

    # Marks and numbers

    def word(self, expected: str) -> str:
        return self.at.take("word", expected).text

    def keyword(self, text: str) -> None:
        if self.at.here.kind != "word" or self.at.here.text != text:
            self.at.fail(repr(text))
        self.at.next()

    def has_word(self, text: str) -> bool:
        found = self.at.here.kind == "word" and self.at.here.text == text
        if found:
            self.at.next()
        return found

    def integer(self, expected: str = "a whole number") -> int:
        return int(self.at.take("int", expected).text)

    def named_int(self, name: str) -> int:
        self.keyword(name)
        self.at.mark("=")
        return self.integer()

    def open(self) -> None:
        self.at.mark("{")
        self.at.end_line()

    # Types and operands

    def type(self) -> Type:
        name = self.word("a type")
        if name == "frag":
            return self.frag()
        if name == "token":
            self.at.mark("[")
            kind = self.word("a kind of token")
            self.at.mark("]")
            return Token(kind)
        if name in ELEMENT_BYTES:
            return Ty(name)
        dtype, mark, lanes = name.rpartition("x")
        if not mark or dtype not in ELEMENT_BYTES or lanes not in [str(n) for n in _LANES]:
            self.at.broken(f"there is no type {name!r}", self.at.here.line)
        return Ty(dtype, int(lanes))

    def frag(self) -> Frag:
        self.at.mark("[")
        family = self.word("a frag's family")
        self.at.mark(",")
        role = self.word("a frag's role")
        self.at.mark(",")
        m = self.integer()
        self.at.mark(",")
        n = self.integer()
        self.at.mark(",")
        dtype = self.word("a dtype")
        self.at.mark("]")
        return Frag(family, role, m, n, dtype)

    def number(self) -> int | float:
        token = self.at.next()
        if token.kind == "int":
            return int(token.text)
        value = float(token.text)
        return math.nan if value != value else value

    def operand(self) -> Operand:
        here = self.at.here
        if here.kind in ("int", "float"):
            value: int | float | bool = self.number()
            plain = "i32" if here.kind == "int" else "f32"
        elif here.kind == "word" and here.text in ("true", "false"):
            value, plain = self.at.next().text == "true", "bool"
        else:
            name = self.word("a register or a number")
            if name not in self.regs:
                self.at.fail("a register written before", here)
            return self.regs[name]
        if not self.at.has_mark(":"):
            return Lit(value, Ty(plain))
        type = self.type()
        if not isinstance(type, Ty):
            self.at.fail("a scalar or vector type", here)
        return Lit(value, type)

    def value(self) -> object:
        here = self.at.here
        if here.kind in ("int", "float"):
            return self.number()
        if here.kind == "string":
            return self.at.next().text[1:-1]
        if self.at.has_mark("("):
            parts: list[object] = []
            while not self.at.has_mark(")"):
                parts.append(self.value())
                if not self.at.has_mark(","):
                    self.at.mark(")")
                    break
            return tuple(parts)
        word = self.word("a value")
        return _WORD_VALUES.get(word, word)

    # Statements

    def block(self) -> tuple[Stmt, ...]:
        """Statements up to the closing brace, which is passed."""
        body: list[Stmt] = []
        while not self.at.has_mark("}"):
            body.append(self.stmt())
        return tuple(body)

    def stmt(self) -> Stmt:
        first = self.at.take("word", "a statement")
        makers = {"if": self.if_, "for": self.for_, "while": self.while_, "roles": self.roles_}
        follows = self.at.here
        is_register = follows.kind == "mark" and follows.text in (":", "=", ",")
        if first.text in makers and not is_register:
            stmt = makers[first.text]()
        else:
            stmt = self.ins(first.text, is_register)
        self.at.end_line()
        return stmt

    def if_(self) -> If:
        cond = self.operand()
        self.open()
        then = self.block()
        orelse: tuple[Stmt, ...] = ()
        if self.has_word("else"):
            self.open()
            orelse = self.block()
        return If(cond, then, orelse)

    def for_(self) -> For:
        name = self.word("a loop's register")
        self.at.mark(":")
        var = self.regs[name] = Reg(name, self.type())
        self.at.mark("=")
        start = self.operand()
        self.at.mark(",")
        stop = self.operand()
        self.at.mark(",")
        step = self.operand()
        unroll = self.named_int("unroll") if self.at.here.text == "unroll" else None
        self.open()
        return For(var, start, stop, step, self.block(), unroll)

    def while_(self) -> While:
        self.open()
        head = self.block()
        cond = self.operand()
        self.open()
        return While(head, cond, self.block())

    def roles_(self) -> Roles:
        self.open()
        roles: list[Role] = []
        while not self.at.has_mark("}"):
            name = self.word("a role's name")
            first, count, regs = (self.named_int(n) for n in ("first", "count", "regs"))
            self.open()
            roles.append(Role(name, first, count, regs, self.block()))
            self.at.end_line()
        return Roles(tuple(roles))

    def dst(self, name: str) -> Reg:
        is_var = name == "var" and self.at.here.kind == "word"
        if is_var:
            name = self.word("a register")
        if self.at.has_mark(":"):
            reg = self.regs[name] = Reg(name, self.type(), is_var)
            return reg
        if name not in self.regs:
            self.at.fail(f"the type of {name}, at its first line")
        return self.regs[name]

    def ins(self, first: str, is_register: bool) -> Ins:
        dsts: list[Reg] = []
        op = first
        if is_register or (first == "var" and self.at.here.kind == "word"):
            dsts.append(self.dst(first))
            while self.at.has_mark(","):
                dsts.append(self.dst(self.word("a register")))
            self.at.mark("=")
            op = self.word("an op")
        if op not in KIR_OPS:
            self.at.broken(f"there is no op {op!r}", self.at.here.line)
        attrs: dict[str, object] = {attr: None for attr in KIR_OPS[op].attrs}
        args = self.args(op, attrs)
        while self.at.here.kind == "word":
            name = self.at.next().text
            if name not in attrs:
                self.at.fail(f"an attribute of {op}: {', '.join(attrs) or 'it has none'}")
            self.at.mark("=")
            attrs[name] = self.value()
        return Ins(op, tuple(dsts), tuple(args), tuple(attrs.items()))

    def args(self, op: str, attrs: dict[str, object]) -> list[Operand]:
        args: list[Operand] = []
        here = self.at.here
        # An attribute is a word with '=' behind it; an op with attributes and no operands starts
        # with one.
        while here.kind in ("int", "float") or (here.kind == "word" and not self.at.is_next("=")):
            if here.kind == "word" and self.at.is_next("["):
                name = self.at.next().text
                subscripts = SUBSCRIPTS.get(op, ())
                if len(args) >= len(subscripts):
                    self.at.fail(f"no memory as operand {len(args) + 1} of {op}", here)
                attrs[subscripts[len(args)]] = name
                self.at.mark("[")
                args.append(self.operand())
                self.at.mark("]")
            else:
                args.append(self.operand())
            if not self.at.has_mark(","):
                break
            here = self.at.here
        return args

    # The kernel around

    def sized(self) -> tuple[str, str, int]:
        """`name: dtype[elems]`."""
        name = self.word("a name")
        self.at.mark(":")
        dtype = self.word("a dtype")
        self.at.mark("[")
        elems = self.integer()
        self.at.mark("]")
        return name, dtype, elems

    def blob(self) -> Blob:
        name, _, nbytes = self.sized()
        align = self.named_int("align")
        extra: dict[str, object] = {}
        while self.at.here.kind == "word":
            key = self.word("dtype, box or swizzle")
            self.at.mark("=")
            extra[key] = self.value()
        dtype, box, swizzle = extra.get("dtype", ""), extra.get("box", ()), extra.get("swizzle")
        if not isinstance(box, tuple) or not isinstance(dtype, str) or set(extra) - _BLOB_FIELDS:
            self.at.fail("dtype, box and swizzle of a blob")
        edges = cast("tuple[object, ...]", box)  # isinstance says no more than tuple
        sizes = tuple(e for e in edges if isinstance(e, int))
        return Blob(name, nbytes, align, dtype, sizes, None if swizzle is None else str(swizzle))

    def kernel(self) -> Kernel:
        self.at.skip_lines()
        self.keyword("kernel")
        name = self.word("the kernel's name")
        threads = self.named_int("threads")
        width = self.named_int("subgroup") if self.at.here.text == "subgroup" else None
        held = self.named_int("residents") if self.at.here.text == "residents" else None
        self.open()
        params: list[Param] = []
        imms: list[Imm] = []
        blobs: list[Blob] = []
        shared: list[Shared] = []
        while self.at.here.text in ("param", "imm", "blob", "shared"):
            kind = self.at.next().text
            if kind == "param":
                found = self.sized()
                params.append(Param(*found, self.word("r, w or rw"), self.named_int("align")))
            elif kind == "imm":
                imm = self.word("a name")
                self.at.mark(":")
                imms.append(Imm(imm, self.word("a dtype")))
            elif kind == "blob":
                blobs.append(self.blob())
            else:
                shared.append(Shared(*self.sized(), self.named_int("align")))
            self.at.end_line()
        body = self.block()
        self.at.end_line()
        if self.at.here.kind != "end":
            self.at.fail("the end of the text")
        declared = (tuple(params), tuple(imms), tuple(blobs), tuple(shared))
        return Kernel(name, *declared, threads, width, body, held)


def parse(text: str) -> Kernel:
    """The kernel that the text shows. Raises ParseError with the line, what was expected and what
    stood there.
    """
    return _Parser(text).kernel()
