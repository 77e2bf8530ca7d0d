"""Reductions, cumulative sums, and orders."""

from __future__ import annotations

from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.index import gather as along
from poot.frontends.torch.rows.order import ascending, by_sign, descending, nan_first
from poot.frontends.torch.rows.reduce import best, topk
from poot.frontends.torch.rows.reduce import cumsum as running_sum
from poot.ops.array import Array, reshape
from poot.ops.record import refuse


def _axes(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(a) for a in axes)


def reduce_sum(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    return x.sum(_axes(axes))


def reduce_max(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    return reduce_or(site, x, axes) if x.dtype == "bool" else x.max(_axes(axes))


def reduce_min(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    return reduce_and(site, x, axes) if x.dtype == "bool" else x.min(_axes(axes))


def reduce_or(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    return ops.any(x, _axes(axes))


def reduce_and(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    return ops.all(x, _axes(axes))


def argmax(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    """The lower index on ties; the first NaN where there is one."""
    return _first(site, ascending(x), axes)


def argmin(site: Site, x: Array, axes: Sequence[int], **_: object) -> Array:
    """The lower index on ties; the first NaN where there is one."""
    return _first(site, nan_first(descending(x), x), axes)


def _first(site: Site, key: Array, axes: Sequence[int]) -> Array:
    (axis,) = _axes(axes)
    return reshape(ops.argmax(key, axis=axis), site.shape).astype(site.dtype)


def cumsum(site: Site, x: Array, axis: int, reverse: bool) -> Array:
    if not reverse:
        return running_sum(site, x, axis)
    return ops.flip(running_sum(site, ops.flip(x, axis), axis), axis)


def top_k(site: Site, x: Array, k: int, axis: int = -1, **_: object) -> tuple[Array, Array]:
    """By sign and bits: 0 is greater than -0, NaN than every number, and NaN with a sign less."""
    return best(site, x, k, axis, by_sign(x))


def sort(site: Site, *xs: Array, dimension: int, num_keys: int, **_: object) -> tuple[Array, ...]:
    """Ascending by the first operand, the others in the same order. Stable, NaN last."""
    if num_keys != 1:
        refuse("sort", "one key", num_keys=num_keys)
    values, at = topk(site, xs[0], xs[0].shape[dimension], dimension, False)
    rest = [along(site, x, dimension, at) for x in xs[1:]]
    return (values, *rest)


REDUCE: dict[str, Row] = {
    "reduce_sum": reduce_sum,
    "reduce_max": reduce_max,
    "reduce_min": reduce_min,
    "reduce_or": reduce_or,
    "reduce_and": reduce_and,
    "argmax": argmax,
    "argmin": argmin,
    "cumsum": cumsum,
    "top_k": top_k,
    "sort": sort,
}
