"""Primitives whose addresses are data. What JAX does of an index outside is done here too: it
clamps, or reads a fill and writes nothing. Where the index is proved inside, neither is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.values import is_float, number
from poot.ir.dtypes import DTYPES
from poot.ops.array import Array, reshape
from poot.ops.record import refuse

_MOST_UPDATES = 64  # windows written one after another


class GatherDimensions(Protocol):
    """What `jax.lax.GatherDimensionNumbers` says."""

    offset_dims: Sequence[int]
    collapsed_slice_dims: Sequence[int]
    start_index_map: Sequence[int]
    operand_batching_dims: Sequence[int]
    start_indices_batching_dims: Sequence[int]


class ScatterDimensions(Protocol):
    """What `jax.lax.ScatterDimensionNumbers` says."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int]
    scatter_indices_batching_dims: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Start:
    """Where windows of `size` begin along an axis, for each of the batch [*batch]."""

    axis: int
    at: Array
    size: int


def _is_inside(at: Array, last: int) -> bool:
    held = at.interval
    return held is not None and held.within(0, last)


def _clamped(at: Array, last: int) -> Array:
    return at if _is_inside(at, last) else ops.clip(at, 0, last)


def _inside(starts: Sequence[_Start], shape: Sequence[int]) -> Array | None:
    """Whether every window lies inside, for each of the batch; None where that is proved."""
    out: Array | None = None
    for start in starts:
        last = shape[start.axis] - start.size
        if _is_inside(start.at, last):
            continue
        test = ops.logical_and(start.at >= 0, start.at <= last)
        out = test if out is None else ops.logical_and(out, test)
    return out


def _fills(mode: object) -> bool:
    """Whether a window outside is a fill or dropped, and not clamped."""
    return "FILL" in str(mode)


def dynamic_slice(site: Site, x: Array, *starts: Array, slice_sizes: Sequence[int]) -> Array:
    """The window that begins at `starts`, moved inside where it doesn't fit."""
    for axis, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        if size != x.shape[axis]:
            x = ops.dynamic_slice(x, start.astype("i32"), int(size), axis=axis, mode="clamp")
    return x


def dynamic_update_slice(site: Site, x: Array, update: Array, *starts: Array) -> Array:
    """x with the window that begins at `starts`, moved inside where it doesn't fit, replaced."""
    return _replaced(x, update, [s.astype("i32") for s in starts])


def _replaced(x: Array, update: Array, starts: Sequence[Array]) -> Array:
    """The outer of several axes that are cut: its window, with the inner one replaced in it."""
    cut = [n for n in range(x.ndim) if update.shape[n] != x.shape[n]]
    if not cut:
        return update
    axis, size = cut[0], update.shape[cut[0]]
    if len(cut) > 1:
        window = ops.dynamic_slice(x, starts[axis], size, axis=axis, mode="clamp")
        update = _replaced(window, update, starts)
    return ops.dynamic_update_slice(x, update, starts[axis], axis=axis, mode="clamp")


# Gather.


def gather(
    site: Site, x: Array, indices: Array, *, dimension_numbers: GatherDimensions,
    slice_sizes: Sequence[int], mode: object, fill_value: object, **_: object,
) -> Array:  # fmt: skip
    """For each index of the batch the window of x that begins there."""
    at, sizes = dimension_numbers, tuple(int(n) for n in slice_sizes)
    starts = _starts(x, indices, at, sizes)
    if not starts:
        x = _cut(x, sizes)
        return ops.broadcast_to(reshape(x, _with_batch(site, at)), site.shape)
    test = _inside(starts, x.shape) if _fills(mode) else None
    active = [s.axis for s in starts]
    x = _cut(x, [n if a not in active else x.shape[a] for a, n in enumerate(sizes)])
    got, labels = _taken(x, starts)
    batch = [n for n in range(len(site.shape)) if n not in at.offset_dims]
    gone = {*at.collapsed_slice_dims, *at.operand_batching_dims}
    kept = [n for n in range(x.ndim) if n not in gone]
    order: list[int] = []
    for n in range(len(site.shape)):
        if n in batch:
            order.append(labels.index(-1 - batch.index(n)))
        elif kept[tuple(at.offset_dims).index(n)] in labels:
            order.append(labels.index(kept[tuple(at.offset_dims).index(n)]))
    got = reshape(got.transpose(order) if order else got, site.shape)
    if test is None:
        return got
    shape = tuple(n if axis in batch else 1 for axis, n in enumerate(site.shape))
    return ops.where(reshape(test, shape), got, _fill(site, fill_value))


