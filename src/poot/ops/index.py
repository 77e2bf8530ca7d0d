"""Functions whose addresses are data. An index is proved inside its axis, or the caller writes
mode="clamp" and it goes to the nearest place inside."""

from __future__ import annotations

from poot.ops.array import Array, Operand, as_array, emit, normal_axis, operands, prove
from poot.ops.array import take as take
from poot.ops.record import refuse


def gather(x: Operand, index: Operand, axis: int = 0, mode: str | None = None) -> Array:
    """The primitive's name for `take`."""
    return take(x, index, axis, mode)


def dynamic_slice(
    x: Array, start: Operand, size: int, axis: int = 0, mode: str | None = None
) -> Array:
    """x[start : start + size] along axis. start is an int, i32 [], or, where axis > 0, i32
    [x.shape[0]]: one a row. It is proved in 0 .. extent - size, or clamps there. Raises
    TypeRuleError else."""
    at = normal_axis("dynamic_slice", axis, x.ndim)
    if not 0 <= size <= x.shape[at]:
        refuse("dynamic_slice", "0 <= size <= extent", x=x.type, size=size, axis=axis)
    first = as_array(start, x.recorder, "i32", "dynamic_slice")
    prove("dynamic_slice", first, 0, x.shape[at] - size, mode)
    return emit("dynamic_slice", x, first, axis=at, size=size)


def dynamic_update_slice(
    x: Array, update: Operand, start: Operand, axis: int = 0, mode: str | None = None
) -> Array:
    """x with x[start : start + n] along axis replaced by update (x's shape but n along axis). start
    as in `dynamic_slice`."""
    at = normal_axis("dynamic_update_slice", axis, x.ndim)
    x, new = operands("dynamic_update_slice", x, update)
    first = as_array(start, x.recorder, "i32", "dynamic_update_slice")
    if new.ndim == x.ndim and new.shape[at] <= x.shape[at]:
        prove("dynamic_update_slice", first, 0, x.shape[at] - new.shape[at], mode)
    return emit("dynamic_update_slice", x, new, first, axis=at)


def scatter_update(x: Array, update: Operand, rows: Operand) -> Array:
    """x [S, ...] with row rows[i] replaced by update[i]; rows i32 [N]. A row outside 0 .. S-1, -1
    among them, writes nothing. No row is named twice: the bind of a write map refuses it."""
    x, new = operands("scatter_update", x, update)
    at = as_array(rows, x.recorder, "i32", "scatter_update")
    return emit("scatter_update", x, new, at)
