"""ATen products, norms, softmax and attention. Attention is its primitives here as everywhere: the
compiler fuses it, or says why not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.values import Number, number
from poot.ops.array import Array, normal_axis, reshape
from poot.ops.record import refuse


def matmul(site: Site, a: Array, b: Array) -> Array:
    return ops.matmul(a, b)


def _scaled(x: Array, by: Number) -> Array:
    return x if by == 1 else x * number(by, x.dtype)


def addmm(
    site: Site, bias: Array, a: Array, b: Array, beta: Number = 1, alpha: Number = 1
) -> Array:
    """beta * bias + alpha * (a @ b); where beta is 0 the bias isn't read."""
    product = _scaled(ops.matmul(a, b), alpha)
    return product if beta == 0 else product + _scaled(bias, beta)


def linear(site: Site, x: Array, weight: Array, bias: Array | None = None) -> Array:
    product = ops.matmul(x, weight.swapaxes(0, 1) if weight.ndim > 1 else weight)
    return product if bias is None else product + bias


def dot(site: Site, a: Array, b: Array) -> Array:
    return ops.matmul(a, b)


# Norms.


def _normed(x: Array, axes: tuple[int, ...], eps: float, dtype: str) -> tuple[Array, Array, Array]:
    """(x less its mean times rstd, the mean, rstd) over the axes, in f32, the first as `dtype`."""
    wide = x.astype("f32")
    mean = wide.mean(axes, True)
    apart = wide - mean
    rstd = ops.rsqrt((apart * apart).mean(axes, True) + eps)
    return (apart * rstd).astype(dtype), mean, rstd


