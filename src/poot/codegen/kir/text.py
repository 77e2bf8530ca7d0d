"""A kernel's text: `show` writes it, `parse` reads it, and parse(show(k)) == k. One kernel, one
text.

    kernel axpy threads=64 {
      param x: f32[1024] r align=16
      shared s: f32[64] align=16
      t1: i32 = lane                        # an immutable register is written once, with its type
      t2: f32 = load x[t1]
      var m_3: f32 = set 0.0                # a mutable one: `var` at its first line, no type after
      if t5 {
        m_3 = set t2
      } else {
      }
      for i_6: i32 = 0, 10, 1 unroll=4 {
      }
      while {                               # the head, its condition, the body
      } t7 {
      }
      roles {
        producer first=0 count=4 regs=40 {
        }
      }
    }

A number without a type is i32, f32 or bool by its look; others say it: `3:u32`, `0.5:f16`.
Attributes that are None are left out.
"""

from __future__ import annotations

from typing import cast

from poot.codegen.kir.nodes import (
    Blob,
    For,
    If,
    Ins,
    Kernel,
    Lit,
    Operand,
    Reg,
    Stmt,
    While,
)
from poot.codegen.kir.parse import SUBSCRIPTS, parse

__all__ = ["parse", "show", "show_stmt"]


def _literal(lit: Lit) -> str:
    value = lit.value
    text = repr(value).lower()
    plain = {bool: "bool", int: "i32", float: "f32"}.get(type(value))
    return text if str(lit.type) == plain else f"{text}:{lit.type}"


def show_operand(operand: Operand) -> str:
    """A register's name, or a number with its type where its look doesn't say it."""
    return operand.name if isinstance(operand, Reg) else _literal(operand)


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)  # isinstance says no more than tuple
        return f"({', '.join(_value(v) for v in parts)})"
    if isinstance(value, str):
        is_word = value.isidentifier() and value not in ("true", "false", "none", "inf", "nan")
        return value if is_word else f'"{value}"'
    assert isinstance(value, (int, float)), value
    return repr(value)


def _attrs(attrs: tuple[tuple[str, object], ...], skip: list[str]) -> str:
    shown = [f" {k}={_value(v)}" for k, v in attrs if v is not None and k not in skip]
    return "".join(shown)


class _Declared:
    """Which mutable registers the text has declared."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def is_first(self, name: str) -> bool:
        """Whether this is the register's first line."""
        first = name not in self._names
        self._names.add(name)
        return first


def _ins(ins: Ins, declared: _Declared) -> str:
    args = [show_operand(operand) for operand in ins.args]
    used: list[str] = []
    for at, attr in enumerate(SUBSCRIPTS.get(ins.op, ())[: len(args)]):
        mem = ins.attr(attr) if attr else None
        if isinstance(mem, str):
            used.append(attr)
            args[at] = f"{mem}[{args[at]}]"
    dsts: list[str] = []
    for dst in ins.dsts:
        if not dst.mutable:
            dsts.append(f"{dst.name}: {dst.type}")
        elif declared.is_first(dst.name):
            dsts.append(f"var {dst.name}: {dst.type}")
        else:
            dsts.append(dst.name)
    left = f"{', '.join(dsts)} = " if dsts else ""
    right = f" {', '.join(args)}" if args else ""
    attrs = _attrs(ins.attrs, used) if ins.attrs else ""
    return f"{left}{ins.op}{right}{attrs}"


def _block(body: tuple[Stmt, ...], declared: _Declared, depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    for stmt in body:
        if isinstance(stmt, Ins):
            lines.append(pad + _ins(stmt, declared))
        else:
            lines += _lines(stmt, declared, depth)
    return lines


def _lines(stmt: Stmt, declared: _Declared, depth: int) -> list[str]:
    pad = "  " * depth
    inner = depth + 1
    if isinstance(stmt, Ins):
        return [pad + _ins(stmt, declared)]
    if isinstance(stmt, If):
        lines = [f"{pad}if {show_operand(stmt.cond)} {{", *_block(stmt.then, declared, inner)]
        if stmt.orelse:
            lines += [f"{pad}}} else {{", *_block(stmt.orelse, declared, inner)]
        return [*lines, f"{pad}}}"]
    if isinstance(stmt, For):
        bounds = ", ".join(show_operand(x) for x in (stmt.start, stmt.stop, stmt.step))
        unroll = "" if stmt.unroll is None else f" unroll={stmt.unroll}"
        head = f"{pad}for {stmt.var.name}: {stmt.var.type} = {bounds}{unroll} {{"
        return [head, *_block(stmt.body, declared, inner), f"{pad}}}"]
    if isinstance(stmt, While):
        lines = [f"{pad}while {{", *_block(stmt.head, declared, inner)]
        lines += [f"{pad}}} {show_operand(stmt.cond)} {{", *_block(stmt.body, declared, inner)]
        return [*lines, f"{pad}}}"]
    lines = [f"{pad}roles {{"]
    for role in stmt.roles:
        head = f"{role.name} first={role.first} count={role.count} regs={role.registers}"
        lines += [f"{pad}  {head} {{", *_block(role.body, declared, depth + 2), f"{pad}  }}"]
    return [*lines, f"{pad}}}"]


def show_stmt(stmt: Stmt) -> str:
    """One statement as text, for messages: a block's first line."""
    return _lines(stmt, _Declared(), 0)[0]


def _blob(blob: Blob) -> str:
    text = f"blob {blob.name}: bytes[{blob.nbytes}] align={blob.align}"
    if blob.dtype or blob.box:
        text += f" dtype={blob.dtype} box={_value(blob.box)}"
    return text if blob.swizzle is None else f"{text} swizzle={_value(blob.swizzle)}"


def show(kernel: Kernel) -> str:
    """The kernel's whole text, the same bytes on every run."""
    width = "" if kernel.subgroup is None else f" subgroup={kernel.subgroup}"
    held = "" if kernel.residents is None else f" residents={kernel.residents}"
    lines = [f"kernel {kernel.name} threads={kernel.threads}{width}{held} {{"]
    lines += [
        f"  param {p.name}: {p.dtype}[{p.elems}] {p.access} align={p.align}" for p in kernel.params
    ]
    lines += [f"  imm {i.name}: {i.dtype}" for i in kernel.imms]
    lines += [f"  {_blob(b)}" for b in kernel.blobs]
    lines += [f"  shared {s.name}: {s.dtype}[{s.elems}] align={s.align}" for s in kernel.shared]
    lines += _block(kernel.body, _Declared(), 1)
    return "\n".join([*lines, "}", ""])
