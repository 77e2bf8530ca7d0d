"""ATen ops whose addresses are data. An index that isn't proved inside its axis is guarded: a step
in which it lies outside raises ValidationError, as torch raises an IndexError."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.values import Number, Value, in_dtype
from poot.ops.array import Array, normal_axis, reshape
from poot.ops.record import refuse

_MOST_UPDATES = 64  # rows written one after another


def inside(index: Array, extent: int, *, from_end: bool = True) -> Array:
    """An index (i32) proved in 0 .. extent-1. Where `from_end` one below 0 counts from the end."""
    at = index.astype("i32")
    held = at.interval
    if held is not None and held.within(0, extent - 1):
        return at
    if extent == 0:
        refuse("an index", "an axis with elements", index=index.type)
    if from_end and not (held is not None and held.lo >= 0):
        at = ops.where(at < 0, at + extent, at)
    return ops.checked(at, 0, extent)


def embedding(
    site: Site, weight: Array, indices: Array, padding_idx: int = -1, *_: object
) -> Array:
    return ops.take(weight, inside(indices, weight.shape[0], from_end=False), axis=0)


def index_select(site: Site, x: Array, dim: int, index: Array) -> Array:
    axis = normal_axis("index_select", dim, x.ndim)
    return ops.take(x, inside(index, x.shape[axis], from_end=False), axis=axis)


def index(site: Site, x: Array, indices: Sequence[Array | None]) -> Array:
    """x[indices]: integer tensors, broadcast together, for some of the axes. Their own axes stand
    where the first of them stood if they are neighbours, else in front."""
    known = _indices("index", x, indices)
    axes = sorted(known)
    if not axes:
        return x
    is_run = axes == list(range(axes[0], axes[-1] + 1))
    if not is_run:
        rest = [n for n in range(x.ndim) if n not in axes]
        x = x.transpose((*axes, *rest))
        known = {n: known[axis] for n, axis in enumerate(axes)}
        axes = list(range(len(axes)))
    first, last = axes[0], axes[-1] + 1
    extents = x.shape[first:last]
    flat = reshape(x, (*x.shape[:first], math.prod(extents), *x.shape[last:]))
    at = _flat_index(known, axes, extents)
    got = ops.take(flat, at, axis=first)
    return ops.broadcast_to(got, site.shape) if got.shape != site.shape else got


def _indices(op: str, x: Array, indices: Sequence[Array | None]) -> dict[int, Array]:
    known = {axis: i for axis, i in enumerate(indices) if i is not None}
    for axis, i in known.items():
        if i.dtype == "bool":
            remedy = "A mask makes a result whose extent is data: write torch.where"
            refuse(op, "indices that are integers", remedy, axis=axis, index=i.type)
    return known


def _flat_index(known: dict[int, Array], axes: list[int], extents: tuple[int, ...]) -> Array:
    """The indices of neighbouring axes as one, row-major; an axis of extent 1 adds nothing."""
    shape = _common(tuple(known[axis].shape for axis in axes))
    total: Array | None = None
    for axis, extent in zip(axes, extents, strict=True):
        at = inside(known[axis], extent)
        if extent == 1 and len(axes) > 1:
            continue
        total = at if total is None else total * extent + at
    if total is None:
        return ops.zeros(shape, "i32")
    return ops.broadcast_to(total, shape) if total.shape != shape else total


def _common(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """What the shapes broadcast to."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((n for n in column if n != 1), 1) for column in zip(*padded, strict=True))


