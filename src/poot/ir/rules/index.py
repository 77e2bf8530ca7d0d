"""Ops whose addresses are data. An index clamps, or writes nothing: no access leaves a buffer."""

from __future__ import annotations

from poot.errors import need
from poot.ir.graph import TensorType
from poot.ir.ops import op


@op("gather", ins=2, attrs=("axis",))
def gather(x: TensorType, index: TensorType, *, axis: int) -> TensorType:
    """x.take(index, axis): index (i32, any shape) stands where axis stood, and clamps into it."""
    need(index.dtype == "i32", "an i32 index", index=index)
    need(0 <= axis < len(x.shape) and x.shape[axis] > 0, "a non-empty axis of x", x=x, axis=axis)
    return TensorType(x.dtype, x.shape[:axis] + index.shape + x.shape[axis + 1 :])


def _need_start(x: TensorType, start: TensorType, axis: int) -> None:
    need(0 <= axis < len(x.shape), "an axis of x", x=x, axis=axis)
    per_row = axis > 0 and start.shape == x.shape[:1]
    need(
        start.dtype == "i32" and (start.shape == () or per_row),
        "an i32 start of shape [] or [rows]",
        start=start,
        x=x,
    )


@op("dynamic_slice", ins=2, attrs=("axis", "size"))
def dynamic_slice(x: TensorType, start: TensorType, *, axis: int, size: int) -> TensorType:
    """x[start : start + size] along axis. start is i32 [] or, where axis > 0, [x.shape[0]]: one a
    row. It clamps into 0 .. extent - size."""
    _need_start(x, start, axis)
    need(0 <= size <= x.shape[axis], "0 <= size <= extent", x=x, size=size)
    return TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))


@op("dynamic_update_slice", ins=3, attrs=("axis",))
def dynamic_update_slice(
    x: TensorType, update: TensorType, start: TensorType, *, axis: int
) -> TensorType:
    """x with x[start : start + n] along axis replaced by update (x's shape but n along axis). start
    is i32 [] or [x.shape[0]] as in dynamic_slice, and clamps so that the window fits."""
    _need_start(x, start, axis)
    rest = update.shape[:axis] + update.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
    fits = update.dtype == x.dtype and len(update.shape) == len(x.shape) and rest
    need(
        fits and update.shape[axis] <= x.shape[axis],
        "an update like x but along axis",
        x=x,
        update=update,
    )
    return x


@op("scatter_update", ins=3)
def scatter_update(x: TensorType, update: TensorType, rows: TensorType) -> TensorType:
    """x [S, ...] with row rows[i] replaced by update[i]; update is [N, ...], rows i32 [N]. A row
    outside 0 .. S-1, -1 among them, writes nothing. No row is named twice: the bind refuses it."""
    need(rows.dtype == "i32" and len(rows.shape) == 1, "i32 rows of shape [N]", rows=rows)
    need(
        len(x.shape) >= 1 and update.dtype == x.dtype, "an update of x's dtype", x=x, update=update
    )
    need(
        update.shape == rows.shape + x.shape[1:],
        "one row of update for each of rows",
        x=x,
        update=update,
        rows=rows,
    )
    return x
