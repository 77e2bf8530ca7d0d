"""Arithmetic in the simulator: precision, wrapping, edges, and what it refuses as undefined."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from poot.codegen.kir.nodes import Lit, Ty
from poot.codegen.kir.sim.values import constant
from poot.errors import SimulationError
from tests.support.kernels import run_kernel, run_op

pytestmark = pytest.mark.quick

F32 = np.array([0.0, -0.0, 1.5, -2.25, 3e38, 1e-30, math.inf, -math.inf, math.nan], np.float32)
BF16 = ml_dtypes.bfloat16


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def u32(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@pytest.mark.parametrize(
    "line, a, b, want",
    [
        ("add a, b", f32(1, 2), f32(0.5, -2), f32(1.5, 0)),
        ("sub a, b", f32(1, 2), f32(0.5, -2), f32(0.5, 4)),
        ("mul a, b", f32(3, -2), f32(0.5, -2), f32(1.5, 4)),
        ("div a, b", f32(3, 1), f32(2, 0), f32(1.5, math.inf)),
        ("min a, b", f32(3, -1), f32(2, 0), f32(2, -1)),
        ("max a, b", f32(3, -1), f32(2, 0), f32(3, 0)),
        ("nanmin a, b", f32(3, math.nan), f32(math.nan, 0), f32(math.nan, math.nan)),
        ("nanmax a, b", f32(3, math.nan), f32(math.nan, 0), f32(math.nan, math.nan)),
    ],
)
def test_two_floats(line, a, b, want):
    np.testing.assert_array_equal(run_op(line, "f32", a, b), want)


ONE = {
    "neg a": np.negative,
    "abs a": np.abs,
    "floor a": np.floor,
    "rint a": np.rint,
    "sqrt a": np.sqrt,
    "rcp a": lambda x: np.float32(1) / x,
    "exp2 a": np.exp2,
    "fma a, 2.0, 1.0": lambda x: x * np.float32(2) + np.float32(1),
}


@pytest.mark.parametrize("line", ONE)
def test_one_float(line):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run_op(line, "f32", F32), ONE[line](F32))


def test_roots_and_logarithms():
    x = f32(0.25, 1, 2, 1024)
    np.testing.assert_allclose(run_op("rsqrt a", "f32", x), x**-0.5, rtol=1e-6)
    np.testing.assert_array_equal(run_op("log2 a", "f32", x), np.log2(x))
    assert run_op("log2 a", "f32", f32(0))[0] == -math.inf


def test_a_wider_sum_is_not_kept():
    """1e8 + 1 is 1e8 in f32: no step is wider than the dtype."""
    assert run_op("fma a, 1.0, 1.0", "f32", f32(1e8))[0] == np.float32(1e8)
    a = np.array([2048], np.float16)
    assert run_op("add a, 1.0:f16", "f16", a)[0] == np.float16(2048)
    b = np.array([256], BF16)
    assert run_op("add a, 1.0:bf16", "bf16", b)[0] == BF16(256)


@pytest.mark.parametrize(
    "line, a, b, want",
    [
        ("add a, b", i32(2**31 - 1), i32(1), i32(-(2**31))),
        ("sub a, b", u32(0), u32(1), u32(2**32 - 1)),
        ("mul a, b", i32(65536), i32(65537), i32(65536)),
        ("mulhi a, b", u32(2**31), u32(6), u32(3)),
        ("div a, b", i32(7, -7, 7, -7), i32(2, 2, -2, -2), i32(3, -3, -3, 3)),
        ("rem a, b", i32(7, -7, 7, -7), i32(2, 2, -2, -2), i32(1, -1, 1, -1)),
        ("div a, b", u32(2**32 - 1), u32(2), u32(2**31 - 1)),
        ("and a, b", i32(12), i32(10), i32(8)),
        ("or a, b", i32(12), i32(10), i32(14)),
        ("xor a, b", i32(12), i32(10), i32(6)),
        ("not a", i32(12), i32(0), i32(-13)),
        ("neg a", i32(12), i32(0), i32(-12)),
        ("abs a", i32(-12), i32(0), i32(12)),
        ("min a, b", i32(-1), i32(1), i32(-1)),
        ("max a, b", u32(2**32 - 1), u32(1), u32(2**32 - 1)),
        ("shl a, b", i32(1, 3), i32(31, 2), i32(-(2**31), 12)),
        ("shr a, b", i32(-8), i32(1), i32(-4)),
        ("shr a, b", u32(2**32 - 8), u32(1), u32(2**31 - 4)),
    ],
)
def test_integers(line, a, b, want):
    dtype = "u32" if a.dtype == np.uint32 else "i32"
    np.testing.assert_array_equal(run_op(line, dtype, a, b), want)


@pytest.mark.parametrize(
    "op, want",
    [
        ("eq", [False, True, False, False]),
        ("ne", [True, False, True, True]),
        ("lt", [True, False, False, False]),
        ("le", [True, True, False, False]),
        ("gt", [False, False, True, False]),
        ("ge", [False, True, True, False]),
    ],
)
@pytest.mark.parametrize("kind", [np.float32, np.float16, BF16], ids=["f32", "f16", "bf16"])
def test_comparisons_are_false_with_nan_and_ne_is_true(op, want, kind):
    a = np.array([1, 2, 3, math.nan], np.float32).astype(kind)
    b = np.array([2, 2, 2, 2], np.float32).astype(kind)
    np.testing.assert_array_equal(run_op(f"{op} a, b", "f32", a, b, out="bool"), want)


def test_isnan_is_of_the_value():
    got = run_op("isnan a", "f32", F32, out="bool")
    np.testing.assert_array_equal(got, np.isnan(F32))


def test_booleans_are_logical():
    a, b = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    np.testing.assert_array_equal(run_op("and a, b", "bool", a, b), a & b)
    np.testing.assert_array_equal(run_op("xor a, b", "bool", a, b), a ^ b)
    np.testing.assert_array_equal(run_op("not a", "bool", a), ~a)
    got = run_op("select c, a, b", "f32", f32(1, 2, 3, 4), f32(9, 8, 7, 6), a)
    np.testing.assert_array_equal(got, [9, 8, 3, 4])


@pytest.mark.parametrize(
    "a, out, want",
    [
        (f32(1.9, -1.9, -0.0), "i32", i32(1, -1, 0)),
        (f32(4294967040.0), "u32", u32(4294967040)),
        (i32(-1), "u32", u32(2**32 - 1)),
        (i32(300), "u8", np.array([44], np.uint8)),
        (np.array([-3], np.int8), "i32", i32(-3)),
        (i32(16777217), "f32", f32(16777216)),
        (f32(1 + 2**-8, 1 + 3 * 2**-8), "bf16", np.array([1, 1 + 2**-6], BF16)),
        (f32(65520), "f16", np.array([math.inf], np.float16)),
        (np.array([True, False]), "f32", f32(1, 0)),
        (f32(17.5), "f8e4m3", np.array([18], ml_dtypes.float8_e4m3fn)),
    ],
)
def test_casts(a, out, want):
    np.testing.assert_array_equal(run_op("cast a", "f32", a, out=out), want)


def test_bitcasts_keep_the_bits():
    assert run_op("bitcast a", "f32", f32(1), out="u32")[0] == 0x3F800000
    assert run_op("bitcast a", "u32", u32(0xFF800000), out="f32")[0] == -math.inf


def test_a_vector_is_its_elements_one_behind_the_other():
    halves = np.array([1, -2, 3, 4], np.float16)
    out = np.zeros(4, np.uint32)
    head = "param a: f16[4] r align=16\nparam o: u32[4] w align=16"
    body = """
      l: i32 = lane
      i: i32 = mul l, 2
      v: f16x2 = load a[i]
      w: u32 = bitcast v
      store o[l], w
      back: f16x2 = bitcast w
      high: f16 = extract back at=1
      swapped: f16x2 = insert back, high at=0
      again: u32 = bitcast swapped
      j: i32 = add l, 2
      store o[j], again
    """
    run_kernel(body, head, {"a": halves, "o": out}, threads=2)
    np.testing.assert_array_equal(out[:2], halves.view(np.uint32))
    np.testing.assert_array_equal(out[2:], halves[[1, 1, 3, 3]].view(np.uint32))


@pytest.mark.parametrize(
    "line, a, said",
    [
        ("div 8, a", i32(2, 0), "division by zero"),
        ("rem 8, a", i32(2, 0), "division by zero"),
        ("div -2147483648, a", i32(2, -1), "the least integer divided by -1"),
        ("shl 1, a", i32(2, 32), "a shift outside 0 .. 31"),
        ("shr 1, a", i32(2, -1), "a shift outside"),
    ],
)
def test_what_integers_leave_undefined_is_refused(line, a, said):
    with pytest.raises(SimulationError, match=said) as found:
        run_op(line, "i32", a)
    assert found.value.kind == "undefined"
    assert "lane 1 of group (0, 0, 0)" in str(found.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2147483648.0, -2147483904.0])
def test_a_float_that_no_integer_holds_is_refused(value):
    with pytest.raises(SimulationError, match="a float that no i32 holds"):
        run_op("cast a", "f32", f32(1, value), out="i32")


def test_the_edges_of_an_integer_are_held():
    a = f32(-2147483648.0, 2147483520.0)
    np.testing.assert_array_equal(run_op("cast a", "f32", a, out="i32"), a.astype(np.int64))


def test_integer_literals_are_words():
    assert constant(Lit(0xFFFFFFFF, Ty("u32"))) == np.uint32(0xFFFFFFFF)
    assert constant(Lit(0xFF800000, Ty("i32"))) == np.int32(-8388608)
    assert constant(Lit(0.1, Ty("bf16"))).dtype == BF16
    assert constant(Lit(0.1, Ty("f32", 4))).shape == (4, 1)
