"""Ops that move, make or rename elements, and compute nothing."""

from __future__ import annotations

import math

from poot.errors import need
from poot.ir.dtypes import DTYPES, is_integer
from poot.ir.graph import TensorType
from poot.ir.ops import op
from poot.ir.rules.elementwise import broadcast_shapes


@op("reshape", ins=1, attrs=("shape",))
def reshape(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    """The same elements in row-major order under another shape."""
    need(
        math.prod(shape) == x.elems and min(shape, default=0) >= 0,
        "as many elements",
        x=x,
        shape=shape,
    )
    return TensorType(x.dtype, shape)


@op("broadcast", ins=1, attrs=("shape",))
def broadcast(x: TensorType, *, shape: tuple[int, ...]) -> TensorType:
    """x stretched to shape: aligned at the right, extents of 1 repeat."""
    fits = len(shape) >= len(x.shape) and broadcast_shapes(x.shape, shape) == shape
    need(fits, "a shape that x stretches to", x=x, shape=shape)
    return TensorType(x.dtype, shape)


@op("transpose", ins=1, attrs=("perm",))
def transpose(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    """Axis i of the result is axis perm[i] of x."""
    need(sorted(perm) == list(range(len(x.shape))), "each axis of x once in perm", x=x, perm=perm)
    return TensorType(x.dtype, tuple(x.shape[p] for p in perm))


@op("slice", ins=1, attrs=("start", "stop", "step"))
def slice_(
    x: TensorType, *, start: tuple[int, ...], stop: tuple[int, ...], step: tuple[int, ...]
) -> TensorType:
    """x[start:stop:step] on every axis; 0 <= start <= stop <= extent, step > 0."""
    need(
        len(start) == len(stop) == len(step) == len(x.shape),
        "bounds for every axis",
        x=x,
        start=start,
    )
    ok = all(
        0 <= a <= b <= n and s > 0 for a, b, s, n in zip(start, stop, step, x.shape, strict=True)
    )
    need(ok, "0 <= start <= stop <= extent and step > 0", x=x, start=start, stop=stop, step=step)
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(start, stop, step, strict=True))
    return TensorType(x.dtype, shape)


@op("concat", ins=None, attrs=("axis",))
def concat(*xs: TensorType, axis: int) -> TensorType:
    """The operands one after another along axis."""
    need(len(xs) > 0, "at least one operand")
    need(0 <= axis < len(xs[0].shape), "an axis of the operands", axis=axis, x=xs[0])
    for x in xs[1:]:
        rest = x.shape[:axis] + x.shape[axis + 1 :] == xs[0].shape[:axis] + xs[0].shape[axis + 1 :]
        same = x.dtype == xs[0].dtype and len(x.shape) == len(xs[0].shape) and rest
        need(same, "operands alike but along axis", a=xs[0], b=x, axis=axis)
    extent = sum(x.shape[axis] for x in xs)
    return TensorType(xs[0].dtype, (*xs[0].shape[:axis], extent, *xs[0].shape[axis + 1 :]))


@op("iota", ins=0, attrs=("shape", "axis", "dtype"))
def iota(*, shape: tuple[int, ...], axis: int, dtype: str) -> TensorType:
    """Each element is its index along axis, exact."""
    need(
        dtype in DTYPES and is_integer(dtype) and DTYPES[dtype].nbytes == 4,
        "i32 or u32",
        dtype=dtype,
    )
    need(0 <= axis < len(shape), "an axis of shape", axis=axis, shape=shape)
    return TensorType(dtype, shape)


@op("const", ins=0, attrs=("shape", "dtype", "value"))
def const(*, shape: tuple[int, ...], dtype: str, value: float | int | bool) -> TensorType:
    """One number, known at trace time, in every element. Arrays are Const inputs."""
    need(dtype in DTYPES, "a known dtype", dtype=dtype)
    allowed = {"float": (int, float), "bool": (bool,)}.get(DTYPES[dtype].kind, (int,))
    need(type(value) in allowed, "a value of its dtype", dtype=dtype, value=value)
    return TensorType(dtype, shape)
