"""A key whose last part is one for all heads, as multi-head latent attention builds it.

before   k = concat(k_nope, broadcast(k_pe))        after   attention(q, k_nope, v, k_shared=k_pe)
The broadcast key is never built: the shared part is an operand of its own, read once a key.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.graph import Var
from poot.passes.attention.before import Zeroed, zeroed_view
from poot.passes.attention.views import Axis, View, view_of, whole
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class SplitKey:
    """The parts of a key as views with the axes of the whole: each head's own, and the shared.
    A part may be zeroed by itself."""

    own: Zeroed
    shared: Zeroed


def split_key(scope: Scope, key: View, *, zeroed: bool = False) -> SplitKey | None:
    """The parts of a key that is a concat along its width, whichever way its axes are turned. Where
    `zeroed`, selects to zero in a part are looked through."""
    eqn = scope.producer(key.base)
    if eqn is None or eqn.op != "concat" or len(eqn.ins) != 2 or key.factor != 1.0:
        return None
    rank = len(eqn.out.type.shape)
    if int_attr(eqn, "axis") != rank - 1 or rank < 2:
        return None
    at = _axes_of(key.axes, whole(key.base).axes)
    if at is None or at[-2] != rank - 1:
        return None
    own, shared = (_turned(scope, x, at, zeroed) for x in eqn.ins)
    return SplitKey(own, shared)


def _axes_of(axes: tuple[Axis, ...], base: tuple[Axis, ...]) -> tuple[int | None, ...] | None:
    """For each axis the axis of the base that it is, None for one of extent 1; None in all where
    an axis is not a whole one."""
    found = {axis: n for n, axis in enumerate(base) if axis}
    if any(axis and axis not in found for axis in axes):
        return None
    return tuple(found[axis] if axis else None for axis in axes)


def _turned(scope: Scope, x: Var, at: tuple[int | None, ...], zeroed: bool) -> Zeroed:
    found = zeroed_view(scope, x) if zeroed else Zeroed(view_of(scope, x))

    def turned(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(() if n is None else axes[n] for n in at)

    claims = tuple(c.on(turned(c.steps), turned(c.lies)) for c in found.claims)
    return Zeroed(View(found.view.base, turned(found.view.axes)), claims)
