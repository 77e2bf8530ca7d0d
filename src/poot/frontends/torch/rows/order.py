"""The order of values in torch and JAX, as whole numbers.

poot's `argmax` and `topk` put NaN last, of the smallest as of the largest; in both frameworks NaN
is the greatest of all. So their orders are taken of keys: of a float its bits as an i32, which is
exact, of everything else the number itself.
"""

from __future__ import annotations

from poot import ops
from poot.frontends.torch.rows.values import is_float
from poot.ops.array import Array

_MOST = 2**31 - 1


def ascending(x: Array) -> Array:
    """i32 (u32 of u32) that orders as x does: NaN greatest, all NaN alike, -0 beside 0."""
    if not is_float(x):
        return x.astype("i32") if x.dtype in ("bool", "i8", "u8") else x
    wide = x.astype("f32")
    key = by_sign(ops.where(wide == 0.0, 0.0, wide))
    return ops.where(ops.isnan(wide), _MOST, key)


def by_sign(x: Array) -> Array:
    """i32 that orders as x does, -0 before 0, and NaN by its sign first or last, then by its bits;
    of what is no float as `ascending`."""
    if not is_float(x):
        return ascending(x)
    bits = ops.bitcast(x.astype("f32"), "i32")
    return ops.where(bits < 0, ops.bitwise_xor(bits, _MOST), bits)


def descending(x: Array) -> Array:
    """The other way round: NaN least."""
    return ops.bitwise_not(ascending(x))


def nan_first(key: Array, x: Array) -> Array:
    """The key with every NaN of x the greatest."""
    return ops.where(ops.isnan(x), _MOST, key) if is_float(x) else key
