"""Casts: none that change nothing, none over one that loses nothing, and each below the moves.

before   b = cast(a) f32  c = cast(b) f16  (a: f16)     after   a
before   b = cast(a) f32  c = transpose(b)              after   b = transpose(a)  c = cast(b) f32
"""

from __future__ import annotations

from poot.ir.attrs import str_attr
from poot.ir.dtypes import is_float, is_integer
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope, rule

# What each dtype holds without loss.
_HOLDS: dict[str, tuple[str, ...]] = {
    "f32": ("f16", "bf16", "f8e4m3", "i8", "u8", "bool"),
    "f16": ("f8e4m3", "i8", "u8", "bool"),
    "bf16": ("f8e4m3", "i8", "u8", "bool"),
    "i32": ("i8", "u8", "bool"),
    "u32": ("u8", "bool"),
    "i8": ("bool",),
    "u8": ("bool",),
}


@rule("cast")
def no_change(eqn: Eqn, scope: Scope) -> Var | None:
    """A cast to the operand's own dtype is the operand."""
    return eqn.ins[0] if eqn.ins[0].type == eqn.out.type else None


@rule("cast")
def over_exact(eqn: Eqn, scope: Scope) -> Var | None:
    """A cast of a cast that loses nothing is one cast."""
    inner = scope.producer(eqn.ins[0])
    if inner is None or inner.op != "cast":
        return None
    x, middle = inner.ins[0], inner.out.type.dtype
    outer = str_attr(eqn, "dtype")
    if x.type.dtype not in _HOLDS.get(middle, ()):
        return None
    if is_integer(x.type.dtype) and is_float(middle) and is_integer(outer):
        return None  # through a float an integer saturates, straight it wraps
    return scope.emit("cast", x, dtype=outer)


@rule("reshape", "transpose", "slice")
def sink(eqn: Eqn, scope: Scope) -> Var | None:
    """A move of a cast that nothing else reads is a cast of a move."""
    inner = scope.producer(eqn.ins[0])
    if inner is None or inner.op != "cast":
        return None
    if not scope.is_read_once(eqn.ins[0]):
        return None
    moved = scope.emit(eqn.op, inner.ins[0], **dict(eqn.attrs))
    return scope.emit("cast", moved, dtype=inner.out.type.dtype)


CASTS = (no_change, over_exact, sink)
