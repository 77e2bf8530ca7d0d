"""Where the elements of a value lie in the value it was moved from.

Reshapes, transposes and broadcasts are followed back to the value that they move. Each axis is then
a row of (extent, stride) pairs, the outermost first, strides in elements of that value; a repeated
axis has stride 0. So a head repeated n times in a row is an axis ((Hkv, L * D), (n, 0)), however it
was spelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.attrs import ints_attr
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope
from poot.passes.facts import is_float_cast, is_widening, number_of

Axis = tuple[tuple[int, int], ...]
MOVES = ("reshape", "transpose", "broadcast")
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class View:
    """A value as elements of `base`, each times `factor`. An axis of extent 1 is ()."""

    base: Var
    axes: tuple[Axis, ...]
    factor: float = 1.0


def whole(var: Var) -> View:
    """A value as itself, in row-major order."""
    axes: list[Axis] = []
    stride = var.type.elems
    for extent in var.type.shape:
        stride //= max(extent, 1)
        axes.append(((extent, stride),) if extent != 1 else ())
    return View(var, tuple(axes))


def view_of(scope: Scope, var: Var, *, scaled: bool = False, rounded: bool = False) -> View:
    """What var is a view of. Casts that lose nothing are followed too; where `rounded` those that
    round as well, where `scaled` multiplications by a number."""
    base, steps = steps_to(scope, var, scaled=scaled, rounded=rounded)
    view = whole(base)
    for eqn in reversed(steps):
        if eqn.op in MOVES:
            axes = moved(eqn, view.axes)  # None: no longer rows of pairs; begin again here
            view = whole(eqn.out) if axes is None else View(view.base, axes, view.factor)
        elif eqn.op != "cast":
            view = View(view.base, view.axes, view.factor * (factor_of(scope, eqn) or 1.0))
    return view


def steps_to(
    scope: Scope, var: Var, *, scaled: bool = False, rounded: bool = False
) -> tuple[Var, list[Eqn]]:
    """(base, the eqns that `view_of` follows from var back to it, the last of them first)."""
    steps: list[Eqn] = []
    while len(steps) < _LONGEST:
        eqn = scope.producer(var)
        if eqn is None or not _is_followed(scope, eqn, scaled, rounded):
            break
        steps.append(eqn)
        var = eqn.ins[0]
    return var, steps


def _is_followed(scope: Scope, eqn: Eqn, scaled: bool, rounded: bool) -> bool:
    if eqn.op in MOVES or is_widening(eqn) or (rounded and is_float_cast(eqn)):
        return True
    return scaled and factor_of(scope, eqn) is not None


def factor_of(scope: Scope, eqn: Eqn) -> float | None:
    """The number that eqn multiplies its first operand by, where it only does that."""
    if eqn.op not in ("mul", "div") or not is_float(eqn.out.type.dtype):
        return None
    if eqn.ins[0].type != eqn.out.type:
        return None
    by = number_of(scope, eqn.ins[1])
    if by is None or not math.isfinite(by) or by == 0.0:
        return None
    return by if eqn.op == "mul" else 1.0 / by


def moved(eqn: Eqn, axes: tuple[Axis, ...]) -> tuple[Axis, ...] | None:
    """The axes after a move, or None where they are no longer such rows of pairs."""
    shape = eqn.out.type.shape
    if eqn.op == "transpose":
        return tuple(axes[p] for p in ints_attr(eqn, "perm"))
    if eqn.op == "broadcast":
        return stretched(axes, shape)
    return _regrouped([pair for axis in axes for pair in axis], shape)


def stretched(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """The axes of a value as it is broadcast to that shape."""
    padded = ((),) * (len(shape) - len(axes)) + axes
    return tuple(
        ((n, 0),) if not axis and n != 1 else axis for axis, n in zip(padded, shape, strict=True)
    )


def _regrouped(pairs: list[tuple[int, int]], shape: tuple[int, ...]) -> tuple[Axis, ...] | None:
    """The pairs, in order, as axes of those extents; a pair is split where an extent ends in it."""
    if 0 in shape:
        return None
    left = list(reversed(pairs))
    axes: list[Axis] = []
    for extent in shape:
        axis: list[tuple[int, int]] = []
        while extent > 1:
            n, stride = left.pop()
            if extent % n == 0:
                axis.append((n, stride))
                extent //= n
            elif n % extent == 0:
                axis.append((extent, stride * (n // extent)))
                left.append((n // extent, stride))
                extent = 1
            else:
                return None
        axes.append(joined(tuple(axis)))
    return tuple(axes)


def joined(axis: Axis) -> Axis:
    """The same axis with neighbours that are one run of elements, or one repeat, as one pair."""
    out: list[tuple[int, int]] = []
    for n, stride in axis:
        if out and (out[-1][1] == n * stride):
            out[-1] = (out[-1][0] * n, stride)
        else:
            out.append((n, stride))
    return tuple(out)


def extent(axis: Axis) -> int:
    """How many elements lie along an axis."""
    return math.prod(n for n, _ in axis)


def lies_by_rows(view: View, shape: tuple[int, ...]) -> bool:
    """Whether the view, broadcast to that shape, gives the elements of each row (the last axis) the
    row's own element of the base, in order."""
    axes = ((),) * (len(shape) - len(view.axes)) + view.axes
    if not shape or len(axes) != len(shape) or any(stride for _, stride in axes[-1]):
        return False
    rows = math.prod(shape[:-1])
    if math.prod(extent(axis) for axis in axes[:-1]) != rows or view.base.type.elems != rows:
        return False
    return joined(tuple(pair for axis in axes[:-1] for pair in axis)) in (((rows, 1),), ())


def written(scope: Scope, base: Var, shape: tuple[int, ...], axes: Axis) -> Var:
    """The base's elements as a value of that shape whose row-major order runs over `axes`, the
    pairs of a view, repeats among them. Emits a reshape, a transpose, a broadcast and a reshape, or
    those of them that move anything."""
    x = base
    real = [pair for pair in axes if pair[1] != 0]
    order = sorted(range(len(real)), key=lambda n: -real[n][1])
    if order != list(range(len(real))):
        x = reshaped(scope, x, tuple(real[n][0] for n in order))
        x = scope.emit("transpose", x, perm=tuple(order.index(n) for n in range(len(real))))
    if len(real) != len(axes):
        x = reshaped(scope, x, tuple(n if stride else 1 for n, stride in axes))
        x = scope.emit("broadcast", x, shape=tuple(n for n, _ in axes))
    return reshaped(scope, x, shape)


def reshaped(scope: Scope, x: Var, shape: tuple[int, ...]) -> Var:
    """x under another shape; x itself where it has it."""
    return x if x.type.shape == shape else scope.emit("reshape", x, shape=shape)
