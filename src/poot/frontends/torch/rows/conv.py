"""ATen convolutions, as one matmul of the windows that a kernel sees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.shape import cut, pad
from poot.ops.array import Array, reshape
from poot.ops.record import refuse

_MOST_TAPS = 256  # each is a slice of the input


def convolution(
    site: Site, x: Array, weight: Array, bias: Array | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Array:  # fmt: skip
    """x [B,C,*S] with a kernel [O,C/groups,*K] -> [B,O,*S']; the sums are held in f32."""
    if transposed:
        refuse("convolution", "one that is not transposed", x=x.type)
    if any(padding):
        ends = [n for p in reversed(padding) for n in (p, p)]
        x = pad(site, x, ends)
    kernel = weight.shape[2:]
    batch, channels = x.shape[:2]
    out, places = weight.shape[0], math.prod(site.shape[2:])
    if tuple(stride) == kernel and set(dilation) == {1}:
        windows = _patches(x, kernel, site.shape[2:])
    else:
        windows = _windows(x, kernel, site.shape[2:], stride, dilation)
    depth = channels // groups * math.prod(kernel)
    columns = reshape(windows, (batch, groups, depth, places))
    rows = reshape(weight, (1, groups, out // groups, depth))
    product = reshape(ops.matmul(rows, columns), site.shape)
    if bias is None:
        return product
    return product + reshape(bias, (1, out, *(1 for _ in kernel)))


def _patches(x: Array, kernel: tuple[int, ...], counts: tuple[int, ...]) -> Array:
    """[B,C,taps,places] of windows that lie side by side."""
    for axis, (k, n) in enumerate(zip(kernel, counts, strict=True), 2):
        x = cut(x, axis, 0, k * n) if x.shape[axis] != k * n else x
    batch, channels = x.shape[:2]
    pairs = [m for k, n in zip(kernel, counts, strict=True) for m in (n, k)]
    apart = reshape(x, (batch, channels, *pairs))
    taps = range(3, apart.ndim, 2)
    apart = apart.transpose((0, 1, *taps, *range(2, apart.ndim, 2)))
    return reshape(apart, (batch, channels, math.prod(kernel), math.prod(counts)))


def _windows(
    x: Array, kernel: tuple[int, ...], counts: tuple[int, ...], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """[B,C,taps,places]: for each tap the elements that it meets."""
    taps = list(itertools.product(*(range(k) for k in kernel)))
    if len(taps) > _MOST_TAPS:
        remedy = f"It has {_MOST_TAPS} taps at most, or windows that lie side by side"
        refuse("convolution", "a smaller kernel", remedy, kernel=kernel)
    batch, channels = x.shape[:2]
    met: list[Array] = []
    for tap in taps:
        part = x
        for axis, t in enumerate(tap):
            first = t * dilation[axis]
            last = first + (counts[axis] - 1) * stride[axis] + 1
            part = cut(part, axis + 2, first, last, stride[axis])
        met.append(reshape(part, (batch, channels, 1, math.prod(counts))))
    return ops.concat(tuple(met), axis=2) if len(met) > 1 else met[0]


CONV: dict[str, Row] = {"convolution.default": convolution}
