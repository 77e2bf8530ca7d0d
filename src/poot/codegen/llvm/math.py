"""Elementary functions as polynomials over whole vectors: exp2 and log2 within kir/ops.py's bounds.

Minimax fits made for poot (Lawson's reweighted least squares on Chebyshev nodes); the test refits
and measures them.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.codegen.llvm.body import Body, overload
from poot.codegen.llvm.types import choose, convert, float_bits, i32

# (2^f - 1) / f on |f| <= 1/2, lowest first.
EXP2 = (
    0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957,
    0.001326472731307149,
)  # fmt: skip
# log2(1 + f) / f on sqrt(1/2) - 1 .. sqrt(2) - 1, lowest first.
LOG2 = (
    1.4426950216293335, -0.7213472127914429, 0.4809102714061737, -0.3607162535190582,
    0.2879391014575958, -0.23867568373680115, 0.21521225571632385, -0.20893383026123047,
    0.12926432490348816,
)  # fmt: skip
_SQRT_HALF_BITS = 0x3F3504F3


def _binary(b: Body, op: str, x: str, y: str, wide: bool) -> str:
    return b.ins(f"{op} {b.shaped('float', wide)} {x}, {y}")


def _compare(b: Body, how: str, x: str, y: float, wide: bool) -> str:
    return b.ins(f"fcmp {how} {b.shaped('float', wide)} {x}, {b.const('f32', y, wide)}")


def fma(b: Body, x: str, y: str, z: str, wide: bool) -> str:
    """x * y + z, rounded once where the machine has it."""
    type = b.shaped("float", wide)
    return b.call(f"llvm.fmuladd.{overload(type)}", type, [(type, x), (type, y), (type, z)])


def _polynomial(b: Body, x: str, coefficients: Sequence[float], wide: bool) -> str:
    total = b.const("f32", coefficients[-1], wide)
    for c in reversed(coefficients[:-1]):
        total = fma(b, total, x, b.const("f32", c, wide), wide)
    return total


def _pick(b: Body, cond: str, x: str, y: str, wide: bool) -> str:
    return choose(b, "float", cond, x, y, wide)


def exp2(b: Body, dtype: str, ids: Sequence[str], wide: bool) -> str:
    """2 to the a = 2^n 2^f: n the nearest whole number, |f| <= 1/2. Below -126 it is 0, or a
    subnormal."""
    a, kind = ids[0], b.shaped("float", wide)
    if wide and b.width == 16 and b.has_avx512:
        return _scaled_exp2(b, a, kind)
    low, high = b.const("f32", -126.0, wide), b.const("f32", 128.0, wide)
    held = _pick(b, _compare(b, "ogt", a, -126.0, wide), a, low, wide)
    held = _pick(b, _compare(b, "olt", held, 128.0, wide), held, high, wide)
    whole = b.call(f"llvm.rint.{overload(kind)}", kind, [(kind, held)])
    f = _binary(b, "fsub", held, whole, wide)
    p = fma(b, _polynomial(b, f, EXP2, wide), f, b.const("f32", 1.0, wide), wide)
    n = convert(b, "fptosi", whole, "float", "i32", wide)
    bits = i32(b, "add", float_bits(b, p, wide), i32(b, "shl", n, 23, wide), wide)
    scaled = convert(b, "bitcast", bits, "i32", "float", wide)
    zero = b.const("f32", 0.0, wide)
    scaled = _pick(b, _compare(b, "olt", a, -126.0, wide), zero, scaled, wide)
    return _pick(b, b.ins(f"fcmp uno {kind} {a}, {a}"), a, scaled, wide)


def _scaled_exp2(b: Body, a: str, kind: str) -> str:
    """By AVX-512's own parts: VREDUCEPS gives f, 0 of an infinity, and VSCALEFPS takes any n
    (Intel's manual, volume 2)."""
    rest = [("<16 x float>", "zeroinitializer"), ("i16", "-1"), ("i32", "4")]
    whole = b.call(f"llvm.rint.{overload(kind)}", kind, [(kind, a)])
    reduce = [(kind, a), ("i32", "0"), *rest]
    f = b.call("llvm.x86.avx512.mask.reduce.ps.512", kind, reduce)
    p = fma(b, _polynomial(b, f, EXP2, True), f, b.const("f32", 1.0, True), True)
    return b.call("llvm.x86.avx512.mask.scalef.ps.512", kind, [(kind, p), (kind, whole), *rest])


def log2(b: Body, dtype: str, ids: Sequence[str], wide: bool) -> str:
    """log2(2^e (1 + f)) = e + log2(1 + f), 1 + f from sqrt(1/2) to sqrt(2); subnormals are 0."""
    a, kind = ids[0], b.shaped("float", wide)
    bits = float_bits(b, a, wide)
    e = i32(b, "ashr", i32(b, "sub", bits, _SQRT_HALF_BITS, wide), 23, wide)
    mantissa = i32(b, "sub", bits, i32(b, "shl", e, 23, wide), wide)
    m = convert(b, "bitcast", mantissa, "i32", "float", wide)
    f = _binary(b, "fadd", m, b.const("f32", -1.0, wide), wide)
    exponent = convert(b, "sitofp", e, "i32", "float", wide)
    value = fma(b, _polynomial(b, f, LOG2, wide), f, exponent, wide)
    infinite = b.const("f32", float("inf"), wide)
    value = _pick(b, _compare(b, "oeq", a, float("inf"), wide), infinite, value, wide)
    least = b.const("f32", float("-inf"), wide)
    is_zero = _compare(b, "olt", a, 1.1754943508222875e-38, wide)
    value = _pick(b, is_zero, least, value, wide)
    nan = b.const("f32", float("nan"), wide)
    is_negative = _compare(b, "olt", a, -1.1754943508222875e-38, wide)
    value = _pick(b, is_negative, nan, value, wide)
    return _pick(b, b.ins(f"fcmp uno {kind} {a}, {a}"), a, value, wide)
