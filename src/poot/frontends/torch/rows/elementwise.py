"""Elementwise ATen ops. A result has the dtype that the program says: operands are cast to it, as
ATen promotes them, and comparisons compare in the operands' promoted dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeGuard

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.frontends.torch.rows.values import Number, Value, in_dtype, is_float, number, promoted
from poot.ir.graph import TensorType
from poot.ops.array import Array
from poot.ops.array import power as whole_power
from poot.ops.record import refuse

# Integers for storage, in which nothing is computed.
BYTES = ("u8", "i8")
One = Callable[[Array], Array]
Two = Callable[[Array, Array], Array]


def _of_bytes(row: Row) -> Row:
    """The row, of integers of 8 bits by way of i32: what passes 8 bits wraps, as ATen's does."""

    def in_words(site: Site, *args: Value | str | None, **options: Value | str | None) -> Array:
        if site.dtype not in BYTES:
            made = row(site, *args, **options)
        else:
            wide = [x.astype("i32") if _is_bytes(x) else x for x in args]
            made = row(Site((TensorType("i32", site.shape),)), *wide, **options)
        assert isinstance(made, Array)
        return made.astype(site.dtype) if site.dtype in BYTES else made

    return in_words


def _is_bytes(x: Value | str | None) -> TypeGuard[Array]:
    return isinstance(x, Array) and x.dtype in BYTES


def _float_unary(fn: One) -> Row:
    """A function of floats: of integers it is that of their values as floats."""

    def row(site: Site, x: Array) -> Array:
        return fn(x.astype(site.dtype))

    return row


def _unary(fn: One) -> Row:
    def row(site: Site, x: Array) -> Array:
        return fn(x)

    return row


def _arithmetic(fn: Two, of_bools: Two | None = None) -> Row:
    def row(site: Site, a: Value, b: Value, alpha: Number = 1) -> Array:
        x, y = in_dtype(a, site.dtype), in_dtype(b, site.dtype)
        if site.dtype == "bool" and of_bools is not None:
            return of_bools(x, y)
        return fn(x, y if alpha == 1 else y * number(alpha, site.dtype))

    return row


def _turned(fn: Two) -> Row:
    def row(site: Site, a: Value, b: Value, alpha: Number = 1) -> Array:
        x, y = in_dtype(a, site.dtype), in_dtype(b, site.dtype)
        return fn(y, x if alpha == 1 else x * number(alpha, site.dtype))

    return row


def _comparison(fn: Two) -> Row:
    def row(site: Site, a: Value, b: Value) -> Array:
        dtype = promoted(a, b)
        if dtype == "bool" or dtype in BYTES:  # bools compare as the numbers 0 and 1
            dtype = "i32"
        return fn(in_dtype(a, dtype), in_dtype(b, dtype))

    return row


def _bitwise(fn: Two) -> Row:
    def row(site: Site, a: Value, b: Value) -> Array:
        return fn(in_dtype(a, site.dtype), in_dtype(b, site.dtype))

    return row


def _logical(fn: Two) -> Row:
    def row(site: Site, a: Value, b: Value) -> Array:
        return fn(in_dtype(a, "bool"), in_dtype(b, "bool"))

    return row


def logical_not(site: Site, x: Array) -> Array:
    return ops.logical_not(x.astype("bool"))


# Rounding.


def ceil(x: Array) -> Array:
    return -ops.floor(-x) if is_float(x) else x


def floor(x: Array) -> Array:
    return ops.floor(x) if is_float(x) else x


def trunc(x: Array) -> Array:
    return ops.where(x < 0, ceil(x), floor(x)) if is_float(x) else x


def round_half_even(site: Site, x: Array) -> Array:
    """The nearest whole number, the even one of two."""
    if not is_float(x):
        return x
    low = ops.floor(x)
    rest = x - low
    is_odd = low - ops.floor(low * 0.5) * 2.0 != 0.0
    is_up = ops.logical_or(rest > 0.5, ops.logical_and(rest == 0.5, is_odd))
    return ops.where(is_up, low + 1.0, low)


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 of NaN."""
    if x.dtype == "bool":
        return x
    one, zero = number(1, x.dtype), number(0, x.dtype)
    return ops.where(x > 0, one, ops.where(x < 0, -one, zero))


# Division.


def divide(site: Site, a: Value, b: Value) -> Array:
    return ops.div(in_dtype(a, site.dtype), in_dtype(b, site.dtype))


def divide_mode(site: Site, a: Value, b: Value, rounding_mode: str | None) -> Array:
    """a / b, whole ("floor" or "trunc") where a mode is given."""
    x, y = in_dtype(a, site.dtype), in_dtype(b, site.dtype)
    if rounding_mode == "floor":
        return x // y
    quotient = ops.div(x, y)
    return trunc(quotient) if rounding_mode == "trunc" else quotient


def remainder(site: Site, a: Value, b: Value) -> Array:
    return in_dtype(a, site.dtype) % in_dtype(b, site.dtype)


def floor_divide(site: Site, a: Value, b: Value) -> Array:
    return in_dtype(a, site.dtype) // in_dtype(b, site.dtype)


# Powers and logarithms.


def power_of_number(site: Site, x: Value, exponent: Number) -> Array:
    """x ** exponent; of another exponent than a whole one or a half, exp(exponent * log(x)), which
    is NaN below zero as ATen's is."""
    base = in_dtype(x, site.dtype)
    if exponent in (0.5, -0.5) or exponent == int(exponent):
        is_root = exponent in (0.5, -0.5)
        return whole_power(base, float(exponent) if is_root else int(exponent))
    return ops.exp(ops.log(base) * number(exponent, site.dtype))


