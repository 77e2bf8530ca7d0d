"""Elementwise primitives. JAX has promoted the operands already: they are of one dtype, and of one
shape but for scalars."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.elementwise import (
    ceil,
    expm1,
    floor,
    log1p,
    power,
    round_half_even,
    sign,
    trunc,
)
from poot.frontends.torch.rows.values import is_float, number
from poot.ops.array import Array
from poot.ops.array import power as whole_power
from poot.ops.record import refuse

One = Callable[[Array], Array]
Two = Callable[[Array, Array], Array]


def _unary(fn: One) -> Row:
    def row(site: Site, x: Array, **_: object) -> Array:
        return fn(x)

    return row


def _binary(fn: Two, of_bools: Two | None = None) -> Row:
    def row(site: Site, a: Array, b: Array, **_: object) -> Array:
        is_bool = a.dtype == "bool" and of_bools is not None
        return of_bools(a, b) if is_bool and of_bools is not None else fn(a, b)

    return row


def _comparison(fn: Two) -> Row:
    """Bools compare as the numbers 0 and 1."""

    def row(site: Site, a: Array, b: Array, **_: object) -> Array:
        if a.dtype == "bool":
            a, b = a.astype("i32"), b.astype("i32")
        return fn(a, b)

    return row


def literal(site: Site, value: bool | int | float | np.ndarray) -> Array:
    """A number, or an array, that the program holds."""
    if isinstance(value, np.ndarray):
        return ops.broadcast_to(value, site.shape)
    return ops.broadcast_to(number(value, site.dtype), site.shape)


def cast(site: Site, x: Array, **_: object) -> Array:
    return x.astype(site.dtype)


def bitcast(site: Site, x: Array, **_: object) -> Array:
    return ops.bitcast(x, site.dtype)


def same(site: Site, x: Array, **_: object) -> Array:
    """The value itself."""
    return x


def barrier(site: Site, *xs: Array, **_: object) -> tuple[Array, ...]:
    """The values themselves: nothing is moved over a barrier that isn't equal on both sides."""
    return xs


