"""Edges of the element by element rows: each table is the definition that emitters obey."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.support.check import plain
from tests.support.evaluate import evaluate, one

NAN, INF = math.nan, math.inf
BF16 = ml_dtypes.bfloat16
I32_MIN, I32_MAX = -(2**31), 2**31 - 1


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def u32(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def same(got: np.ndarray, want: object) -> None:
    np.testing.assert_array_equal(plain(got), plain(np.asarray(want).astype(got.dtype)))


FLOAT_EDGES = [
    ("neg", [0.0, -INF, NAN], [-0.0, INF, NAN]),
    ("exp", [0.0, -INF, INF, 1000.0, NAN], [1.0, 0.0, INF, INF, NAN]),
    ("log", [1.0, 0.0, -1.0, INF, NAN], [0.0, -INF, NAN, INF, NAN]),
    ("sqrt", [4.0, -1.0, INF, -0.0], [2.0, NAN, INF, -0.0]),
    ("rsqrt", [4.0, 0.0, -1.0, INF], [0.5, INF, NAN, 0.0]),
    ("recip", [2.0, 0.0, -0.0, INF], [0.5, INF, -INF, 0.0]),
    ("sin", [0.0, INF, NAN], [0.0, NAN, NAN]),
    ("cos", [0.0, INF, NAN], [1.0, NAN, NAN]),
    ("tanh", [0.0, INF, -INF, NAN], [0.0, 1.0, -1.0, NAN]),
    ("erf", [0.0, INF, -INF, NAN], [0.0, 1.0, -1.0, NAN]),
    ("abs", [-2.0, -0.0, -INF, NAN], [2.0, 0.0, INF, NAN]),
    ("floor", [1.5, -1.5, -0.0, INF], [1.0, -2.0, -0.0, INF]),
]


@pytest.mark.parametrize("op, x, want", FLOAT_EDGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_unary_edges(op: str, x: list[float], want: list[float], dtype: type):
    got = one(op, np.array(x, np.float32).astype(dtype))
    assert got.dtype == dtype
    same(got, want)
    assert np.signbit(plain(got)).tolist() == np.signbit(np.array(want)).tolist() or NAN in x + want


def test_integer_negation_and_magnitude_wrap():
    same(one("neg", i32(5, I32_MIN)), [-5, I32_MIN])
    same(one("abs", i32(-5, I32_MIN)), [5, I32_MIN])


def test_erf_agrees_with_libm():
    x = np.linspace(-6, 6, 241)
    want = [math.erf(v) for v in x.astype(np.float32).tolist()]
    np.testing.assert_allclose(one("erf", x.astype(np.float32), f64=True), want, rtol=1e-15)


def test_max_and_min_give_nan_if_either_is():
    a, b = f32(NAN, 1, NAN, -INF, 2), f32(1, NAN, NAN, 3, 1)
    same(one("max", a, b), [NAN, NAN, NAN, 3, 2])
    same(one("min", a, b), [NAN, NAN, NAN, -INF, 1])


def test_float_division_and_remainder_are_ieee():
    same(one("div", f32(1, -1, 0, INF), f32(0, 0, 0, INF)), [INF, -INF, NAN, NAN])
    same(one("rem", f32(5, -5, 5.5, 1, INF), f32(3, 3, -2, 0, 2)), [2, -2, 1.5, NAN, NAN])


INTEGER_EDGES = [
    ("add", i32(I32_MAX), i32(1), [I32_MIN]),
    ("sub", i32(I32_MIN), i32(1), [I32_MAX]),
    ("mul", i32(65536, I32_MIN), i32(65536, -1), [0, I32_MIN]),
    ("div", i32(7, -7, 7, -7, 5, I32_MIN), i32(2, 2, -2, -2, 0, -1), [3, -3, -3, 3, 0, I32_MIN]),
    ("rem", i32(7, -7, 7, -7, 5, I32_MIN), i32(2, 2, -2, -2, 0, -1), [1, -1, 1, -1, 0, 0]),
    ("max", i32(I32_MIN, 3), i32(0, -3), [0, 3]),
    ("add", u32(2**32 - 1), u32(1), [0]),
    ("sub", u32(0), u32(1), [2**32 - 1]),
    ("mul", u32(2**31), u32(2), [0]),
    ("div", u32(2**32 - 1, 3), u32(2, 0), [2**31 - 1, 0]),
    ("rem", u32(2**32 - 1, 3), u32(10, 0), [5, 0]),
    ("shl", i32(1, 1, -1, 1), i32(31, 32, 1, -1), [I32_MIN, 1, -2, I32_MIN]),
    ("shr", i32(-8, -8, 8, -1), i32(1, 33, 1, 31), [-4, -4, 4, -1]),
    ("shr", u32(2**31, 2**31), u32(31, 32), [1, 2**31]),
    ("shl", u32(3, 3), u32(31, 64), [2**31, 3]),
    ("and", i32(-1), i32(6), [6]),
    ("or", i32(-8), i32(3), [-5]),
    ("xor", i32(-1), i32(5), [-6]),
]


@pytest.mark.parametrize("op, a, b, want", INTEGER_EDGES)
def test_integer_edges(op: str, a: np.ndarray, b: np.ndarray, want: list[int]):
    got = one(op, a, b)
    assert got.dtype == a.dtype
    same(got, np.array(want, a.dtype))


def test_bits_of_bools_are_logical():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    same(one("and", a, b), [True, False, False])
    same(one("or", a, b), [True, True, False])
    same(one("xor", a, b), [False, True, False])
    same(one("not", a), [False, False, True])
    same(one("not", i32(0, -1)), [-1, 0])
    same(one("not", u32(0)), np.array([2**32 - 1], np.uint32))


@pytest.mark.parametrize(
    "op, want",
    [
        ("eq", [False, False, True, True]),
        ("ne", [True, True, False, False]),
        ("lt", [False, False, False, False]),
        ("le", [False, False, True, True]),
        ("gt", [False, False, False, False]),
        ("ge", [False, False, True, True]),
    ],
)
def test_comparisons_with_nan_are_false_but_for_unequal(op: str, want: list[bool]):
    a, b = f32(NAN, 1, INF, 0.0), f32(NAN, NAN, INF, -0.0)
    got = one(op, a, b)
    assert got.dtype == bool
    same(got, want)
    same(one(op, a.astype(BF16), b.astype(BF16)), want)


def test_integers_are_compared_as_integers():
    """2^24 + 1 and 2^24 are one number in f32."""
    same(one("eq", i32(2**24 + 1), i32(2**24)), [False])
    same(one("lt", u32(2**31), u32(1)), [False])


def test_select_never_lets_the_other_side_in():
    cond = np.array([True, False])
    same(one("select", cond, f32(1, NAN), f32(INF, 2)), [1, 2])
    same(one("select", cond, np.array(3, np.int32), i32(4, 5)), [3, 5])


CASTS = [
    (
        f32(2.9, -2.9, 3e9, -3e9, INF, -INF, NAN),
        "i32",
        [2, -2, I32_MAX, I32_MIN, I32_MAX, I32_MIN, 0],
    ),
    (f32(2.9, -2.9, 5e9, INF, NAN), "u32", [2, 0, 2**32 - 1, 2**32 - 1, 0]),
    (f32(200, -200, NAN), "i8", [127, -128, 0]),
    (f32(300, -1), "u8", [255, 0]),
    (f32(0.0, -0.0, 0.1, NAN), "bool", [False, False, True, True]),
    (i32(300, -1, I32_MIN), "i8", [44, -1, 0]),
    (i32(-1), "u32", [2**32 - 1]),
    (u32(2**32 - 1), "i32", [-1]),
    (i32(0, 5), "bool", [False, True]),
    (i32(2**24 + 1, 2**24 + 3), "f32", [2**24, 2**24 + 4]),
    (np.array([True, False]), "f16", [1, 0]),
    (np.array([True, False]), "i32", [1, 0]),
    (f32(65519, 65520, 1e-9), "f16", [65504, INF, 0]),
    (f32(1.00390625, 1.01171875), "bf16", [1.0, 1.015625]),
    (np.array([2.5, -0.5], np.float16), "i32", [2, 0]),
]


@pytest.mark.parametrize("x, dtype, want", CASTS)
def test_casts_round_truncate_saturate_and_wrap(x: np.ndarray, dtype: str, want: list[float]):
    same(one("cast", x, dtype=dtype), want)


def test_bitcasts_keep_the_bits():
    same(one("bitcast", f32(1.0, -0.0), dtype="u32"), np.array([0x3F800000, 0x80000000], np.uint32))
    same(one("bitcast", u32(0xFF800000), dtype="f32"), [-INF])
    same(one("bitcast", np.array([1.0], BF16), dtype="f16"), [1.875])
    same(one("bitcast", i32(-1), dtype="u32"), np.array([2**32 - 1], np.uint32))


def test_a_guard_clamps_and_says_where():
    clamped, witness = evaluate("index_guard", i32(-1, 0, 7, 8, I32_MAX), lo=0, hi=8)
    same(clamped, [0, 0, 7, 7, 7])
    same(witness, [False, True, True, False, False])


def test_16_bit_results_are_rounded_once_from_f32():
    a, b = np.array([1.0], np.float16), np.array([2**-11 + 2**-20], np.float16)
    got = one("add", a, b)
    same(got, np.float16(float(a[0]) + float(b[0])))
    same(one("mul", np.array([300.0], np.float16), np.array([300.0], np.float16)), [INF])


def test_f64_mode_does_not_round_floats():
    third = one("div", f32(1), f32(3), f64=True)
    assert third.dtype == np.float64
    assert third[0] == 1 / 3
    half = np.array([1.0], np.float16)
    assert one("div", half, np.array([3.0], np.float16), f64=True)[0] == 1 / 3
    assert one("cast", f32(0.1), dtype="f16", f64=True)[0] == np.float32(0.1)
    assert one("bitcast", f32(0.1), dtype="i32", f64=True).dtype == np.int32


def test_operands_broadcast():
    got = one("add", np.ones((3, 1), np.float32), np.ones((2, 1, 4), np.float32))
    assert got.shape == (2, 3, 4)
    assert one("add", np.float32(1), np.float32(2)).shape == ()
    assert one("add", np.ones((0, 3), np.float32), f32(1)).shape == (0, 3)
