"""Functions that move elements, join and cut arrays, or make them from nothing."""

from __future__ import annotations

from collections.abc import Sequence

from poot.ops.array import Array, Axes, Operand, as_array, emit, normal_axes, normal_axis, operands
from poot.ops.array import flip as flip
from poot.ops.array import reshape as reshape
from poot.ops.record import current, refuse
from poot.ops.scalars import constant


def transpose(x: Array, perm: Sequence[int] | None = None) -> Array:
    """Axis i of the result is axis perm[i] of x; without perm, all axes reversed."""
    return x.transpose() if perm is None else x.transpose(perm)


def swapaxes(x: Array, a: int, b: int) -> Array:
    """Axes a and b exchanged."""
    return x.swapaxes(a, b)


def expand_dims(x: Array, axis: int) -> Array:
    """An axis of extent 1 that stands at `axis` of the result."""
    at = normal_axis("expand_dims", axis, x.ndim + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(x: Array, axis: Axes = None) -> Array:
    """x without axes of extent 1: those named, or all. Raises TypeRuleError where one is longer."""
    if axis is None:
        gone = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        gone = normal_axes("squeeze", axis, x.ndim)
    if any(x.shape[a] != 1 for a in gone):
        refuse("squeeze", "axes of extent 1", x=x.type, axis=axis)
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone))


def broadcast_to(x: Operand, shape: Sequence[int]) -> Array:
    """x stretched to shape: aligned at the right, extents of 1 repeat."""
    (array,) = operands("broadcast_to", x)
    return array if array.shape == tuple(shape) else emit("broadcast", array, shape=tuple(shape))


def repeat(x: Array, times: int, axis: int) -> Array:
    """Each element along axis `times` times in a row: [a, b] gives [a, a, b, b]."""
    at = normal_axis("repeat", axis, x.ndim)
    if times < 0:
        refuse("repeat", "0 times or more", times=times)
    if times == 1:
        return x
    apart = (*x.shape[: at + 1], 1, *x.shape[at + 1 :])
    wide = (*x.shape[: at + 1], times, *x.shape[at + 1 :])
    shape = (*x.shape[:at], x.shape[at] * times, *x.shape[at + 1 :])
    return reshape(broadcast_to(reshape(x, apart), wide), shape)


def concat(xs: Sequence[Operand], axis: int = 0) -> Array:
    """The arrays one after another along axis."""
    if not xs:
        refuse("concat", "at least one operand")
    arrays = operands("concat", *xs)
    if len(arrays) == 1:
        return arrays[0]
    return emit("concat", *arrays, axis=normal_axis("concat", axis, arrays[0].ndim))


def stack(xs: Sequence[Operand], axis: int = 0) -> Array:
    """The arrays side by side along a new axis."""
    if not xs:
        refuse("stack", "at least one operand")
    return concat([expand_dims(x, axis) for x in operands("stack", *xs)], axis)


def split(x: Array, parts: int | Sequence[int], axis: int = 0) -> tuple[Array, ...]:
    """x cut along axis into `parts` equal pieces, or into pieces of the extents given."""
    at = normal_axis("split", axis, x.ndim)
    extent = x.shape[at]
    if isinstance(parts, int):
        if parts <= 0 or extent % parts:
            refuse("split", "parts that divide the extent", x=x.type, parts=parts, axis=axis)
        sizes: Sequence[int] = [extent // parts] * parts
    else:
        sizes = parts
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        refuse(
            "split", "extents that add up to the axis", x=x.type, extents=tuple(sizes), axis=axis
        )
    out: list[Array] = []
    begin = 0
    for size in sizes:
        out.append(x[(*(slice(None),) * at, slice(begin, begin + size))])
        begin += size
    return tuple(out)


def iota(shape: Sequence[int], axis: int = 0, dtype: str = "i32") -> Array:
    """Each element is its index along axis, exact (i32 or u32)."""
    at = normal_axis("iota", axis, len(shape))
    return emit("iota", recorder=current("iota"), shape=tuple(shape), axis=at, dtype=dtype)


def arange(start: int, stop: int | None = None, step: int = 1, dtype: str = "i32") -> Array:
    """start, start + step, ... before stop; arange(n) is 0 .. n-1."""
    if step == 0:
        refuse("arange", "a step other than 0")
    first, end = (0, start) if stop is None else (start, stop)
    x = iota((len(range(first, end, step)),), 0, dtype)
    x = x if step == 1 else x * step
    return x if first == 0 else x + first


def full(shape: Sequence[int], value: bool | int | float, dtype: str = "f32") -> Array:
    """One number in every element."""
    number = constant(value, dtype, "full")
    return emit("const", recorder=current("full"), shape=tuple(shape), dtype=dtype, value=number)


def zeros(shape: Sequence[int], dtype: str = "f32") -> Array:
    """0 (false) in every element."""
    return full(shape, False if dtype == "bool" else 0, dtype)


def ones(shape: Sequence[int], dtype: str = "f32") -> Array:
    """1 (true) in every element."""
    return full(shape, True if dtype == "bool" else 1, dtype)


def zeros_like(x: Array) -> Array:
    """0 in every element, of x's type."""
    return full_like(x, False if x.dtype == "bool" else 0)


def full_like(x: Array, value: bool | int | float) -> Array:
    """One number in every element, of x's type."""
    return broadcast_to(as_array(value, x.recorder, x.dtype, "full_like"), x.shape)


def one_hot(index: Array, extent: int, dtype: str = "f32") -> Array:
    """1 where a new last axis of `extent` equals index (i32), else 0; an index outside gives
    zeros."""
    last = emit("iota", recorder=index.recorder, shape=(extent,), axis=0, dtype="i32")
    hit = expand_dims(index, -1) == last
    return hit if dtype == "bool" else hit.astype(dtype)
