"""Ops that fold or rank along axes."""

from __future__ import annotations

from poot.errors import need
from poot.ir.dtypes import is_float
from poot.ir.graph import TensorType
from poot.ir.ops import op


@op("reduce", ins=1, attrs=("kind", "axis", "keepdim"))
def reduce(x: TensorType, *, kind: str, axis: tuple[int, ...], keepdim: bool) -> TensorType:
    """Folds the axes (ascending, unique) by kind "sum", "max" or "min". Float sums are held in f32;
    max and min give NaN if any element is NaN, and need at least one element."""
    need(kind in ("sum", "max", "min"), "kind sum, max or min", kind=kind)
    need(is_float(x.dtype) or x.dtype in ("i32", "u32"), "floats, i32 or u32", x=x)
    ok = list(axis) == sorted(set(axis)) and all(0 <= a < len(x.shape) for a in axis)
    need(ok, "ascending axes of x", x=x, axis=axis)
    need(
        kind == "sum" or all(x.shape[a] > 0 for a in axis),
        "at least one element to fold",
        x=x,
        axis=axis,
    )
    shape = tuple(1 if i in axis else n for i, n in enumerate(x.shape) if keepdim or i not in axis)
    return TensorType(x.dtype, shape)


@op("argmax", ins=1, attrs=("axis",))
def argmax(x: TensorType, *, axis: int) -> TensorType:
    """i32 index of the largest along axis, which goes; the lower index on ties, NaN last."""
    need(0 <= axis < len(x.shape) and x.shape[axis] > 0, "a non-empty axis of x", x=x, axis=axis)
    return TensorType("i32", x.shape[:axis] + x.shape[axis + 1 :])


@op("topk", ins=1, attrs=("k",))
def topk(x: TensorType, *, k: int) -> tuple[TensorType, TensorType]:
    """(values, i32 indices) of the k largest of the last axis, descending; the lower index first on
    ties, NaN last."""
    need(len(x.shape) > 0 and 0 < k <= x.shape[-1], "0 < k <= last extent", x=x, k=k)
    shape = (*x.shape[:-1], k)
    return TensorType(x.dtype, shape), TensorType("i32", shape)
