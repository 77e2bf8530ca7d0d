"""What integer values can be: forward interval analysis, exact in Python ints.

Known at the start: a slot with a declared range (every binder checks it), constants, iota. An op
without a transfer row gives "unknown", as does a result that may leave its dtype. An interval
remembers the witnesses of the index guards whose clamps its proof rests on: whoever must not let a
bad index pass as a good one asks that those are declared validations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from poot.ir.attrs import graph_attr, int_attr, ints_attr, number_attr, str_attr
from poot.ir.dtypes import DTYPES, is_integer
from poot.ir.graph import Const, Eqn, Graph, Input, Slot, TensorType


@dataclass(frozen=True, slots=True)
class Interval:
    """lo <= x <= hi for every element x. `guards` holds the ids of the witnesses it rests on."""

    lo: int
    hi: int
    guards: frozenset[int] = frozenset()

    def within(self, lo: int, hi: int) -> bool:
        """Whether every element lies in lo..hi, both included."""
        return lo <= self.lo and self.hi <= hi


Known = Interval | None
Transfer = Callable[[Eqn, Sequence[Interval]], Known]

_ROWS: dict[str, Transfer] = {}


def ranges(graph: Graph) -> dict[int, Known]:
    """For each bound id its interval, or None: not an integer, or unknown."""
    return _walk(graph, {i.var.id: input_interval(i) for i in graph.inputs})


def input_interval(i: Input) -> Known:
    """What is known of an input before any eqn: a slot's declared range, a constant's extremes."""
    type = i.var.type
    if not is_integer(type.dtype):
        return None
    match i.storage:
        case Slot(_, (lo, hi)):
            return _fitted(Interval(lo, hi - 1), type)
        case Const(data) if data:
            values = np.frombuffer(data, DTYPES[type.dtype].numpy)
            return Interval(int(values.min()), int(values.max()))
        case _:
            return None


def transfer(eqn: Eqn, ins: Sequence[Known]) -> tuple[Known, ...]:
    """The intervals of an eqn's outs, given those of its ins. None is unknown, both ways."""
    if eqn.op == "index_guard":
        return _index_guard(eqn, ins[0]), None
    if eqn.op == "topk":
        return ins[0], Interval(0, eqn.ins[0].type.shape[-1] - 1)
    if eqn.op == "region":
        return _region(eqn, ins)
    row = _ROWS.get(eqn.op)
    if row is None or not is_integer(eqn.outs[0].type.dtype):
        return (None,) * len(eqn.outs)
    whole = [known or _whole(v.type) for v, known in zip(eqn.ins, ins, strict=True)]
    return (_fitted(row(eqn, whole), eqn.outs[0].type),)


# Ops whose integers are those of an operand, or that can't leave their dtype.
_KEEP = (
    "index_guard", "topk", "argmax", "and", "or", "xor", "not", "iota", "const", "max", "min",
    "reshape", "broadcast", "transpose", "slice", "concat", "select", "gather", "dynamic_slice",
    "dynamic_update_slice", "scatter_update", "rem",
)  # fmt: skip


def may_wrap(eqn: Eqn, ins: Sequence[Known]) -> bool:
    """Whether an integer out of the eqn may be another number than exact arithmetic gives, for all
    that is known of its ins: one that leaves its dtype, or a float that is cut to it."""
    if eqn.op in _KEEP or not any(is_integer(v.type.dtype) for v in eqn.outs):
        return False
    if eqn.op == "reduce" and str_attr(eqn, "kind") != "sum":
        return False
    if eqn.op == "bitcast" and not is_integer(eqn.ins[0].type.dtype):
        return False  # the bits of a float are no number that was cut
    whole = [known or _whole(v.type) for v, known in zip(eqn.ins, ins, strict=True)]
    if eqn.op in ("shl", "shr") and not whole[1].within(0, 31):
        return True
    row = _ROWS.get(eqn.op)
    exact = row(eqn, whole) if row is not None else None
    return exact is None or not exact.within(*bounds(eqn.outs[0].type))