def power(site: Site, a: Value, b: Value) -> Array:
    """a ** b: exp(b * log |a|), with the sign that a whole b gives a negative a; NaN where a is
    negative and b is not whole, 1 where b is 0."""
    x, y = in_dtype(a, site.dtype), in_dtype(b, site.dtype)
    size = ops.exp(y * ops.log(ops.abs(x)))
    half = y * 0.5
    is_whole, is_even = ops.floor(y) == y, ops.floor(half) == half
    below = ops.where(is_even, size, -size)
    below = ops.where(is_whole, below, number(math.nan, site.dtype))
    return ops.where(y == 0.0, number(1.0, site.dtype), ops.where(x < 0.0, below, size))


def number_to_power(site: Site, base: Number, x: Array) -> Array:
    return power(site, base, x)


def log1p(x: Array) -> Array:
    """log(1 + x), near zero too: what 1 + x rounds away is given back by the quotient."""
    one_more = x + 1.0
    safe = ops.where(one_more == 1.0, number(2.0, x.dtype), one_more)
    near = ops.log(safe) * (x / (safe - 1.0))
    is_finite = ops.abs(one_more) < math.inf
    return ops.where(one_more == 1.0, x, ops.where(is_finite, near, ops.log(one_more)))


def expm1(x: Array) -> Array:
    """exp(x) - 1, near zero too: tanh(x / 2) * (exp(x) + 1)."""
    near = ops.tanh(x * 0.5) * (ops.exp(x) + 1.0)
    return ops.where(ops.abs(x) < 1.0, near, ops.exp(x) - 1.0)


# Activations.


def gelu(site: Site, x: Array, approximate: str = "none") -> Array:
    return ops.gelu_tanh(x) if approximate == "tanh" else ops.gelu(x)


def leaky_relu(site: Site, x: Array, negative_slope: Number = 0.01) -> Array:
    return ops.where(x > 0, x, x * number(negative_slope, x.dtype))


def hardtanh(site: Site, x: Array, min_val: Number = -1.0, max_val: Number = 1.0) -> Array:
    return ops.clip(x, number(min_val, x.dtype), number(max_val, x.dtype))


def elu(
    site: Site, x: Array, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0
) -> Array:
    below = expm1(x * float(input_scale)) * float(alpha)
    return ops.where(x > 0, x, below) * float(scale)


def softplus(site: Site, x: Array, beta: Number = 1.0, threshold: Number = 20.0) -> Array:
    """log(1 + exp(beta x)) / beta, and x itself past the threshold."""
    scaled = x * float(beta)
    smooth = ops.maximum(scaled, 0.0) + log1p(ops.exp(-ops.abs(scaled)))
    return ops.where(scaled > float(threshold), x, smooth / float(beta))


def clamp(site: Site, x: Array, low: Value | None = None, high: Value | None = None) -> Array:
    lo = None if low is None else in_dtype(low, site.dtype)
    hi = None if high is None else in_dtype(high, site.dtype)
    return ops.clip(x.astype(site.dtype), lo, hi)


def clamp_any(site: Site, x: Array, low: Value | None = None, high: Value | None = None) -> Array:
    """clamp; of 8 bits by bounds as these hold them, as ATen has it: in u8 -1 is 255."""
    if site.dtype not in BYTES:
        return clamp(site, x, low, high)
    wide = Site((TensorType("i32", site.shape),))
    bounds = [None if b is None else _in_byte(b, site.dtype) for b in (low, high)]
    return clamp(wide, x.astype("i32"), *bounds).astype(site.dtype)


