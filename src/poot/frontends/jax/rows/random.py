"""What jax.random's default implementation is made of."""

from __future__ import annotations

import math

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.elementwise import log1p
from poot.ops.array import Array, reshape
from poot.ops.record import refuse

# Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011: Threefry 2x32 of 20 rounds.
_TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

# Giles, "Approximating the erfinv function", 2010: single precision, the highest power first.
_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def threefry2x32(site: Site, k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Two words of each counter (x0, x1) under the key (k0, k1), all u32."""
    keys = (k0, k1, ops.bitwise_xor(ops.bitwise_xor(k0, k1), _PARITY))
    a, b = x0 + keys[0], x1 + keys[1]
    for n in range(5):
        for turn in _TURNS[n % 2]:
            a = a + b
            turned = ops.bitwise_or(ops.left_shift(b, turn), ops.right_shift(b, 32 - turn))
            b = ops.bitwise_xor(turned, a)
        a, b = a + keys[(n + 1) % 3], b + keys[(n + 2) % 3] + (n + 1)
    high, low = site.types
    return ops.broadcast_to(a, high.shape), ops.broadcast_to(b, low.shape)


def iota_2x32_shape(site: Site, *, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The flat index of each element as two words: the high one, and the low one."""
    if math.prod(shape) >= 1 << 31:
        refuse("iota_2x32_shape", "fewer than 2^31 elements", shape=shape)
    flat = ops.iota((math.prod(shape),), axis=0).astype("u32")
    return ops.zeros(shape, "u32"), reshape(flat, shape)


def erf_inv(site: Site, x: Array) -> Array:
    """The y whose erf is x: infinite at 1 and -1, NaN outside. Two polynomials, in f32."""
    wide = x.astype("f32")
    w = -log1p(-(wide * wide))
    far = ops.sqrt(ops.maximum(w, 5.0)) - 3.0
    scaled = ops.where(w < 5.0, _polynomial(_NEAR, w - 2.5), _polynomial(_FAR, far)) * wide
    ends = ops.where(ops.abs(wide) > 1.0, math.nan, wide * math.inf)
    return ops.where(ops.abs(wide) >= 1.0, ends, scaled).astype(x.dtype)


def _polynomial(factors: tuple[float, ...], w: Array) -> Array:
    total = w * factors[0] + factors[1]
    for factor in factors[2:]:
        total = total * w + factor
    return total


RANDOM: dict[str, Row] = {
    "threefry2x32": threefry2x32,
    "iota_2x32_shape": iota_2x32_shape,
    "erf_inv": erf_inv,
}
