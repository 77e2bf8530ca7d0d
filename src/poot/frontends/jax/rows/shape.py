"""Primitives that move elements, or make them from nothing."""

from __future__ import annotations

from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.shape import cut
from poot.ops.array import Array, reshape
from poot.ops.record import refuse


def to_shape(site: Site, x: Array, **_: object) -> Array:
    """The elements in row-major order under the shape that the program says."""
    return reshape(x, site.shape)


def reshape_(
    site: Site, x: Array, *_: object, dimensions: Sequence[int] | None = None, **__: object
) -> Array:
    """The same, after a transpose by `dimensions` if they are given."""
    return reshape(x if dimensions is None else x.transpose(_whole(dimensions)), site.shape)


def _whole(numbers: Sequence[int]) -> tuple[int, ...]:
    """jax mixes numpy's integers among Python's."""
    return tuple(int(n) for n in numbers)


def broadcast_in_dim(
    site: Site, x: Array, *_: object, broadcast_dimensions: Sequence[int], **__: object
) -> Array:
    """Axis i of x is axis broadcast_dimensions[i] of the result; the others repeat."""
    shape = [1] * len(site.shape)
    for axis, n in zip(_whole(broadcast_dimensions), x.shape, strict=True):
        shape[axis] = n
    return ops.broadcast_to(reshape(x, tuple(shape)), site.shape)


def transpose(site: Site, x: Array, permutation: Sequence[int]) -> Array:
    return x.transpose(_whole(permutation)) if x.ndim else x


def slice_(
    site: Site, x: Array, start_indices: Sequence[int], limit_indices: Sequence[int],
    strides: Sequence[int] | None,
) -> Array:  # fmt: skip
    steps = _whole(strides) if strides is not None else (1,) * x.ndim
    ends = zip(_whole(start_indices), _whole(limit_indices), steps, strict=True)
    return x[tuple(slice(a, max(b, a), s) for a, b, s in ends)] if x.ndim else x


def row(site: Site, x: Array, n: int) -> Array:
    """x[n]: what a step of a scan takes."""
    return reshape(cut(x, 0, n, n + 1), site.shape)


def stack_rows(site: Site, parts: Sequence[Array]) -> Array:
    """The parts along a new first axis: what the steps of a scan gave."""
    return ops.stack(tuple(parts), axis=0) if parts else ops.zeros(site.shape, site.dtype)


def concatenate(site: Site, *xs: Array, dimension: int) -> Array:
    return ops.concat(xs, axis=dimension)


def stack(site: Site, *xs: Array, axis: int) -> Array:
    """The values side by side along a new axis."""
    return ops.stack(xs, axis=axis)


def unstack(site: Site, x: Array, axis: int) -> tuple[Array, ...]:
    """The values along an axis, each without it."""
    parts = [cut(x, axis, n, n + 1) for n in range(x.shape[axis])]
    return tuple(reshape(p, t.shape) for p, t in zip(parts, site.types, strict=True))


def split(site: Site, x: Array, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    return ops.split(x, _whole(sizes), axis=axis)


def pad(site: Site, x: Array, value: Array, padding_config: Sequence[Sequence[int]]) -> Array:
    """Each axis with so many values before, after, and (none, here) between its elements; negative
    numbers cut."""
    for axis, (before, after, between) in enumerate(padding_config):
        if between:
            refuse("pad", "no padding between elements", axis=axis, between=between)
        n = x.shape[axis]
        x = cut(x, axis, max(-before, 0), n - max(-after, 0))
        ends = [(*x.shape[:axis], max(m, 0), *x.shape[axis + 1 :]) for m in (before, after)]
        fills = [ops.broadcast_to(value, shape) for shape in ends]
        parts = [p for p in (fills[0], x, fills[1]) if p.shape[axis]]
        x = ops.concat(tuple(parts), axis=axis) if len(parts) > 1 else x
    return x


def rev(site: Site, x: Array, dimensions: Sequence[int]) -> Array:
    for axis in _whole(dimensions):
        x = ops.flip(x, axis)
    return x


def tile(site: Site, x: Array, reps: Sequence[int]) -> Array:
    """The whole value again and again along each axis."""
    for axis, times in enumerate(_whole(reps)):
        if times != 1:
            apart = reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
            wide = ops.broadcast_to(apart, (*x.shape[:axis], times, *x.shape[axis:]))
            x = reshape(wide, (*x.shape[:axis], times * x.shape[axis], *x.shape[axis + 1 :]))
    return x


def iota(site: Site, *, dimension: int, **_: object) -> Array:
    """Each element is its index along an axis."""
    return ops.iota(site.shape, axis=dimension).astype(site.dtype)


SHAPE: dict[str, Row] = {
    "reshape": reshape_,
    "squeeze": to_shape,
    "expand_dims": to_shape,
    "broadcast_in_dim": broadcast_in_dim,
    "transpose": transpose,
    "slice": slice_,
    "row": row,
    "stack_rows": stack_rows,
    "concatenate": concatenate,
    "split": split,
    "stack": stack,
    "unstack": unstack,
    "pad": pad,
    "rev": rev,
    "tile": tile,
    "iota": iota,
}