def _in_byte(bound: Value, dtype: str) -> Value:
    if isinstance(bound, Array):
        return bound.astype(dtype).astype("i32")
    least, most = (-255, 255) if dtype == "u8" else (-128, 127)
    if not least <= bound <= most:
        refuse("clamp", f"a bound in {least}..{most}", bound=bound)
    return int(bound) & 255 if dtype == "u8" else int(bound)


def where(site: Site, cond: Array, a: Value, b: Value) -> Array:
    x, y = in_dtype(a, site.dtype), in_dtype(b, site.dtype)
    return ops.where(cond.astype("bool"), x, y)


def masked_fill(site: Site, x: Array, mask: Array, value: Value) -> Array:
    return ops.where(mask, in_dtype(value, x.dtype), x)


def isinf(x: Array) -> Array:
    if not is_float(x):
        return ops.zeros(x.shape, "bool")
    return ops.abs(x) == math.inf


def isnan(x: Array) -> Array:
    return ops.isnan(x) if is_float(x) else ops.zeros(x.shape, "bool")


_FLOATS: dict[str, One] = {
    "exp": ops.exp,
    "exp2": ops.exp2,
    "log": ops.log,
    "log2": lambda x: ops.log(x) * (1.0 / math.log(2.0)),
    "log10": lambda x: ops.log(x) * (1.0 / math.log(10.0)),
    "log1p": log1p,
    "expm1": expm1,
    "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt,
    "reciprocal": ops.recip,
    "sin": ops.sin,
    "cos": ops.cos,
    "tan": lambda x: ops.sin(x) / ops.cos(x),
    "sinh": lambda x: (ops.exp(x) - ops.exp(-x)) * 0.5,
    "cosh": lambda x: (ops.exp(x) + ops.exp(-x)) * 0.5,
    "tanh": ops.tanh,
    "erf": ops.erf,
    "sigmoid": ops.sigmoid,
    "silu": ops.silu,
}
_ANY: dict[str, One] = {
    "abs": ops.abs,
    "neg": ops.neg,
    "relu": ops.relu,
    "square": ops.square,
    "sign": sign,
    "ceil": ceil,
    "floor": floor,
    "trunc": trunc,
    "isinf": isinf,
    "isnan": isnan,
    "bitwise_not": ops.bitwise_not,
}
_COMPARISONS: dict[str, Two] = {
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}
_BITS: dict[str, Two] = {
    "bitwise_and": ops.bitwise_and,
    "bitwise_or": ops.bitwise_or,
    "bitwise_xor": ops.bitwise_xor,
}
_LOGIC: dict[str, Two] = {
    "logical_and": ops.logical_and,
    "logical_or": ops.logical_or,
    "logical_xor": ops.logical_xor,
}
_ARITHMETIC: dict[str, Row] = {
    "add": _arithmetic(ops.add, ops.logical_or),
    "sub": _arithmetic(ops.sub),
    "rsub": _turned(ops.sub),
    "mul": _arithmetic(ops.mul, ops.logical_and),
    "div": divide,
    "remainder": remainder,
    "fmod": _arithmetic(ops.rem),
}

ELEMENTWISE: dict[str, Row] = {
    **{f"{name}.default": _float_unary(fn) for name, fn in _FLOATS.items()},
    **{f"{name}.default": _of_bytes(_unary(fn)) for name, fn in _ANY.items()},
    **{f"{n}.{k}": _of_bytes(r) for n, r in _ARITHMETIC.items() for k in ("Tensor", "Scalar")},
    **{f"{n}.{k}": _comparison(fn) for n, fn in _COMPARISONS.items() for k in ("Tensor", "Scalar")},
    **{f"{n}.{k}": _of_bytes(_bitwise(f)) for n, f in _BITS.items() for k in ("Tensor", "Scalar")},
    **{f"{name}.default": _logical(fn) for name, fn in _LOGIC.items()},
    "logical_not.default": logical_not,
    "round.default": round_half_even,
    "div.Tensor_mode": _of_bytes(divide_mode),
    "div.Scalar_mode": _of_bytes(divide_mode),
    "floor_divide.default": _of_bytes(floor_divide),
    "maximum.default": _of_bytes(_arithmetic(ops.maximum)),
    "minimum.default": _of_bytes(_arithmetic(ops.minimum)),
    "pow.Tensor_Scalar": _of_bytes(power_of_number),
    "pow.Scalar": number_to_power,
    "pow.Tensor_Tensor": power,
    "gelu.default": gelu,
    "leaky_relu.default": leaky_relu,
    "hardtanh.default": hardtanh,
    "elu.default": elu,
    "softplus.default": softplus,
    "clamp.default": clamp_any,
    "clamp.Tensor": clamp_any,
    "clamp_min.default": clamp_any,
    "where.self": where,
    "masked_fill.Scalar": masked_fill,
    "masked_fill.Tensor": masked_fill,
}
