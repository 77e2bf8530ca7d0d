"""Functions of elements against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from tests.support.traced import normal, value

X = normal(0, 2, 5)
Y = normal(1, 5)
N = np.asarray([-9, -2, 0, 3, 8], np.int32)
J = np.asarray([2, 2, 3, 3, 5], np.int32)
B = np.asarray([True, False, True, True, False])


@pytest.mark.parametrize("name", ["exp", "exp2", "sin", "cos", "tanh", "floor", "abs", "square"])
def test_functions_of_one_operand_are_numpys(name: str):
    got = value(getattr(ops, name), X)
    np.testing.assert_allclose(got, getattr(np, name)(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_functions_of_positive_numbers_are_numpys(name: str):
    np.testing.assert_allclose(
        value(getattr(ops, name), X * X), getattr(np, name)(X * X), rtol=1e-5
    )


def test_what_numpy_has_no_name_for():
    np.testing.assert_allclose(value(ops.rsqrt, X * X), 1 / np.abs(X), rtol=1e-5)
    np.testing.assert_allclose(value(ops.recip, X), 1 / X, rtol=1e-6)
    np.testing.assert_allclose(value(ops.neg, X), -X)
    want = [[math.erf(v) for v in row] for row in X.tolist()]
    np.testing.assert_allclose(value(ops.erf, X), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(lambda x: ops.pow(x, 5), X), X**5, rtol=1e-5)


@pytest.mark.parametrize(
    "name, numpy",
    [
        ("add", "add"),
        ("sub", "subtract"),
        ("mul", "multiply"),
        ("div", "divide"),
        ("true_divide", "divide"),
        ("floor_divide", "floor_divide"),
        ("modulo", "remainder"),
        ("rem", "fmod"),
        ("maximum", "maximum"),
        ("minimum", "minimum"),
        ("equal", "equal"),
        ("not_equal", "not_equal"),
        ("less", "less"),
        ("less_equal", "less_equal"),
        ("greater", "greater"),
        ("greater_equal", "greater_equal"),
    ],
)
def test_functions_of_two_operands_are_numpys(name: str, numpy: str):
    got, want = value(getattr(ops, name), X, Y), getattr(np, numpy)(X, Y)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_functions_of_bits_are_numpys(name: str):
    np.testing.assert_array_equal(value(getattr(ops, name), N, J), getattr(np, name)(N, J))
    np.testing.assert_array_equal(value(ops.bitwise_not, N), ~N)
    np.testing.assert_array_equal(value(ops.left_shift, N, J), N << J)
    np.testing.assert_array_equal(value(ops.right_shift, N, J), N >> J)


def test_integer_div_and_rem_truncate():
    assert value(ops.div, N, J).tolist() == [-4, -1, 0, 1, 1]
    assert value(ops.rem, N, J).tolist() == [-1, 0, 0, 0, 3]


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic_is_numpys_on_bools_alone(name: str):
    other = B[::-1].copy()
    np.testing.assert_array_equal(value(getattr(ops, name), B, other), getattr(np, name)(B, other))
    with pytest.raises(TypeRuleError, match=f"{name} needs bools: .*Write x != 0"):
        value(getattr(ops, name), N, N)


def test_not_is_logical_on_bools():
    np.testing.assert_array_equal(value(ops.logical_not, B), ~B)


def test_where_takes_a_side_and_nothing_of_the_other():
    poisoned = np.where(B, Y, np.nan).astype(np.float32)
    got = value(lambda c, a: ops.where(c, a, 2.0), B, poisoned)
    np.testing.assert_array_equal(got, np.where(B, Y, 2.0).astype(np.float32))
    got = value(lambda a: ops.where(B, -math.inf, a), Y)
    np.testing.assert_array_equal(got, np.where(B, -np.inf, Y).astype(np.float32))


def test_where_needs_a_dtype_and_a_bool():
    with pytest.raises(TypeRuleError, match=r"where needs an operand with a dtype.*ops.full"):
        value(lambda c: ops.where(c, 1.0, 0.0), B)
    with pytest.raises(TypeRuleError, match="select needs a bool condition"):
        value(lambda x: ops.where(x, x, 0.0), X)
    with pytest.raises(TypeRuleError, match="where needs branches of one dtype"):
        value(lambda c, x: ops.where(c, x, x.astype("f16")), B, Y)


def test_clip_applies_the_bounds_given():
    np.testing.assert_array_equal(value(lambda x: ops.clip(x, -1.0, 0.5), X), X.clip(-1, 0.5))
    np.testing.assert_array_equal(value(lambda x: ops.clip(x, hi=0.5), X), np.minimum(X, 0.5))
    np.testing.assert_array_equal(value(lambda x: ops.clip(x, 0), N), np.maximum(N, 0))
    with pytest.raises(TypeRuleError, match="clip needs lo or hi"):
        value(ops.clip, X)


def test_casts_and_bits():
    assert value(lambda x: ops.cast(x, "i32"), np.float32([1.9, -1.9, np.nan])).tolist() == [
        1,
        -1,
        0,
    ]
    np.testing.assert_array_equal(value(lambda x: ops.bitcast(x, "i32"), X), X.view(np.int32))
    graph = poot.trace(lambda x: ops.bitcast(ops.cast(x, "f32"), "f32"), (poot.weight((2,)),))
    assert graph.eqns == ()


def test_isnan_finds_nan():
    assert value(ops.isnan, np.float32([1.0, np.nan, np.inf])).tolist() == [False, True, False]
