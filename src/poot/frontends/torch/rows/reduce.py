"""ATen reductions, cumulative sums, and orders."""

from __future__ import annotations

from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.index import gather
from poot.frontends.torch.rows.order import ascending, descending, nan_first
from poot.frontends.torch.rows.values import Number, is_float, number
from poot.ops.array import Array, normal_axis, reshape
from poot.ops.record import refuse

Dims = Sequence[int] | int | None


def _axes(x: Array, dims: Dims) -> tuple[int, ...]:
    """The axes that ATen's dims name: none of them, or an empty list, is all."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(x.ndim))
    return (dims,) if isinstance(dims, int) else tuple(dims)


def sum_(site: Site, x: Array, dims: Dims = None, keepdim: bool = False, *_: object) -> Array:
    return x.astype(site.dtype).sum(_axes(x, dims), keepdim)


def sum_all(site: Site, x: Array, *_: object) -> Array:
    return sum_(site, x)


def mean(site: Site, x: Array, dims: Dims = None, keepdim: bool = False, *_: object) -> Array:
    return x.astype(site.dtype).mean(_axes(x, dims), keepdim)


def mean_all(site: Site, x: Array, *_: object) -> Array:
    return mean(site, x)


def amax(site: Site, x: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    if x.dtype == "bool":
        return ops.any(x, _axes(x, dims), keepdim)
    return _wide(x).max(_axes(x, dims), keepdim).astype(x.dtype)


def amin(site: Site, x: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    if x.dtype == "bool":
        return ops.all(x, _axes(x, dims), keepdim)
    return _wide(x).min(_axes(x, dims), keepdim).astype(x.dtype)


def _wide(x: Array) -> Array:
    """x in a dtype that reductions have."""
    return x.astype("i32") if x.dtype in ("i8", "u8") else x


def any_(site: Site, x: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    return ops.any(x.astype("bool"), _axes(x, dims), keepdim)


def all_(site: Site, x: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    return ops.all(x.astype("bool"), _axes(x, dims), keepdim)


def argmax(site: Site, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """The first NaN where there is one; the lower index on ties."""
    return reshape(ops.argmax(ascending(x), axis=dim), site.shape)


def argmin(site: Site, x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """The first NaN where there is one; the lower index on ties."""
    return reshape(ops.argmax(nan_first(descending(x), x), axis=dim), site.shape)


def max_dim(site: Site, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest and where it is: NaN where there is one."""
    values, indices = site.types
    at = ops.argmax(ascending(x), axis=dim)
    return reshape(amax(site, x, dim), values.shape), reshape(at, indices.shape)


def min_dim(site: Site, x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest and where it is: NaN where there is one."""
    values, indices = site.types
    at = ops.argmax(nan_first(descending(x), x), axis=dim)
    return reshape(amin(site, x, dim), values.shape), reshape(at, indices.shape)


def variance(
    site: Site, x: Array, dims: Dims = None, correction: Number | None = None, keepdim: bool = False
) -> Array:
    """The mean square distance from the mean; the count is less by `correction`, 1 if not given."""
    axes = _axes(x, dims)
    mean = x.mean(axes, True)
    count = x.size // max(mean.size, 1) - (1 if correction is None else correction)
    if count <= 0:
        refuse("var", "more elements than the correction", x=x.type, correction=correction)
    apart = x - mean
    return (apart * apart).sum(axes, keepdim) * (1.0 / count)


def var_mean(
    site: Site, x: Array, dims: Dims = None, correction: Number | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    return variance(site, x, dims, correction, keepdim), x.mean(_axes(x, dims), keepdim)


def cumsum(site: Site, x: Array, dim: int, *_: object) -> Array:
    """Sums along dim up to each element, by doubling: a step adds what stands 1, 2, 4, ... before.
    Integers wrap; floats of 16 bits are held in f32."""
    x = x.astype(site.dtype)
    if x.ndim == 0:
        return x
    axis = normal_axis("cumsum", dim, x.ndim)
    wide = x.astype("f32") if is_float(x) else x
    reach, extent = 1, x.shape[axis]
    while reach < extent:
        before = ops.zeros((*x.shape[:axis], reach, *x.shape[axis + 1 :]), wide.dtype)
        part: list[slice] = [slice(None)] * x.ndim
        part[axis] = slice(0, extent - reach)
        wide = wide + ops.concat((before, wide[tuple(part)]), axis=axis)
        reach *= 2
    return wide.astype(site.dtype)


def topk(
    site: Site, x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    """The k largest along dim, or smallest, in order. NaN is greater than every number; the lower
    index first on ties."""
    return best(site, x, k, dim, ascending(x) if largest else descending(x))


def best(site: Site, x: Array, k: int, dim: int, key: Array) -> tuple[Array, Array]:
    """The k elements of x along dim with the greatest keys, and where they are."""
    if x.ndim == 0:
        return x, ops.zeros((), "i32")
    axis = normal_axis("topk", dim, x.ndim)
    last = x.ndim - 1
    _, at = ops.topk(key if axis == last else key.swapaxes(axis, last), k)
    at = at if axis == last else at.swapaxes(axis, last)
    return gather(site, x, axis, at), at


def sort(site: Site, x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """Stable: the lower index first on ties. NaN is greater than every number."""
    if x.ndim == 0:
        return topk(site, x, 1)
    axis = normal_axis("sort", dim, x.ndim)
    return topk(site, x, x.shape[axis], axis, descending)


def sort_stable(
    site: Site, x: Array, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    return sort(site, x, dim, descending)


def logsumexp(site: Site, x: Array, dims: Dims, keepdim: bool = False) -> Array:
    """The log of the sum of the exps; -inf where all are -inf."""
    axes = _axes(x, dims)
    top = x.max(axes, True)
    shift = ops.where(ops.abs(top) < float("inf"), top, number(0, x.dtype))
    total = ops.log(ops.exp(x - shift).sum(axes, True)) + shift
    return reshape(total, site.shape)


REDUCE: dict[str, Row] = {
    "sum.default": sum_all,
    "sum.dim_IntList": sum_,
    "mean.default": mean_all,
    "mean.dim": mean,
    "amax.default": amax,
    "amin.default": amin,
    "max.default": amax,
    "min.default": amin,
    "max.dim": max_dim,
    "min.dim": min_dim,
    "any.default": any_,
    "any.dim": any_,
    "any.dims": any_,
    "all.default": all_,
    "all.dim": all_,
    "all.dims": all_,
    "argmax.default": argmax,
    "argmin.default": argmin,
    "var.correction": variance,
    "var_mean.correction": var_mean,
    "cumsum.default": cumsum,
    "topk.default": topk,
    "sort.default": sort,
    "sort.stable": sort_stable,
    "logsumexp.default": logsumexp,
}
