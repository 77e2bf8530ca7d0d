"""Functions that fold or rank along axes."""

from __future__ import annotations

from poot.ops.array import Array, Axes, emit, emit_many, normal_axis, reduce, reshape
from poot.ops.array import mean as mean
from poot.ops.array import power as power
from poot.ops.record import refuse


def sum(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """The sum over axes (all where None), held in f32 for floats."""
    return reduce("sum", x, axis, keepdims)


def max(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """The largest over axes (all where None); NaN if any is NaN."""
    return reduce("max", x, axis, keepdims)


def min(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """The least over axes (all where None); NaN if any is NaN."""
    return reduce("min", x, axis, keepdims)


def _need_bools(op: str, x: Array) -> None:
    if x.dtype != "bool":
        refuse(op, "bools", "Write x != 0", x=x.type)


def any(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether one of them is true; of none at all, false."""
    _need_bools("any", x)
    return reduce("sum", x.astype("i32"), axis, keepdims) != 0


def all(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    """Whether every one is true; of none at all, true."""
    _need_bools("all", x)
    return reduce("sum", (~x).astype("i32"), axis, keepdims) == 0


def argmax(x: Array, axis: int | None = None) -> Array:
    """i32 index of the largest along axis (of the flat array where None); the lower on ties, NaN
    last."""
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    return emit("argmax", x, axis=normal_axis("argmax", axis, x.ndim))


def topk(x: Array, k: int) -> tuple[Array, Array]:
    """(values, i32 indices) of the k largest of the last axis, descending; the lower index first on
    ties, NaN last."""
    values, indices = emit_many("topk", x, k=k)
    return values, indices
