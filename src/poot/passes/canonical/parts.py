"""Parts: slices, concats, and gathers whose indices are known.

before   b = slice(a) c = slice(b)                         after   c = slice(a)
before   b = slice(a) [:2]  c = slice(a) [2:]  concat      after   a
before   concat(a, a, a) along an axis of extent 1         after   broadcast(a)
before   gather(a) by [0, 0, 1, 1, 2, 2]                   after   reshape, broadcast, reshape
"""

from __future__ import annotations

import numpy as np

from poot.ir.attrs import int_attr, ints_attr
from poot.ir.graph import Eqn, Var
from poot.passes.canonical.known import integers_of
from poot.passes.engine import Scope, rule


@rule("slice")
def whole_or_merged(eqn: Eqn, scope: Scope) -> Var | None:
    """A slice of everything is its operand; a slice of a slice is one slice."""
    x = eqn.ins[0]
    if x.type == eqn.out.type:
        return x
    inner = scope.producer(x)
    if inner is None or inner.op != "slice":
        return None
    a, s = ints_attr(inner, "start"), ints_attr(inner, "step")
    b, t = ints_attr(eqn, "start"), ints_attr(eqn, "step")
    start = tuple(p + q * m for p, q, m in zip(a, b, s, strict=True))
    step = tuple(m * n for m, n in zip(s, t, strict=True))
    return _sliced(scope, inner.ins[0], start, step, eqn.out.type.shape)


def _sliced(
    scope: Scope, x: Var, start: tuple[int, ...], step: tuple[int, ...], shape: tuple[int, ...]
) -> Var:
    """The slice of that shape, with the least stops; one index needs no step."""
    step = tuple(1 if n <= 1 else s for n, s in zip(shape, step, strict=True))
    start = tuple(0 if n == 0 else a for n, a in zip(shape, start, strict=True))
    ends = zip(start, step, shape, strict=True)
    stop = tuple(a + (n - 1) * s + 1 if n else a for a, s, n in ends)
    if (start, step, shape) == ((0,) * len(shape), (1,) * len(shape), x.type.shape):
        return x
    return scope.emit("slice", x, start=start, stop=stop, step=step)


@rule("slice")
def least_stop(eqn: Eqn, scope: Scope) -> Var | None:
    """Slices of the same elements have the same bounds."""
    start, step = ints_attr(eqn, "start"), ints_attr(eqn, "step")
    shape = eqn.out.type.shape
    got = _sliced(scope, eqn.ins[0], start, step, shape)
    last = scope.fresh[-1] if scope.fresh else None
    return None if last is not None and last.attrs == eqn.attrs else got


@rule("slice")
def of_one_operand(eqn: Eqn, scope: Scope) -> Var | None:
    """A slice of a concat that lies in one operand is a slice of that."""
    inner = scope.producer(eqn.ins[0])
    if inner is None or inner.op != "concat" or not eqn.out.type.elems:
        return None
    axis, first = int_attr(inner, "axis"), 0
    start, stop = list(ints_attr(eqn, "start")), list(ints_attr(eqn, "stop"))
    for x in inner.ins:
        size = x.type.shape[axis]
        if first <= start[axis] and stop[axis] <= first + size:
            start[axis] -= first
            step, shape = ints_attr(eqn, "step"), eqn.out.type.shape
            return _sliced(scope, x, tuple(start), step, shape)
        first += size
    return None


@rule("concat")
def flatten(eqn: Eqn, scope: Scope) -> Var | None:
    """No operand is empty, or a concat along the same axis that nothing else reads; one operand
    alone is itself."""
    axis = int_attr(eqn, "axis")
    ins: list[Var] = []
    for x in eqn.ins:
        inner = scope.producer(x)
        own = inner is not None and inner.op == "concat" and int_attr(inner, "axis") == axis
        if own and inner is not None and scope.is_read_once(x):
            ins.extend(inner.ins)
        elif x.type.shape[axis] or eqn.out.type.shape[axis] == 0:
            ins.append(x)
    if len(ins) == 1:
        return ins[0]
    return scope.emit("concat", *ins, axis=axis) if tuple(ins) != eqn.ins else None


