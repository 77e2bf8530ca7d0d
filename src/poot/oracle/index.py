"""Addresses that are data."""

from __future__ import annotations

import numpy as np

from poot.errors import SlotMapError
from poot.oracle.rows import At, row


@row("gather")
def gather(at: At, x: np.ndarray, index: np.ndarray, *, axis: int) -> np.ndarray:
    return np.take(x, np.clip(index, 0, x.shape[axis] - 1), axis)


def _windows(x: np.ndarray, start: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The indices along axis of each row's window, shaped to broadcast against x."""
    first = np.clip(start, 0, x.shape[axis] - size)
    shape = [1] * x.ndim
    shape[axis] = size
    if start.ndim:
        shape[0] = x.shape[0]
    return (first[..., None] + np.arange(size)).reshape(shape)


@row("dynamic_slice")
def dynamic_slice(at: At, x: np.ndarray, start: np.ndarray, *, axis: int, size: int) -> np.ndarray:
    if start.ndim == 0:
        first = int(np.clip(start, 0, x.shape[axis] - size))
        return np.asarray(x[(slice(None),) * axis + (slice(first, first + size),)])
    return np.take_along_axis(x, _windows(x, start, axis, size), axis)


@row("dynamic_update_slice")
def dynamic_update_slice(
    at: At, x: np.ndarray, update: np.ndarray, start: np.ndarray, *, axis: int
) -> np.ndarray:
    result = np.array(x)
    size = update.shape[axis]
    if start.ndim == 0:
        first = int(np.clip(start, 0, x.shape[axis] - size))
        result[(slice(None),) * axis + (slice(first, first + size),)] = update
    else:
        np.put_along_axis(result, _windows(x, start, axis, size), update, axis)
    return result


@row("scatter_update")
def scatter_update(at: At, x: np.ndarray, update: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Raises SlotMapError where a row is named twice, which no bind lets through."""
    lands = (rows >= 0) & (rows < x.shape[0])
    named, counts = np.unique(rows[lands], return_counts=True)
    if np.any(counts > 1):
        raise SlotMapError(f"scatter_update needs each row once: {named[counts > 1][0]}")
    result = np.array(x)
    result[rows[lands]] = update[lands]
    return result
