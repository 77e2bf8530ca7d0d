"""ATen ops that move elements, make them from nothing, or cast them. A view and a copy are the same
value here."""

from __future__ import annotations

from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.values import Number, in_dtype, number
from poot.ops.array import Array, normal_axis, reshape
from poot.ops.record import refuse


def same(site: Site, x: Array, *_: object) -> Array:
    """The value itself."""
    return x


def cast(site: Site, x: Array, *_: object) -> Array:
    return x.astype(site.dtype)


def to_shape(site: Site, x: Array, *_: object) -> Array:
    """The elements in row-major order under the shape that the program says."""
    return reshape(x, site.shape)


def broadcast(site: Site, x: Array, *_: object) -> Array:
    return ops.broadcast_to(x, site.shape)


def permute(site: Site, x: Array, dims: Sequence[int]) -> Array:
    return x.transpose(dims) if x.ndim else x


def transpose(site: Site, x: Array, a: int = 0, b: int = 1) -> Array:
    return x.swapaxes(a, b) if x.ndim > 1 else x


def _bounded(n: int | None, extent: int, default: int) -> int:
    """An end of a slice, counted from the left and inside the extent."""
    if n is None:
        return default
    return min(max(n + extent if n < 0 else n, 0), extent)


def cut(x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    """x[start:stop:step] along axis."""
    part: list[slice] = [slice(None)] * x.ndim
    part[axis] = slice(start, max(stop, start), step)
    return x[tuple(part)]


def slice_(
    site: Site, x: Array, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Array:  # fmt: skip
    axis = normal_axis("slice", dim, x.ndim)
    n = x.shape[axis]
    return cut(x, axis, _bounded(start, n, 0), _bounded(end, n, n), step)


def slice_scatter(
    site: Site, x: Array, src: Array, dim: int = 0, start: int | None = None,
    end: int | None = None, step: int = 1,
) -> Array:  # fmt: skip
    """x with x[start:end] along dim replaced by src."""
    axis = normal_axis("slice_scatter", dim, x.ndim)
    n = x.shape[axis]
    lo, hi = _bounded(start, n, 0), _bounded(end, n, n)
    if step != 1:
        refuse("slice_scatter", "a step of 1", step=step)
    if src.size == 0:
        return x
    if (lo, hi) == (0, n):
        return src.astype(x.dtype)
    return ops.dynamic_update_slice(x, src.astype(x.dtype), lo, axis=axis)


def select(site: Site, x: Array, dim: int, index: int) -> Array:
    axis = normal_axis("select", dim, x.ndim)
    at = index + x.shape[axis] if index < 0 else index
    return reshape(cut(x, axis, at, at + 1), site.shape)


def select_scatter(site: Site, x: Array, src: Array, dim: int, index: int) -> Array:
    axis = normal_axis("select_scatter", dim, x.ndim)
    at = index + x.shape[axis] if index < 0 else index
    row = reshape(src.astype(x.dtype), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return ops.dynamic_update_slice(x, row, at, axis=axis)


def cat(site: Site, tensors: Sequence[Array], dim: int = 0) -> Array:
    """The tensors one after another; one of shape [0] counts for nothing."""
    kept = [x.astype(site.dtype) for x in tensors if x.shape != (0,)]
    if not kept:
        return tensors[0].astype(site.dtype)
    return ops.concat(tuple(kept), axis=dim)


def stack(site: Site, tensors: Sequence[Array], dim: int = 0) -> Array:
    return ops.stack(tuple(x.astype(site.dtype) for x in tensors), axis=dim)


def split(site: Site, x: Array, sizes: object, dim: int = 0) -> tuple[Array, ...]:
    """Pieces along dim, of the extents that the program says."""
    axis = normal_axis("split", dim, x.ndim)
    parts: list[Array] = []
    at = 0
    for type in site.types:
        parts.append(cut(x, axis, at, at + type.shape[axis]))
        at += type.shape[axis]
    return tuple(parts)


def unbind(site: Site, x: Array, dim: int = 0) -> tuple[Array, ...]:
    axis = normal_axis("unbind", dim, x.ndim)
    parts = [cut(x, axis, n, n + 1) for n in range(x.shape[axis])]
    return tuple(reshape(p, t.shape) for p, t in zip(parts, site.types, strict=True))


def repeat(site: Site, x: Array, repeats: Sequence[int]) -> Array:
    """The whole value again and again along each axis."""
    lead = (1,) * (len(repeats) - x.ndim)
    x = reshape(x, (*lead, *x.shape))
    for axis, times in enumerate(repeats):
        if times != 1:
            shape = (*x.shape[:axis], times, *x.shape[axis:])
            apart = reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
            wide = ops.broadcast_to(apart, shape)
            x = reshape(wide, (*x.shape[:axis], times * x.shape[axis], *x.shape[axis + 1 :]))
    return x


def repeat_interleave(
    site: Site, x: Array, repeats: int, dim: int | None = None, output_size: int | None = None
) -> Array:
    flat = reshape(x, (x.size,)) if dim is None else x
    return ops.repeat(flat, repeats, axis=0 if dim is None else dim)


def flip(site: Site, x: Array, dims: Sequence[int]) -> Array:
    for axis in dims:
        x = ops.flip(x, axis)
    return x


def pad(site: Site, x: Array, padding: Sequence[int], value: Number = 0) -> Array:
    """Each axis, the last first, with so many numbers before and after it; negative ones cut."""
    pairs = [(padding[n], padding[n + 1]) for n in range(0, len(padding), 2)]
    for back, (before, after) in enumerate(pairs):
        axis = x.ndim - 1 - back
        x = cut(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))
        ends = [[*x.shape[:axis], max(n, 0), *x.shape[axis + 1 :]] for n in (before, after)]
        fills = [ops.broadcast_to(number(value, x.dtype), shape) for shape in ends]
        parts = [p for p in (fills[0], x, fills[1]) if p.shape[axis]]
        x = ops.concat(tuple(parts), axis=axis) if len(parts) > 1 else x
    return x


# Made from nothing.


def full(site: Site, *given: object) -> Array:
    """`fill_value`, the argument after the shape or the tensor, in every element."""
    value = given[1]
    if not isinstance(value, (bool, int, float, Array)):
        refuse("full", "a number to fill with", value=value)
    return ops.broadcast_to(in_dtype(value, site.dtype), site.shape)


def scalar_tensor(site: Site, value: Number, *_: object) -> Array:
    return number(value, site.dtype)


def zeros(site: Site, *_: object) -> Array:
    """0 in every element; of what is made empty too, where nothing may read what it holds."""
    return ops.zeros(site.shape, site.dtype)


def ones(site: Site, *_: object) -> Array:
    return ops.ones(site.shape, site.dtype)


def new_full(site: Site, x: Array, size: object, value: Number, *_: object) -> Array:
    return ops.broadcast_to(number(value, site.dtype), site.shape)


def copy(site: Site, x: Array, src: Array, *_: object) -> Array:
    return ops.broadcast_to(src.astype(site.dtype), site.shape)


def arange_start_step(
    site: Site, start: Number, end: Number, step: Number = 1, *_: object
) -> Array:
    """start, start + step, ...; of integers exactly."""
    (count,) = site.shape
    index = ops.iota((count,))
    if all(isinstance(n, int) for n in (start, step)):
        values = index if step == 1 else index * int(step)
        values = values if start == 0 else values + int(start)
        return values.astype(site.dtype)
    return (index.astype("f32") * float(step) + float(start)).astype(site.dtype)


def arange(site: Site, end: Number, *_: object) -> Array:
    return arange_start_step(site, 0, end)


def arange_start(site: Site, start: Number, end: Number, *_: object) -> Array:
    return arange_start_step(site, start, end)


def _triangle(x: Array, diagonal: int, lower: bool) -> Array:
    rows, columns = ops.iota((x.shape[-2], 1)), ops.iota((1, x.shape[-1]), axis=1)
    if lower:
        keep = columns <= (rows + diagonal if diagonal else rows)
    else:
        keep = columns >= (rows + diagonal if diagonal else rows)
    return ops.where(keep, x, number(0, x.dtype))


def tril(site: Site, x: Array, diagonal: int = 0) -> Array:
    return _triangle(x, diagonal, lower=True)


def triu(site: Site, x: Array, diagonal: int = 0) -> Array:
    return _triangle(x, diagonal, lower=False)


def diagonal(site: Site, x: Array, offset: int = 0, a: int = 0, b: int = 1) -> Array:
    """The elements of two axes at [i, i + offset], along a last axis."""
    first, second = normal_axis("diagonal", a, x.ndim), normal_axis("diagonal", b, x.ndim)
    rest = [n for n in range(x.ndim) if n not in (first, second)]
    x = x.transpose((*rest, first, second))
    rows, columns = x.shape[-2:]
    count = site.shape[-1]
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    start = offset if offset >= 0 else -offset * columns
    stop = start + max(count - 1, 0) * (columns + 1) + (1 if count else 0)
    return cut(flat, flat.ndim - 1, start, stop, columns + 1)


def roll(site: Site, x: Array, shifts: Sequence[int], dims: Sequence[int] = ()) -> Array:
    if not dims:
        flat = reshape(x, (x.size,))
        return reshape(roll(site, flat, shifts, (0,)), site.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        axis = normal_axis("roll", dim, x.ndim)
        n = x.shape[axis]
        at = -shift % n if n else 0
        if at:
            x = ops.concat((cut(x, axis, at, n), cut(x, axis, 0, at)), axis=axis)
    return x


def unfold(site: Site, x: Array, dim: int, size: int, step: int) -> Array:
    """Windows of `size` along dim, `step` apart, along a new last axis."""
    axis = normal_axis("unfold", dim, x.ndim)
    count = site.shape[axis]
    starts = [n * step for n in range(count)]
    windows = [cut(x, axis, s, s + size) for s in starts]
    stacked = ops.stack(tuple(windows), axis=axis)
    order = [n for n in range(stacked.ndim) if n != axis + 1]
    return stacked.transpose((*order, axis + 1))


def dropout(site: Site, x: Array, p: float, train: bool) -> Array:
    """The value itself, as it is outside of training."""
    if train and p > 0:
        refuse("dropout", "a model in eval mode", "Call model.eval() before the export", p=p)
    return x


def native_dropout(site: Site, x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    return dropout(site, x, p, bool(train)), ops.ones(site.types[1].shape, "bool")


_SAME = (
    "alias.default", "clone.default", "detach.default", "contiguous.default",
    "lift_fresh_copy.default", "lift_fresh.default", "detach_copy.default", "alias_copy.default",
)  # fmt: skip
_CASTS = (
    "_to_copy.default", "to.dtype", "to.device", "to.dtype_layout", "to.other", "type_as.default",
)  # fmt: skip
_SHAPES = (
    "view.default", "reshape.default", "_unsafe_view.default", "unsqueeze.default",
    "squeeze.default", "squeeze.dim", "squeeze.dims", "flatten.using_ints", "view_copy.default",
    "unflatten.int", "_reshape_alias.default",
)  # fmt: skip
_ZEROS = (
    "zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format",
    "empty_like.default", "new_empty.default",
)  # fmt: skip

SHAPE: dict[str, Row] = {
    **dict.fromkeys(_SAME, same),
    **dict.fromkeys(_CASTS, cast),
    **dict.fromkeys(_SHAPES, to_shape),
    **dict.fromkeys(_ZEROS, zeros),
    "expand.default": broadcast,
    "expand_as.default": broadcast,
    "permute.default": permute,
    "transpose.int": transpose,
    "t.default": transpose,
    "slice.Tensor": slice_,
    "slice_scatter.default": slice_scatter,
    "select.int": select,
    "select_scatter.default": select_scatter,
    "cat.default": cat,
    "stack.default": stack,
    "split_with_sizes.default": split,
    "split.Tensor": split,
    "chunk.default": split,
    "unbind.int": unbind,
    "repeat.default": repeat,
    "repeat_interleave.self_int": repeat_interleave,
    "flip.default": flip,
    "constant_pad_nd.default": pad,
    "full.default": full,
    "full_like.default": full,
    "new_full.default": new_full,
    "fill.Scalar": full,
    "fill.Tensor": full,
    "scalar_tensor.default": scalar_tensor,
    "ones.default": ones,
    "ones_like.default": ones,
    "new_ones.default": ones,
    "copy.default": copy,
    "arange.default": arange,
    "arange.start": arange_start,
    "arange.start_step": arange_start_step,
    "tril.default": tril,
    "triu.default": triu,
    "diagonal.default": diagonal,
    "roll.default": roll,
    "unfold.default": unfold,
    "dropout.default": dropout,
    "native_dropout.default": native_dropout,
}