def bounds(type: TensorType) -> tuple[int, int]:
    """The least and greatest value of an integer or bool dtype."""
    if type.dtype == "bool":
        return 0, 1
    return _BOUNDS[type.dtype]


_BOUNDS = {
    name: (int(np.iinfo(row.numpy).min), int(np.iinfo(row.numpy).max))
    for name, row in DTYPES.items()
    if row.kind in ("int", "uint")
}


def _walk(graph: Graph, known: Mapping[int, Known]) -> dict[int, Known]:
    found = dict(known)
    for eqn in graph.eqns:
        outs = transfer(eqn, [found[v.id] for v in eqn.ins])
        found.update((v.id, got) for v, got in zip(eqn.outs, outs, strict=True))
    return found


def _whole(type: TensorType) -> Interval:
    """Everything that a dtype holds; of a float, nothing that a row reads."""
    return (
        Interval(*bounds(type))
        if type.dtype == "bool" or is_integer(type.dtype)
        else Interval(0, 0)
    )


def _fitted(known: Known, type: TensorType) -> Known:
    """known, or None where it says no more than the dtype does, or less."""
    lo, hi = bounds(type)
    if known is None or not known.within(lo, hi) or (known.lo, known.hi) == (lo, hi):
        return None
    return known


def _guards(ins: Sequence[Interval]) -> frozenset[int]:
    return frozenset[int]().union(*(i.guards for i in ins))


def _hull(ins: Sequence[Interval]) -> Known:
    if not ins:
        return None
    return Interval(min(i.lo for i in ins), max(i.hi for i in ins), _guards(ins))


def _index_guard(eqn: Eqn, x: Known) -> Known:
    lo, hi = int_attr(eqn, "lo"), int_attr(eqn, "hi") - 1
    if x is not None and x.within(lo, hi):
        return x
    least, most, guards = (lo, hi, frozenset[int]()) if x is None else (x.lo, x.hi, x.guards)
    clamped = Interval(min(max(least, lo), hi), min(max(most, lo), hi), guards | {eqn.outs[1].id})
    return _fitted(clamped, eqn.outs[0].type)


def _region(eqn: Eqn, ins: Sequence[Known]) -> tuple[Known, ...]:
    """The body's intervals. Guards from outside pass through as negative ids; those of the body are
    known outside only where their witness is an out."""
    body = graph_attr(eqn)
    seeds: dict[int, Known] = {}
    for i, known in zip(body.inputs, ins, strict=True):
        marked = known and replace(known, guards=frozenset(-1 - g for g in known.guards))
        seeds[i.var.id] = marked
    found = _walk(body, seeds)
    outside = {v.id: out.id for v, out in zip(body.outputs, eqn.outs, strict=True)}

    def lifted(known: Known) -> Known:
        if known is None or any(g >= 0 and g not in outside for g in known.guards):
            return None
        guards = frozenset(outside[g] if g >= 0 else -1 - g for g in known.guards)
        return replace(known, guards=guards)

    return tuple(lifted(found[v.id]) for v in body.outputs)


def _row(*ops: str) -> Callable[[Transfer], Transfer]:
    def add(row: Transfer) -> Transfer:
        _ROWS.update((op, row) for op in ops)
        return row

    return add