def _fill(site: Site, value: object) -> Array:
    """What is read outside: the fill, or NaN, or the integer that JAX puts there."""
    if isinstance(value, (bool, int, float)):
        return number(value, site.dtype)
    if is_float(ops.zeros((), site.dtype)):
        return number(math.nan, site.dtype)
    kind, bits = DTYPES[site.dtype].kind, 8 * DTYPES[site.dtype].nbytes
    if kind == "bool":
        return number(True, site.dtype)
    return number(-(2 ** (bits - 1)) if kind == "int" else 2**bits - 1, site.dtype)


def _with_batch(site: Site, at: GatherDimensions) -> tuple[int, ...]:
    return tuple(n if axis in at.offset_dims else 1 for axis, n in enumerate(site.shape))


def _cut(x: Array, sizes: Sequence[int]) -> Array:
    """x from 0 on, of those extents."""
    return x[tuple(slice(0, n) for n in sizes)] if tuple(sizes) != x.shape else x


def _starts(x: Array, indices: Array, at: GatherDimensions, sizes: Sequence[int]) -> list[_Start]:
    """Where windows begin along each axis that they don't fill, and along those that go with an
    axis of the indices, in the order of the axes."""
    found: list[_Start] = []
    for column, axis in enumerate(at.start_index_map):
        if sizes[axis] != x.shape[axis]:
            found.append(_Start(axis, _column(indices, column), sizes[axis]))
    pairs = zip(at.operand_batching_dims, at.start_indices_batching_dims, strict=True)
    for axis, place in pairs:
        found.append(_Start(axis, ops.iota(indices.shape[:-1], axis=place), 1))
    return sorted(found, key=lambda s: s.axis)


def _column(indices: Array, column: int) -> Array:
    """One column of the indices: [*batch]."""
    part = indices[(*(slice(None),) * (indices.ndim - 1), slice(column, column + 1))]
    return reshape(part, indices.shape[:-1]).astype("i32")


def _taken(x: Array, starts: Sequence[_Start]) -> tuple[Array, list[int]]:
    """(the windows, what each axis of theirs is: an axis of x, or -1 - n for axis n of the
    batch)."""
    axes = [s.axis for s in starts]
    rest = [n for n in range(x.ndim) if n not in axes]
    first = axes[0]
    if axes != list(range(first, first + len(axes))):
        x, first = x.transpose((*axes, *rest)), 0
        before: list[int] = []
        after = rest
    else:
        before, after = rest[:first], rest[first:]
    extents = x.shape[first : first + len(axes)]
    last = first + len(axes)
    flat = reshape(x, (*x.shape[:first], math.prod(extents), *x.shape[last:]))
    wide = [n for n, s in enumerate(starts) if s.size > 1]
    at = _flat_index(starts, extents, wide)
    got = ops.take(flat, at, axis=first, mode="clamp")
    batch = [-1 - n for n in range(len(starts[0].at.shape))]
    return got, [*before, *batch, *(starts[n].axis for n in wide), *after]


