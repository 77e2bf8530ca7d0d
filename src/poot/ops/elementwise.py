"""Functions of elements, one a primitive, and what is made of them. Operands broadcast as in
numpy."""

from __future__ import annotations

import math

from poot.ops.array import Array, Operand, binary, emit, operands, power
from poot.ops.record import refuse


def neg(x: Array) -> Array:
    """-x."""
    return emit("neg", x)


def exp(x: Array) -> Array:
    """e to the x."""
    return emit("exp", x)


def exp2(x: Array) -> Array:
    """2 to the x, as exp(x * ln 2)."""
    return emit("exp", x * math.log(2.0))


def log(x: Array) -> Array:
    """The natural logarithm."""
    return emit("log", x)


def sqrt(x: Array) -> Array:
    """The square root."""
    return emit("sqrt", x)


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return emit("rsqrt", x)


def recip(x: Array) -> Array:
    """1 / x."""
    return emit("recip", x)


def sin(x: Array) -> Array:
    """The sine of x in radians."""
    return emit("sin", x)


def cos(x: Array) -> Array:
    """The cosine of x in radians."""
    return emit("cos", x)


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return emit("tanh", x)


def erf(x: Array) -> Array:
    """The error function."""
    return emit("erf", x)


def abs(x: Array) -> Array:
    """The magnitude."""
    return emit("abs", x)


def floor(x: Array) -> Array:
    """The largest whole number not above x."""
    return emit("floor", x)


def square(x: Array) -> Array:
    """x * x."""
    return emit("mul", x, x)


def pow(x: Array, exponent: int | float) -> Array:
    """x ** exponent for an int, 0.5 or -0.5."""
    return power(x, exponent)


def add(a: Operand, b: Operand) -> Array:
    """a + b."""
    return binary("add", a, b)


def sub(a: Operand, b: Operand) -> Array:
    """a - b."""
    return binary("sub", a, b)


def mul(a: Operand, b: Operand) -> Array:
    """a * b."""
    return binary("mul", a, b)


def div(a: Operand, b: Operand) -> Array:
    """a / b of floats; integers truncate toward zero, and over 0 give 0 (`//` rounds down
    instead)."""
    return binary("div", a, b)


def rem(a: Operand, b: Operand) -> Array:
    """a - b * trunc(a / b), with the sign of a; by 0 gives 0 (`%` has the sign of b instead)."""
    return binary("rem", a, b)


def maximum(a: Operand, b: Operand) -> Array:
    """The larger; NaN if either is NaN."""
    return binary("max", a, b)


def minimum(a: Operand, b: Operand) -> Array:
    """The smaller; NaN if either is NaN."""
    return binary("min", a, b)


def clip(x: Array, lo: Operand | None = None, hi: Operand | None = None) -> Array:
    """min(max(x, lo), hi); a bound of None isn't applied."""
    if lo is None and hi is None:
        refuse("clip", "lo or hi", x=x.type)
    x = x if lo is None else binary("max", x, lo)
    return x if hi is None else binary("min", x, hi)


def equal(a: Operand, b: Operand) -> Array:
    """a == b, bool; false with NaN."""
    return binary("eq", a, b)


def not_equal(a: Operand, b: Operand) -> Array:
    """a != b, bool; true with NaN."""
    return binary("ne", a, b)


def less(a: Operand, b: Operand) -> Array:
    """a < b, bool; false with NaN."""
    return binary("lt", a, b)


def less_equal(a: Operand, b: Operand) -> Array:
    """a <= b, bool; false with NaN."""
    return binary("le", a, b)


def greater(a: Operand, b: Operand) -> Array:
    """a > b, bool; false with NaN."""
    return binary("gt", a, b)


def greater_equal(a: Operand, b: Operand) -> Array:
    """a >= b, bool; false with NaN."""
    return binary("ge", a, b)


def isnan(x: Array) -> Array:
    """Where x is NaN, bool."""
    return emit("ne", x, x)


def bitwise_and(a: Operand, b: Operand) -> Array:
    """a & b of i32, u32 or bool."""
    return binary("and", a, b)


def bitwise_or(a: Operand, b: Operand) -> Array:
    """a | b of i32, u32 or bool."""
    return binary("or", a, b)


def bitwise_xor(a: Operand, b: Operand) -> Array:
    """a ^ b of i32, u32 or bool."""
    return binary("xor", a, b)


def bitwise_not(x: Array) -> Array:
    """~x of i32, u32 or bool."""
    return emit("not", x)


def left_shift(a: Operand, b: Operand) -> Array:
    """a << (b & 31)."""
    return binary("shl", a, b)


def right_shift(a: Operand, b: Operand) -> Array:
    """a >> (b & 31): arithmetic on i32, logical on u32."""
    return binary("shr", a, b)


def _logical(op: str, *values: Array) -> Array:
    for x in values:
        if x.dtype != "bool":
            refuse(f"logical_{op}", "bools", "Write x != 0", x=x.type)
    return emit(op, *values)


def logical_and(a: Array, b: Array) -> Array:
    """Both, bool."""
    return _logical("and", a, b)


def logical_or(a: Array, b: Array) -> Array:
    """Either, bool."""
    return _logical("or", a, b)


def logical_xor(a: Array, b: Array) -> Array:
    """One but not both, bool."""
    return _logical("xor", a, b)


def logical_not(x: Array) -> Array:
    """Not x, bool."""
    return _logical("not", x)


def where(cond: Operand, a: Operand, b: Operand) -> Array:
    """a where cond (bool), else b. The side not taken never reaches the result, NaN or not."""
    x, y = operands("where", a, b)
    if x.dtype != y.dtype:
        refuse(
            "where",
            "branches of one dtype",
            "Write .astype(...) on one of them",
            a=x.type,
            b=y.type,
        )
    return emit("select", *operands("where", cond), x, y)


def cast(x: Array, dtype: str) -> Array:
    """x in another dtype. Floats round to nearest even; float to integer truncates and saturates,
    NaN gives 0; integers wrap; to bool is x != 0."""
    return x.astype(dtype)


def bitcast(x: Array, dtype: str) -> Array:
    """The same bits under another dtype of the same size."""
    return x if dtype == x.dtype else emit("bitcast", x, dtype=dtype)