@_row("reshape", "broadcast", "transpose", "slice", "gather", "dynamic_slice")
def _moved(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    """Elements of the first operand; an index decides which, never what."""
    return ins[0]


@_row("concat")
def _joined(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _hull([i for v, i in zip(eqn.ins, ins, strict=True) if v.type.elems])


@_row("dynamic_update_slice", "scatter_update")
def _updated(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _hull(ins[:2])


@_row("select")
def _either(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _hull(ins[1:])


@_row("iota")
def _iota(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return Interval(0, max(ints_attr(eqn, "shape")[int_attr(eqn, "axis")] - 1, 0))


@_row("const")
def _const(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    value = int(number_attr(eqn, "value"))
    return Interval(value, value)


@_row("argmax")
def _argmax(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return Interval(0, eqn.ins[0].type.shape[int_attr(eqn, "axis")] - 1)


@_row("reduce")
def _reduce(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    x = ins[0]
    if str_attr(eqn, "kind") != "sum":
        return x
    count = 1
    for axis in ints_attr(eqn, "axis"):
        count *= eqn.ins[0].type.shape[axis]
    return Interval(count * x.lo, count * x.hi, x.guards)


@_row("cast", "bitcast")
def _cast(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    """Integers and bools keep their value where it fits; bits of one sign are the same number."""
    source = eqn.ins[0].type.dtype
    return ins[0] if source == "bool" or is_integer(source) else None


def _corners(ins: Sequence[Interval], fn: Callable[[int, int], int]) -> Interval:
    a, b = ins
    values = [fn(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return Interval(min(values), max(values), _guards(ins))


@_row("add")
def _add(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners(ins, lambda x, y: x + y)


@_row("sub")
def _sub(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners(ins, lambda x, y: x - y)


@_row("mul")
def _mul(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners(ins, lambda x, y: x * y)


@_row("min")
def _min(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners(ins, min)


@_row("max")
def _max(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners(ins, max)


def _quotient(x: int, y: int) -> int:
    """x / y cut toward zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


@_row("div")
def _div(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    """The divisor's negative and positive parts apart; by zero gives 0."""
    a, b = ins
    parts: list[Interval] = []
    if b.lo < 0:
        parts.append(_corners((a, Interval(b.lo, min(b.hi, -1))), _quotient))
    if b.hi > 0:
        parts.append(_corners((a, Interval(max(b.lo, 1), b.hi)), _quotient))
    if b.lo <= 0 <= b.hi:
        parts.append(Interval(0, 0))
    hull = _hull(parts)
    return hull and replace(hull, guards=_guards(ins))


@_row("rem")
def _rem(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    """The dividend's sign, less than the divisor in magnitude; of zero, 0."""
    a, b = ins
    if (b.lo > 0 or b.hi < 0) and max(abs(a.lo), abs(a.hi)) < min(abs(b.lo), abs(b.hi)):
        return replace(a, guards=_guards(ins))
    most = max(abs(b.lo), abs(b.hi), 1) - 1
    lo = -min(most, -a.lo) if a.lo < 0 else 0
    hi = min(most, a.hi) if a.hi > 0 else 0
    return Interval(lo, hi, _guards(ins))


@_row("neg")
def _neg(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return Interval(-ins[0].hi, -ins[0].lo, ins[0].guards)


@_row("abs")
def _abs(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    x = ins[0]
    least = 0 if x.lo <= 0 <= x.hi else min(abs(x.lo), abs(x.hi))
    return Interval(least, max(abs(x.lo), abs(x.hi)), x.guards)


@_row("not")
def _not(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    top = sum(bounds(eqn.outs[0].type))  # -1 on i32, the greatest on u32
    return Interval(top - ins[0].hi, top - ins[0].lo, ins[0].guards)


@_row("and")
def _and(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    """No bit but those of an operand that can't be negative."""
    tops = [i.hi for i in ins if i.lo >= 0]
    return Interval(0, min(tops), _guards(ins)) if tops else None


@_row("or", "xor")
def _or(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    if any(i.lo < 0 for i in ins):
        return None
    least = max(i.lo for i in ins) if eqn.op == "or" else 0
    return Interval(least, (1 << max(i.hi for i in ins).bit_length()) - 1, _guards(ins))


def _shift(by: Interval) -> Interval:
    """The low five bits of a shift count."""
    return by if by.within(0, 31) else Interval(0, 31, by.guards)


@_row("shl")
def _shl(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners((ins[0], _shift(ins[1])), lambda x, y: x << y)


@_row("shr")
def _shr(eqn: Eqn, ins: Sequence[Interval]) -> Known:
    return _corners((ins[0], _shift(ins[1])), lambda x, y: x >> y)