def native_layer_norm(
    site: Site, x: Array, shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """(the norm over the last axes, mean, 1 / standard deviation)."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    out, mean, rstd = _normed(x, axes, eps, "f32")
    out = out if weight is None else out * weight.astype("f32")
    out = out if bias is None else out + bias.astype("f32")
    first, second, third = site.types
    return out.astype(first.dtype), mean.astype(second.dtype), rstd.astype(third.dtype)


def layer_norm(
    site: Site, x: Array, shape: Sequence[int], weight: Array | None = None,
    bias: Array | None = None, eps: float = 1e-5, *_: object,
) -> Array:  # fmt: skip
    three = Site((site.type, site.type, site.type))
    return native_layer_norm(three, x, shape, weight, bias, eps)[0]


def rms_norm(
    site: Site, x: Array, shape: Sequence[int], weight: Array | None = None,
    eps: float | None = None,
) -> Array:  # fmt: skip
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = x.astype("f32")
    small = 2.0**-23 if eps is None else eps
    out = wide * ops.rsqrt((wide * wide).mean(axes, True) + small)
    return (out if weight is None else out * weight.astype("f32")).astype(x.dtype)


def native_group_norm(
    site: Site, x: Array, weight: Array | None, bias: Array | None, n: int, c: int, hw: int,
    group: int, eps: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    apart = reshape(x, (n, group, c // group * hw))
    out, mean, rstd = _normed(apart, (2,), eps, "f32")
    out = reshape(out, (n, c, hw))
    out = out if weight is None else out * reshape(weight, (1, c, 1))
    out = out if bias is None else out + reshape(bias, (1, c, 1))
    first, second, third = site.types
    return (
        reshape(out, x.shape).astype(first.dtype),
        reshape(mean, second.shape),
        reshape(rstd, third.shape),
    )


def batch_norm(
    site: Site, x: Array, weight: Array | None, bias: Array | None, mean: Array, variance: Array,
    momentum: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    """x, its axis 1 normed by a mean and a variance that are given; the other results are empty."""

    def along(y: Array) -> Array:
        return reshape(y.astype("f32"), (x.shape[1], *(1,) * (x.ndim - 2)))

    out = (x.astype("f32") - along(mean)) * ops.rsqrt(along(variance) + eps)
    out = out if weight is None else out * along(weight)
    out = out if bias is None else out + along(bias)
    first, *rest = site.types
    return out.astype(first.dtype), *(ops.zeros(t.shape, t.dtype) for t in rest)


# Softmax.


def softmax(site: Site, x: Array, dim: int, *_: object) -> Array:
    """exp(x - max) / sum along dim; in f32 where the result is f32."""
    return ops.softmax(x.astype(site.dtype), axis=dim)


def log_softmax(site: Site, x: Array, dim: int, *_: object) -> Array:
    return ops.log_softmax(x.astype(site.dtype), axis=dim)


def safe_softmax(site: Site, x: Array, dim: int, *_: object) -> Array:
    """The softmax, but 0 in a row of nothing but -inf."""
    x = x.astype(site.dtype)
    axis = normal_axis("softmax", dim, x.ndim)
    some = ops.any(x != number(-math.inf, x.dtype), axis, True)
    return ops.where(some, ops.softmax(x, axis=axis), number(0, x.dtype))


# Attention.


def attention(
    site: Site, q: Array, k: Array, v: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> Array:  # fmt: skip
    """softmax(q k^T scale + mask) v over [..., L, D]. A bool mask is true where a key is seen; a
    row that sees none is 0."""
    if dropout_p:
        refuse("attention", "no dropout", "Call model.eval() before the export", p=dropout_p)
    rows, keys = q.shape[-2], k.shape[-2]
    k, v = _for_heads(q, k), _for_heads(q, v)
    scores = ops.matmul(q, k.swapaxes(-1, -2))
    scores = scores * number(q.shape[-1] ** -0.5 if scale is None else scale, q.dtype)
    hidden = number(-math.inf, q.dtype)
    some: Array | None = None
    if is_causal:
        r, t = ops.iota((rows, 1)), ops.iota((1, keys), axis=1)
        scores = ops.where(t <= r, scores, hidden)
    if attn_mask is not None and attn_mask.dtype == "bool":
        scores = ops.where(attn_mask, scores, hidden)
        some = ops.any(attn_mask, -1, True)
    elif attn_mask is not None:
        mask = attn_mask.astype(q.dtype)
        scores = scores + mask
        some = ops.any(mask != hidden, -1, True)
    out = ops.matmul(ops.softmax(scores), v)
    return out if some is None else ops.where(some, out, number(0, q.dtype))


def _for_heads(q: Array, x: Array) -> Array:
    """Key heads as many as query heads: each stands for several in a row."""
    if x.ndim != 4 or q.ndim != 4 or x.shape[1] == q.shape[1] or q.shape[1] % x.shape[1]:
        return x
    return ops.repeat_kv(x, q.shape[1] // x.shape[1])


def scaled_dot_product_attention(
    site: Site, q: Array, k: Array, v: Array, attn_mask: Array | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:  # fmt: skip
    return attention(site, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)


def flash_for_cpu(
    site: Site, q: Array, k: Array, v: Array, dropout_p: float = 0.0, is_causal: bool = False,
    attn_mask: Array | None = None, scale: float | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """(attention, the log-sum-exp of each row)."""
    out = attention(site, q, k, v, attn_mask, dropout_p, is_causal, scale=scale)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = ops.matmul(q, _for_heads(q, k).swapaxes(-1, -2)).astype("f32") * float(factor)
    rows, keys = scores.shape[-2:]
    if is_causal:
        seen = ops.iota((1, keys), axis=1) <= ops.iota((rows, 1))
        scores = ops.where(seen, scores, number(-math.inf, "f32"))
    if attn_mask is not None:
        scores = scores + attn_mask.astype("f32")
    top = scores.max(-1, True)
    sums = ops.log(ops.exp(scores - top).sum(-1, True)) + top
    lse = site.types[1]
    return out, reshape(sums, lse.shape).astype(lse.dtype)


NN: dict[str, Row] = {
    "mm.default": matmul,
    "bmm.default": matmul,
    "matmul.default": matmul,
    "mv.default": matmul,
    "dot.default": dot,
    "addmm.default": addmm,
    "baddbmm.default": addmm,
    "linear.default": linear,
    "native_layer_norm.default": native_layer_norm,
    "layer_norm.default": layer_norm,
    "rms_norm.default": rms_norm,
    "native_group_norm.default": native_group_norm,
    "_native_batch_norm_legit_no_training.default": batch_norm,
    "_softmax.default": softmax,
    "softmax.int": softmax,
    "_log_softmax.default": log_softmax,
    "log_softmax.int": log_softmax,
    "_safe_softmax.default": safe_softmax,
    "scaled_dot_product_attention.default": scaled_dot_product_attention,
    "_scaled_dot_product_flash_attention_for_cpu.default": flash_for_cpu,
}