def _flat_index(starts: Sequence[_Start], extents: Sequence[int], wide: Sequence[int]) -> Array:
    """[*batch, *sizes of the wide windows]: the place of each element in the axes as one."""
    batch = starts[0].at.shape
    total: Array | None = None
    for n, (start, extent) in enumerate(zip(starts, extents, strict=True)):
        part = _clamped(start.at, extent - start.size)
        part = reshape(part, (*batch, *(1,) * len(wide)))
        if n in wide:
            shape = [1] * (len(batch) + len(wide))
            shape[len(batch) + wide.index(n)] = start.size
            part = part + ops.iota(shape, axis=len(batch) + wide.index(n))
        total = part if total is None else total * extent + part
    assert total is not None
    return ops.broadcast_to(total, (*batch, *(starts[n].size for n in wide)))


# Scatter.


def scatter(
    site: Site, x: Array, indices: Array, update: Array, *, dimension_numbers: ScatterDimensions,
    mode: object, **_: object,
) -> Array:  # fmt: skip
    """x with the windows that begin at the indices replaced, one after another; one that doesn't
    fit is dropped, or clamped, as the program says."""
    at = dimension_numbers
    update = update.astype(x.dtype)
    batch = indices.shape[:-1]
    gone = (*at.inserted_window_dims, *at.operand_batching_dims)
    order = [n for n in range(update.ndim) if n not in at.update_window_dims]
    update = update.transpose((*order, *at.update_window_dims)) if update.ndim else update
    sizes = iter(update.shape[len(batch) :])
    shape = tuple(1 if n in gone else next(sizes) for n in range(x.ndim))
    axes = tuple(at.scatter_dims_to_operand_dims)
    columns = {axis: _column(indices, n) for n, axis in enumerate(axes)}
    if at.operand_batching_dims:
        return _scattered_rows(x, update, columns, shape, at, mode)
    count = math.prod(batch)
    if count > _MOST_UPDATES:
        remedy = "Write one window, or write in pieces"
        refuse("scatter", f"at most {_MOST_UPDATES} windows", remedy, windows=count)
    flat = {axis: reshape(c, (count,)) for axis, c in columns.items()}
    windows = reshape(update, (count, *shape))
    for n in range(count):
        starts = [_Start(axis, reshape(c[n : n + 1], ()), shape[axis]) for axis, c in flat.items()]
        window = reshape(windows[n : n + 1], shape)
        x = _one_window(x, window, starts, mode)
    return x


def _one_window(x: Array, window: Array, starts: list[_Start], mode: object) -> Array:
    zero = ops.zeros((), "i32")
    firsts = {s.axis: s.at for s in starts}
    test = _inside(starts, x.shape) if _fills(mode) else None
    new = _replaced(x, window, [firsts.get(n, zero) for n in range(x.ndim)])
    return new if test is None else ops.where(test, new, x)


def _scattered_rows(
    x: Array, update: Array, columns: dict[int, Array], shape: tuple[int, ...],
    at: ScatterDimensions, mode: object,
) -> Array:  # fmt: skip
    """Each row of the first axis with a window of its own along another axis."""
    whole = [axis for axis in columns if shape[axis] == x.shape[axis]]
    cut = [axis for axis in columns if axis not in whole]
    pairs = (tuple(at.operand_batching_dims), tuple(at.scatter_indices_batching_dims))
    one_each = pairs == ((0,), (0,)) and all(c.shape == x.shape[:1] for c in columns.values())
    if len(cut) != 1 or not one_each:
        refuse("scatter", "one window for each row of the first axis", x=x.type)
    (axis,) = cut
    window = reshape(update, (x.shape[0], *shape[1:]))
    new = ops.dynamic_update_slice(x, window, columns[axis], axis=axis, mode="clamp")
    starts = [_Start(n, c, shape[n]) for n, c in columns.items()]
    test = _inside(starts, x.shape) if _fills(mode) else None
    if test is None:
        return new
    return ops.where(reshape(test, (x.shape[0], *(1,) * (x.ndim - 1))), new, x)


INDEX: dict[str, Row] = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    "scatter": scatter,
}
