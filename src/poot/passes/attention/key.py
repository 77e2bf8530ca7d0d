"""A key whose last part is one for all heads, as multi-head latent attention builds it.

before   k = concat(k_nope, broadcast(k_pe))        after   attention(q, k_nope, v, k_shared=k_pe)
The broadcast key is never built: the shared part is an operand of its own, read once a key.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.graph import Var
from poot.passes.attention.before import Zeroed, zeroed_view
from poot.passes.attention.views import Axis, View, joined, view_of, whole
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
    at = _places_of(key.axes, whole(key.base).axes)
    if at is None or at[-2] != (rank - 1,):
        return None
    own, shared = (_turned(scope, x, at, zeroed) for x in eqn.ins)
    return SplitKey(own, shared)


# What an axis runs over, the outermost first: whole axes of the base by number, and repeats as
# pairs of stride 0.
_Place = tuple[int | tuple[int, int], ...]


def _places_of(axes: tuple[Axis, ...], base: tuple[Axis, ...]) -> tuple[_Place, ...] | None:
    """What each axis runs over of the base; None where that is no whole axis."""
    found = {axis[0]: n for n, axis in enumerate(base) if axis}
    out: list[_Place] = []
    for axis in axes:
        if any(stride and (extent, stride) not in found for extent, stride in axis):
            return None
        out.append(tuple(found[pair] if pair[1] else pair for pair in axis))
    return tuple(out)


def _turned(scope: Scope, x: Var, at: tuple[_Place, ...], zeroed: bool) -> Zeroed:
    found = zeroed_view(scope, x) if zeroed else Zeroed(view_of(scope, x))

    def turned(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(joined(_run(place, axes)) for place in at)

    claims = tuple(c.on(turned(c.steps), turned(c.lies)) for c in found.claims)
    return Zeroed(View(found.view.base, turned(found.view.axes)), claims)


def _run(place: _Place, axes: tuple[Axis, ...]) -> Axis:
    """The pairs that a place runs over, the base's axes being these."""
    out: list[tuple[int, int]] = []
    for each in place:
        out += axes[each] if isinstance(each, int) else (each,)
    return tuple(out)