@rule("concat")
def repeat(eqn: Eqn, scope: Scope) -> Var | None:
    """The same operand again and again along an axis of extent 1 is a broadcast."""
    axis, x = int_attr(eqn, "axis"), eqn.ins[0]
    if len(eqn.ins) < 2 or set(eqn.ins) != {x} or x.type.shape[axis] != 1:
        return None
    return scope.emit("broadcast", x, shape=eqn.out.type.shape)


@rule("concat")
def rejoin(eqn: Eqn, scope: Scope) -> Var | None:
    """Neighbouring slices of one value are one slice."""
    axis = int_attr(eqn, "axis")
    ins: list[Var] = [eqn.ins[0]]
    for x in eqn.ins[1:]:
        joined = _neighbours(scope, ins[-1], x, axis)
        ins = [*ins[:-1], joined] if joined is not None else [*ins, x]
    if len(ins) == len(eqn.ins):
        return None
    return ins[0] if len(ins) == 1 else scope.emit("concat", *ins, axis=axis)


def _neighbours(scope: Scope, a: Var, b: Var, axis: int) -> Var | None:
    """The slice that a and then b are, where they are slices of one value with step 1."""
    made = {o.id: e for e in scope.fresh for o in e.outs}
    p, q = made.get(a.id) or scope.producer(a), scope.producer(b)
    if p is None or q is None or p.op != "slice" or q.op != "slice" or p.ins != q.ins:
        return None
    starts, stops = ints_attr(p, "start"), ints_attr(p, "stop")
    others = [i for i in range(len(starts)) if i != axis]
    same = all(
        ints_attr(p, name)[i] == ints_attr(q, name)[i]
        for i in others
        for name in ("start", "stop", "step")
    )
    if not same or ints_attr(p, "step")[axis] != 1 or ints_attr(q, "step")[axis] != 1:
        return None
    if stops[axis] != ints_attr(q, "start")[axis]:
        return None
    shape = list(a.type.shape)
    shape[axis] += b.type.shape[axis]
    return _sliced(scope, p.ins[0], starts, ints_attr(p, "step"), tuple(shape))


@rule("gather")
def known_indices(eqn: Eqn, scope: Scope) -> Var | None:
    """A gather by indices in even steps is a slice; by each index n times in a row, a broadcast.
    The indices may have axes of their own: those come after, by a reshape."""
    x, index = eqn.ins
    axis = int_attr(eqn, "axis")
    found = integers_of(scope, index) if index.type.elems else None
    if found is None:
        return None
    extent = x.type.shape[axis]
    at = np.clip(found.reshape(-1), 0, extent - 1)
    steps = np.diff(at)
    if len(at) == 1 or (steps[0] > 0 and (steps == steps[0]).all()):
        step = int(steps[0]) if len(at) > 1 else 1
        rank = len(x.type.shape)
        starts = tuple(int(at[0]) if a == axis else 0 for a in range(rank))
        each = tuple(step if a == axis else 1 for a in range(rank))
        shape = (*x.type.shape[:axis], len(at), *x.type.shape[axis + 1 :])
        part = _sliced(scope, x, starts, each, shape)
        same = part.type == eqn.out.type
        return part if same else scope.emit("reshape", part, shape=eqn.out.type.shape)
    times = len(at) // extent
    if times * extent != len(at) or not (at == np.repeat(np.arange(extent), times)).all():
        return None
    lead, rest = x.type.shape[: axis + 1], x.type.shape[axis + 1 :]
    apart = scope.emit("reshape", x, shape=(*lead, 1, *rest))
    wide = scope.emit("broadcast", apart, shape=(*lead, times, *rest))
    return scope.emit("reshape", wide, shape=eqn.out.type.shape)


PARTS = (whole_or_merged, least_stop, of_one_operand, flatten, repeat, rejoin, known_indices)
