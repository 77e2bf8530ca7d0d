"""Moving, making and renaming elements. Views where numpy can give them."""

from __future__ import annotations

import numpy as np

from poot.ir.dtypes import DTYPES
from poot.oracle.rows import At, row


@row("reshape")
def reshape(at: At, x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    return x.reshape(shape)


@row("broadcast")
def broadcast(at: At, x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(x, shape)


@row("transpose")
def transpose(at: At, x: np.ndarray, *, perm: tuple[int, ...]) -> np.ndarray:
    return x.transpose(perm)


@row("slice")
def slice_(
    at: At,
    x: np.ndarray,
    *,
    start: tuple[int, ...],
    stop: tuple[int, ...],
    step: tuple[int, ...],
) -> np.ndarray:
    window = tuple(slice(a, b, s) for a, b, s in zip(start, stop, step, strict=True))
    return np.asarray(x[window])


@row("concat")
def concat(at: At, *xs: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(xs, axis)


@row("iota")
def iota(at: At, *, shape: tuple[int, ...], axis: int, dtype: str) -> np.ndarray:
    line = np.arange(shape[axis], dtype=DTYPES[dtype].numpy)
    along = [1] * len(shape)
    along[axis] = shape[axis]
    return np.broadcast_to(line.reshape(along), shape)


@row("const")
def const(at: At, *, shape: tuple[int, ...], dtype: str, value: float | int | bool) -> np.ndarray:
    """The value rounded to its dtype, in f64 mode as well: it is an input."""
    one = np.asarray(value).astype(DTYPES[dtype].numpy)
    return np.broadcast_to(at.held(one), shape)