def reduce_precision(site: Site, x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """x rounded to another float, in its own dtype."""
    known = {(8, 23): "f32", (5, 10): "f16", (8, 7): "bf16"}
    to = known.get((exponent_bits, mantissa_bits))
    if to is None:
        refuse("reduce_precision", "the bits of f32, f16 or bf16", e=exponent_bits, m=mantissa_bits)
    return x if to == "f32" else x.astype(to).astype(x.dtype)


def round_(site: Site, x: Array, rounding_method: object, **_: object) -> Array:
    """The nearest whole number; of two the even one, or that away from zero."""
    method = getattr(rounding_method, "value", rounding_method)
    if method == 1:
        return round_half_even(site, x)
    low = trunc(x)
    away = ops.where(x < 0, low - 1.0, low + 1.0)
    return ops.where(ops.abs(x - low) >= 0.5, away, low)


def sign_(site: Site, x: Array, **_: object) -> Array:
    """-1, 0 or 1; NaN of NaN."""
    return ops.where(ops.isnan(x), x, sign(x)) if is_float(x) else sign(x)


def is_finite(site: Site, x: Array, **_: object) -> Array:
    return ops.abs(x) < math.inf


def integer_pow(site: Site, x: Array, y: int) -> Array:
    return whole_power(x, y)


def pow_(site: Site, a: Array, b: Array, **_: object) -> Array:
    return power(site, a.astype(site.dtype), b.astype(site.dtype))


def nextafter(site: Site, a: Array, b: Array) -> Array:
    """The f32 next to a on the way to b."""
    if site.dtype != "f32":
        refuse("nextafter", "f32", a=a.type)
    bits = ops.bitcast(a, "i32")
    away = ops.equal(ops.greater(b, a), a > 0.0)
    step = ops.bitcast(ops.where(away, bits + 1, bits - 1), "f32")
    least = ops.bitcast(ops.where(b > 0.0, number(1, "i32"), -(2**31) + 1), "f32")
    near = ops.where(ops.equal(a, b), b, ops.where(a == 0.0, least, step))
    return ops.where(ops.logical_or(ops.isnan(a), ops.isnan(b)), math.nan, near)


def select_n(site: Site, which: Array, *cases: Array) -> Array:
    """The case whose number `which` is: of a bool false the first, true the second."""
    if which.dtype == "bool":
        return ops.where(which, cases[-1], cases[0])
    out = cases[-1]
    for n in range(len(cases) - 2, -1, -1):
        out = ops.where(which <= n, cases[n], out)
    return out


def clamp(site: Site, low: Array, x: Array, high: Array) -> Array:
    return ops.clip(x, low, high)


def from_end(site: Site, index: Array, extent: int) -> Array:
    """An index that counts from the end where it is negative."""
    held = index.interval
    if held is not None and held.lo >= 0:
        return index
    return ops.where(index < 0, index + extent, index)


def shift_right_logical(site: Site, a: Array, b: Array, **_: object) -> Array:
    """Zeros come in from the left; all of them, by as many bits as there are or more."""
    return _if_inside(b, _logical(a, b), 0)


def _logical(a: Array, b: Array) -> Array:
    if a.dtype == "i32":
        return ops.bitcast(ops.right_shift(ops.bitcast(a, "u32"), ops.bitcast(b, "u32")), "i32")
    return ops.right_shift(a, b)


def shift_left(site: Site, a: Array, b: Array, **_: object) -> Array:
    """Zeros come in from the right; all of them, by as many bits as there are or more."""
    return _if_inside(b, ops.left_shift(a, b), 0)


def _fits(b: Array) -> Array:
    """Where a shift is by 0 to 31; a negative one counts as one by 2^32 and more."""
    return b < 32 if b.dtype == "u32" else ops.logical_and(b >= 0, b < 32)


def _is_inside(b: Array) -> bool:
    held = b.interval
    return held is not None and held.lo >= 0 and held.hi < 32


def _if_inside(b: Array, shifted: Array, outside: int) -> Array:
    return shifted if _is_inside(b) else ops.where(_fits(b), shifted, outside)


def shift_right_arithmetic(site: Site, a: Array, b: Array, **_: object) -> Array:
    """The sign comes in from the left."""
    b = b if _is_inside(b) else ops.where(_fits(b), b, 31)
    if a.dtype == "u32":
        return ops.bitcast(ops.right_shift(ops.bitcast(a, "i32"), ops.bitcast(b, "i32")), "u32")
    return ops.right_shift(a, b)


def not_(site: Site, x: Array) -> Array:
    return ops.logical_not(x) if x.dtype == "bool" else ops.bitwise_not(x)


_UNARY: dict[str, One] = {
    "neg": ops.neg,
    "exp": ops.exp,
    "exp2": ops.exp2,
    "log": ops.log,
    "log1p": log1p,
    "expm1": expm1,
    "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt,
    "sin": ops.sin,
    "cos": ops.cos,
    "tan": lambda x: ops.sin(x) / ops.cos(x),
    "tanh": ops.tanh,
    "sinh": lambda x: (ops.exp(x) - ops.exp(-x)) * 0.5,
    "cosh": lambda x: (ops.exp(x) + ops.exp(-x)) * 0.5,
    "logistic": ops.sigmoid,
    "erf": ops.erf,
    "erfc": lambda x: 1.0 - ops.erf(x),
    "abs": ops.abs,
    "floor": floor,
    "ceil": ceil,
    "square": ops.square,
}
_BINARY: dict[str, Row] = {
    "add": _binary(ops.add, ops.logical_or),
    "add_any": _binary(ops.add),
    "sub": _binary(ops.sub),
    "mul": _binary(ops.mul, ops.logical_and),
    "div": _binary(ops.div),
    "rem": _binary(ops.rem),
    "max": _binary(ops.maximum, ops.logical_or),
    "min": _binary(ops.minimum, ops.logical_and),
    "and": _binary(ops.bitwise_and, ops.logical_and),
    "or": _binary(ops.bitwise_or, ops.logical_or),
    "xor": _binary(ops.bitwise_xor, ops.logical_xor),
    "eq": _comparison(ops.equal),
    "ne": _comparison(ops.not_equal),
    "lt": _comparison(ops.less),
    "le": _comparison(ops.less_equal),
    "gt": _comparison(ops.greater),
    "ge": _comparison(ops.greater_equal),
}
_SAME = ("stop_gradient", "copy", "copy_p", "name", "sharding_constraint", "pvary", "mesh_cast")

ELEMENTWISE: dict[str, Row] = {
    **{name: _unary(fn) for name, fn in _UNARY.items()},
    **_BINARY,
    **dict.fromkeys(_SAME, same),
    "literal": literal,
    "from_end": from_end,
    "convert_element_type": cast,
    "bitcast_convert_type": bitcast,
    "optimization_barrier": barrier,
    "reduce_precision": reduce_precision,
    "round": round_,
    "sign": sign_,
    "is_finite": is_finite,
    "integer_pow": integer_pow,
    "pow": pow_,
    "nextafter": nextafter,
    "select_n": select_n,
    "clamp": clamp,
    "shift_left": shift_left,
    "shift_right_logical": shift_right_logical,
    "shift_right_arithmetic": shift_right_arithmetic,
    "not": not_,
}
