"""Claims that a position comes before a limit: what a length, or a position of a step, lets count.

    t < len     t <= pos     len > t     not(t >= len)     t <= pos + r

A claim is followed from the comparison through every move to the axes of what it selects.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Var
from poot.passes.attention.hidden import conjuncts
from poot.passes.attention.views import (
    MOVES,
    Axis,
    View,
    factor_of,
    moved,
    steps_to,
    stretched,
    whole,
)
from poot.passes.engine import Scope
from poot.passes.facts import number_of

Axes = tuple[Axis, ...]
_DEEPEST = 8
_FARTHEST = 1 << 30  # no sum of positions and numbers below it wraps


@dataclass(frozen=True, slots=True)
class Before:
    """sum(index * stride of `steps`) < limit + at. `steps` has strides of the position along each
    axis, `lies` says which element of `limit` (i32) stands there."""

    steps: Axes
    limit: Var
    lies: Axes
    at: int

    def moved(self, eqn: Eqn) -> Before | None:
        """The claim after a move of what it is about."""
        steps, lies = moved(eqn, self.steps), moved(eqn, self.lies)
        return None if steps is None or lies is None else self.on(steps, lies)

    def stretched(self, shape: tuple[int, ...]) -> Before:
        """The claim where what it is about is broadcast to that shape."""
        return self.on(stretched(self.steps, shape), stretched(self.lies, shape))

    def on(self, steps: Axes, lies: Axes) -> Before:
        return Before(steps, self.limit, lies, self.at)


@dataclass(frozen=True, slots=True)
class Zeroed:
    """A view whose rows are zero but where every claim holds."""

    view: View
    claims: tuple[Before, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sum:
    """sum(index * stride of `steps`) + number + an element of `var`, if there is one."""

    steps: Axes
    number: int
    var: Var | None
    lies: Axes

    def moved(self, eqn: Eqn) -> _Sum | None:
        steps, lies = moved(eqn, self.steps), moved(eqn, self.lies)
        return None if steps is None or lies is None else self._on(steps, lies)

    def stretched(self, shape: tuple[int, ...]) -> _Sum:
        return self._on(stretched(self.steps, shape), stretched(self.lies, shape))

    def _on(self, steps: Axes, lies: Axes) -> _Sum:
        return _Sum(steps, self.number, self.var, lies)


_LESS = {"lt": (True, 0), "le": (True, 1), "gt": (False, 0), "ge": (False, 1)}
_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}


def before_of(scope: Scope, cond: Var, holds: bool, shape: tuple[int, ...]) -> Before | None:
    """What a condition, broadcast to that shape, claims where it holds, or where it doesn't; None
    where that is no such claim."""
    base, steps = steps_to(scope, cond)
    eqn = scope.producer(base)
    if eqn is None or eqn.op not in _LESS or eqn.ins[0].type.dtype != "i32":
        return None
    is_less, gap = _LESS[eqn.op if holds else _OPPOSITE[eqn.op]]
    sums = [_sum_of(scope, v, 0) for v in eqn.ins]
    low, high = (s and s.stretched(eqn.out.type.shape) for s in (sums if is_less else sums[::-1]))
    if low is None or high is None or low.var is not None or high.var is None:
        return None
    position = _added(low.steps, high.steps, -1)
    if position is None or not _is_near(low) or not _is_near(high):
        return None
    claim: Before | None = Before(position, high.var, high.lies, gap + high.number - low.number)
    for step in reversed(steps):
        claim = claim.moved(step) if claim is not None else None
    return claim and claim.stretched(shape)


def _is_near(x: _Sum) -> bool:
    reach = sum((n - 1) * abs(stride) for axis in x.steps for n, stride in axis)
    return reach + abs(x.number) < _FARTHEST


def _sum_of(scope: Scope, var: Var, depth: int) -> _Sum | None:
    base, steps = steps_to(scope, var)
    found = _leaf(scope, base, depth)
    for eqn in reversed(steps):
        found = found.moved(eqn) if found is not None else None
    return found


def _leaf(scope: Scope, base: Var, depth: int) -> _Sum | None:
    shape = base.type.shape
    still = stretched((), shape)
    eqn = scope.producer(base)
    if eqn is not None and eqn.op == "iota":
        axis = int_attr(eqn, "axis")
        steps = tuple(((n, int(a == axis)),) if n != 1 else () for a, n in enumerate(shape))
        return _Sum(steps, 0, None, still)
    if eqn is not None and eqn.op == "const":
        return _Sum(still, int(number_of(scope, base) or 0), None, still)
    if eqn is not None and eqn.op in ("add", "sub") and depth < _DEEPEST:
        both = _both(scope, eqn, depth)
        if both is not None:
            return both
    return _Sum(still, 0, base, whole(base).axes)


def _both(scope: Scope, eqn: Eqn, depth: int) -> _Sum | None:
    """The sum or difference of two sums of which one at the most has a var, which is not taken
    away."""
    sign = 1 if eqn.op == "add" else -1
    a, b = (_sum_of(scope, v, depth + 1) for v in eqn.ins)
    if a is None or b is None or (b.var is not None and (a.var is not None or sign < 0)):
        return None
    a, b = (x.stretched(eqn.out.type.shape) for x in (a, b))
    steps = _added(a.steps, b.steps, sign)
    if steps is None:
        return None
    with_var = a if b.var is None else b
    return _Sum(steps, a.number + sign * b.number, with_var.var, with_var.lies)


def _added(a: Axes, b: Axes, sign: int) -> Axes | None:
    """The strides of a sum or difference of positions; None where an axis is not one run."""
    out: list[Axis] = []
    for x, y in zip(a, b, strict=True):
        if len(x) > 1 or len(y) > 1:
            return None
        out.append(tuple((n, p + sign * q) for (n, p), (_, q) in zip(x, y, strict=True)))
    return tuple(out)


def zeroed_view(scope: Scope, var: Var, *, scaled: bool = False) -> Zeroed:
    """What var is a view of, as `view_of` says, through selects that put zero where a position is
    not before a limit. The claims have the axes of var."""
    base, steps = steps_to(scope, var, scaled=scaled)
    while (got := _zero_select(scope, base)) is not None:
        kept, eqn = got
        base, more = steps_to(scope, kept, scaled=scaled)
        steps += [eqn, *more]
    found = Zeroed(whole(base))
    for eqn in reversed(steps):
        found = _after(scope, eqn, found)
    return found


def _after(scope: Scope, eqn: Eqn, found: Zeroed) -> Zeroed:
    view, out = found.view, eqn.out.type.shape
    if eqn.op == "select":
        claim = _claim(scope, eqn)
        assert claim is not None
        view = View(view.base, stretched(view.axes, out), view.factor)
        return Zeroed(view, (*(c.stretched(out) for c in found.claims), claim))
    if eqn.op in MOVES:
        axes, claims = moved(eqn, view.axes), [c.moved(eqn) for c in found.claims]
        known = tuple(c for c in claims if c is not None)
        if axes is None or len(known) != len(claims):
            return Zeroed(whole(eqn.out))  # no longer rows of pairs; begin again here
        return Zeroed(View(view.base, axes, view.factor), known)
    if eqn.op == "cast":
        return found
    factor = view.factor * (factor_of(scope, eqn) or 1.0)
    return Zeroed(View(view.base, view.axes, factor), found.claims)


def _zero_select(scope: Scope, var: Var) -> tuple[Var, Eqn] | None:
    """(what a select keeps, the select) where it puts zero elsewhere, under one claim."""
    eqn = scope.producer(var)
    if eqn is None or eqn.op != "select" or _claim(scope, eqn) is None:
        return None
    return eqn.ins[1 if _keeps_first(scope, eqn) else 2], eqn


def _keeps_first(scope: Scope, eqn: Eqn) -> bool:
    return number_of(scope, eqn.ins[2]) == 0.0


def _claim(scope: Scope, eqn: Eqn) -> Before | None:
    """Where a select to zero keeps its value."""
    holds = _keeps_first(scope, eqn)
    if not holds and number_of(scope, eqn.ins[1]) != 0.0:
        return None
    claims = conjuncts(scope, eqn.ins[0], holds)
    if len(claims) != 1:
        return None
    return before_of(scope, *claims[0], eqn.out.type.shape)