def gather(site: Site, x: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    """out[i][j] = x[i][index[i][j]], for dim 1 of two axes."""
    axis = normal_axis("gather", dim, x.ndim)
    at = inside(index, x.shape[axis], from_end=False)
    parts = [at if n == axis else ops.iota(at.shape, axis=n) for n in range(x.ndim)]
    total: Array | None = None
    for part, extent in zip(parts, x.shape, strict=True):
        total = part if total is None else total * extent + part
    if total is None:
        return x
    flat = reshape(x, (x.size,))
    return ops.take(flat, inside(total, x.size, from_end=False), axis=0)


# Updates: rows of one axis, one after another, so that the last of two to one row stays.


def _update(x: Array, axis: int, index: Array, rows: Array, *, from_end: bool = True) -> Array:
    """x with row index[n] along axis replaced by row n of rows, for each n in order."""
    count = index.size
    if count > _MOST_UPDATES:
        remedy = "Write one piece, or in pieces"
        refuse("an update of rows", f"at most {_MOST_UPDATES} of them", remedy, rows=count)
    at = reshape(inside(index, x.shape[axis], from_end=from_end), (count,))
    for n in range(count):
        row = rows if count == 1 else _row(rows, axis, n)
        x = ops.dynamic_update_slice(x, row, at[n], axis=axis)
    return x


def _row(rows: Array, axis: int, n: int) -> Array:
    part: list[slice] = [slice(None)] * rows.ndim
    part[axis] = slice(n, n + 1)
    return rows[tuple(part)]


def index_copy(site: Site, x: Array, dim: int, index: Array, source: Array) -> Array:
    """An index below 0 lies outside. What has no axes is one row of one."""
    new = source.astype(x.dtype)
    if x.ndim == 0:
        copied = _update(reshape(x, (1,)), 0, index, reshape(new, (1,)), from_end=False)
        return reshape(copied, ())
    axis = normal_axis("index_copy", dim, x.ndim)
    rows = reshape(new, (1,)) if new.ndim == 0 else new
    return _update(x, axis, index, rows, from_end=False)


def index_fill(site: Site, x: Array, dim: int, index: Array, value: Value) -> Array:
    axis = normal_axis("index_fill", dim, x.ndim)
    shape = (*x.shape[:axis], index.size, *x.shape[axis + 1 :])
    return _update(x, axis, index, ops.broadcast_to(in_dtype(value, x.dtype), shape))


def index_put(
    site: Site, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    """x with x[indices] replaced by values, for an index of one axis."""
    if accumulate:
        refuse("index_put", "values that replace, not add", accumulate=accumulate)
    known = _indices("index_put", x, indices)
    if len(known) != 1:
        refuse("index_put", "an index for one axis", x=x.type, axes=tuple(known))
    ((axis, at),) = known.items()
    if at.ndim > 1:
        refuse("index_put", "an index of one axis or none", index=at.type)
    rows = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
    wide = ops.broadcast_to(values.astype(x.dtype), rows)
    return _update(x, axis, at, reshape(wide, (*x.shape[:axis], at.size, *x.shape[axis + 1 :])))


def scatter_src(site: Site, x: Array, dim: int, index: Array, src: Array) -> Array:
    """x with x[i][index[i][j]] = src[i][j], for dim 1 of two axes. Where two go to one place the
    last stays."""
    if index.ndim != x.ndim:
        refuse("scatter", "an index with an axis for each of x's", x=x.type, index=index.type)
    axis = normal_axis("scatter", dim, x.ndim)
    count = index.shape[axis]
    if count > _MOST_UPDATES:
        refuse("scatter", f"at most {_MOST_UPDATES} elements along dim", index=index.type)
    fits = all(
        m == n for a, (m, n) in enumerate(zip(index.shape, x.shape, strict=True)) if a != axis
    )
    if not fits or any(m > n for m, n in zip(index.shape, src.shape, strict=True)):
        refuse("scatter", "an index as large as x off dim", x=x.type, index=index.type)
    at = inside(index, x.shape[axis], from_end=False)
    place = ops.iota(x.shape, axis=axis)
    new = src.astype(x.dtype)
    for n in range(count):
        x = ops.where(place == _row(at, axis, n), _row(new, axis, n), x)
    return x


def scatter_value(site: Site, x: Array, dim: int, index: Array, value: Number) -> Array:
    return scatter_src(site, x, dim, index, ops.broadcast_to(in_dtype(value, x.dtype), index.shape))


INDEX: dict[str, Row] = {
    "embedding.default": embedding,
    "index_select.default": index_select,
    "index.Tensor": index,
    "gather.default": gather,
    "index_copy.default": index_copy,
    "index_fill.int_Scalar": index_fill,
    "index_put.default": index_put,
    "scatter.src": scatter_src,
    "scatter.value": scatter_value,
}
