"""Folding and ranking along axes."""

from __future__ import annotations

import numpy as np

from poot.ir.dtypes import is_float
from poot.oracle.rows import At, row


@row("reduce")
def reduce(at: At, x: np.ndarray, *, kind: str, axis: tuple[int, ...], keepdim: bool) -> np.ndarray:
    """A float sum is held in f32 (f64 in f64 mode) and rounded once; an integer one wraps."""
    wide = at.wide(x) if is_float(at.ins[0].dtype) else x
    if kind == "sum":
        return at.held(np.sum(wide, axis, dtype=wide.dtype, keepdims=keepdim))
    fold = np.max if kind == "max" else np.min
    return at.held(fold(wide, axis, keepdims=keepdim))


@row("argmax")
def argmax(at: At, x: np.ndarray, *, axis: int) -> np.ndarray:
    """numpy ranks NaN first: here it is set to -inf, and where that wins the first number does."""
    if not is_float(at.ins[0].dtype):
        return at.held(np.argmax(x, axis))
    wide = at.wide(x)
    empty = np.isnan(wide)
    best: np.ndarray = np.argmax(np.where(empty, -np.inf, wide), axis, keepdims=True)
    first: np.ndarray = np.argmax(~empty, axis, keepdims=True)
    won_by_nan: np.ndarray = np.take_along_axis(empty, best, axis)
    index = np.where(won_by_nan, first, best)
    return at.held(index.reshape(at.outs[0].shape))


@row("topk")
def topk(at: At, x: np.ndarray, *, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A stable sort of the negated values: ties keep their order, and numpy sorts NaN last."""
    wide = at.wide(x) if is_float(at.ins[0].dtype) else x.astype(np.int64)
    order = np.argsort(-wide, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), at.held(order, 1)
