"""cos and sin that are as wide as x hold every angle twice: their halves, where that is proved.

Each angle stands twice because a program concatenated a table with itself (half-split), repeated
each of its elements (interleaved), or computed it from such values element by element. A constant
array is compared byte by byte.
"""

from __future__ import annotations

import numpy as np

from poot.ir.attrs import int_attr
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Const, Eqn, Var
from poot.passes.engine import Scope
from poot.passes.regions.table import ELEMENTWISE

_DEEPEST = 24


def half_of(scope: Scope, v: Var, interleaved: bool, depth: int = 0) -> Var | None:
    """Half of v's last axis, where the other half is equal: v is (h, h), or h with each element
    twice if interleaved. None where that can't be proved."""
    width = v.type.shape[-1] if v.type.shape else 0
    if width < 2 or width % 2 or depth > _DEEPEST:
        return None
    given = scope.input(v)
    if given is not None:
        if not isinstance(given.storage, Const):
            return None
        return _cut(scope, v, interleaved) if _is_twice(v, given.storage, interleaved) else None
    eqn = scope.producer(v)
    if eqn is None:
        return None
    if eqn.op == "const":
        shape = (*v.type.shape[:-1], width // 2)
        return scope.emit("const", shape=shape, dtype=v.type.dtype, value=eqn.attr("value"))
    found = _joined(eqn, interleaved) or _repeated(scope, eqn, interleaved)
    if found is not None:
        return found
    if eqn.op in ELEMENTWISE and len(eqn.outs) == 1:
        return _each(scope, eqn, interleaved, depth)
    return _moved(scope, eqn, interleaved, depth)


def _cut(scope: Scope, v: Var, interleaved: bool) -> Var:
    """The first half of v's last axis, or its even elements."""
    shape = v.type.shape
    stop = shape[-1] - 1 if interleaved else shape[-1] // 2
    return scope.emit(
        "slice",
        v,
        start=(0,) * len(shape),
        stop=(*shape[:-1], stop),
        step=(*(1,) * (len(shape) - 1), 2 if interleaved else 1),
    )


def _is_twice(v: Var, storage: Const, interleaved: bool) -> bool:
    held = DTYPES[v.type.dtype].numpy
    bits = np.frombuffer(storage.data, f"u{held.itemsize}").reshape(v.type.shape)
    half = v.type.shape[-1] // 2
    if interleaved:
        return bool((bits[..., 0::2] == bits[..., 1::2]).all())
    return bool((bits[..., :half] == bits[..., half:]).all())


def _joined(eqn: Eqn, interleaved: bool) -> Var | None:
    """h of concat(h, h)."""
    if interleaved or eqn.op != "concat" or len(eqn.ins) != 2 or eqn.ins[0] != eqn.ins[1]:
        return None
    return eqn.ins[0] if int_attr(eqn, "axis") == len(eqn.out.type.shape) - 1 else None


def _repeated(scope: Scope, eqn: Eqn, interleaved: bool) -> Var | None:
    """h of a value with each of h's elements twice, or of all of h twice, by reshape, broadcast and
    reshape."""
    wide = scope.producer(eqn.ins[0]) if eqn.op == "reshape" else None
    if wide is None or wide.op != "broadcast":
        return None
    *lead, width = eqn.out.type.shape
    half = width // 2
    twice = (*lead, half, 2) if interleaved else (*lead, 2, half)
    x = wide.ins[0]
    once = (half, 1) if interleaved else (1, half)
    shape = x.type.shape
    if wide.out.type.shape != twice or len(shape) < 2 or shape[-2:] != once:
        return None
    return scope.emit("reshape", x, shape=(*shape[:-2], half))


def _each(scope: Scope, eqn: Eqn, interleaved: bool, depth: int) -> Var | None:
    """The same op of the operands' halves; an operand that the op stretches stays."""
    ins: list[Var] = []
    for x in eqn.ins:
        if not x.type.shape or x.type.shape[-1] == 1:
            ins.append(x)
            continue
        half = half_of(scope, x, interleaved, depth + 1)
        if half is None:
            return None
        ins.append(half)
    return scope.emit(eqn.op, *ins, **dict(eqn.attrs))


def _moved(scope: Scope, eqn: Eqn, interleaved: bool, depth: int) -> Var | None:
    """A move that leaves the last axis alone, of the operand's half; a gather of rows, cut."""
    x = eqn.ins[0] if eqn.ins else None
    width = eqn.out.type.shape[-1]
    if x is None or not x.type.shape or x.type.shape[-1] != width:
        return None
    shape = (*eqn.out.type.shape[:-1], width // 2)
    if eqn.op in ("reshape", "broadcast"):
        half = half_of(scope, x, interleaved, depth + 1)
        return half and scope.emit(eqn.op, half, shape=shape)
    if eqn.op in ("gather", "dynamic_slice") and int_attr(eqn, "axis") != len(x.type.shape) - 1:
        half = half_of(scope, x, interleaved, depth + 1)
        return half and scope.emit(eqn.op, half, *eqn.ins[1:], **dict(eqn.attrs))
    return None
