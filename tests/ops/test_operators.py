"""Operators of traced values mean what they mean in numpy."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest

import poot
from poot.errors import TraceError
from tests.support.traced import graph_of, value

FLOATS = np.asarray([[-2.5, -1.0, 0.0], [0.5, 3.0, 7.25]], np.float32)
INTS = np.asarray([[-7, -3, -1], [2, 5, 8]], np.int32)
WORDS = np.asarray([[7, 3, 1], [2, 5, 2**31]], np.uint32)
BOTH = (operator.add, operator.sub, operator.mul)
COMPARE = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
BITS = (operator.and_, operator.or_, operator.xor)

Binary = Callable[[object, object], object]


@pytest.mark.parametrize("op", [*BOTH, operator.truediv, operator.floordiv, operator.mod, *COMPARE])
def test_float_operators_are_numpys(op: Binary):
    other = np.asarray([2.0, -1.5, 4.0], np.float32)
    got = value(op, FLOATS, other)
    want = op(FLOATS, other)
    assert isinstance(want, np.ndarray)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("op", [*BOTH, operator.floordiv, operator.mod, *COMPARE, *BITS])
@pytest.mark.parametrize("x", [INTS, WORDS, np.abs(INTS)], ids=["i32", "u32", "proved"])
def test_integer_operators_are_numpys(op: Binary, x: np.ndarray):
    other = np.asarray([2, 3, 5], x.dtype)
    np.testing.assert_array_equal(value(op, x, other), op(x, other))
    np.testing.assert_array_equal(value(op, other, x), op(other, x))


@pytest.mark.parametrize("op", [operator.floordiv, operator.mod])
def test_rounding_down_holds_for_every_pair_of_signs(op: Binary):
    a = np.asarray([7, -7, 7, -7, 6, -6, 0, 0], np.int32)
    b = np.asarray([2, 2, -2, -2, 3, -3, 5, -5], np.int32)
    np.testing.assert_array_equal(value(op, a, b), op(a, b))


def test_division_by_zero_gives_zero():
    x = np.asarray([5, -5, 0], np.int32)
    assert value(lambda x: x // (x - x), x).tolist() == [0, 0, 0]


def test_proved_operands_divide_in_one_eqn():
    x = np.asarray([5, 6], np.int32)
    assert [e.op for e in graph_of(lambda x: x // 2, x).eqns] == ["const", "div"]
    assert [e.op for e in graph_of(lambda x: x % 2, x).eqns] == ["const", "rem"]


@pytest.mark.parametrize("op", [operator.lshift, operator.rshift])
def test_shifts_are_numpys(op: Binary):
    np.testing.assert_array_equal(value(lambda x: op(x, 3), INTS), op(INTS, 3))
    np.testing.assert_array_equal(value(lambda x: op(3, x), np.abs(INTS)), op(3, np.abs(INTS)))


@pytest.mark.parametrize("op", [*BOTH, operator.truediv, *COMPARE])
def test_a_number_or_an_array_may_stand_on_either_side(op: Binary):
    table = np.asarray([2.0, -1.5, 4.0], np.float32)
    for other in (2.0, np.float32(2), np.float64(2), table):
        plain = other if isinstance(other, np.ndarray) else float(other)
        with np.errstate(divide="ignore"):
            left, right = op(FLOATS, plain), op(plain, FLOATS)
        np.testing.assert_array_equal(value(lambda x, y=other: op(x, y), FLOATS), left)
        np.testing.assert_array_equal(value(lambda x, y=other: op(y, x), FLOATS), right)


def test_reflected_integer_and_bit_operators_keep_their_order():
    for op in (operator.floordiv, operator.mod, *BITS):
        np.testing.assert_array_equal(value(lambda x, op=op: op(100, x), INTS), op(100, INTS))


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs])
def test_signs_are_numpys(op: Callable[[object], object]):
    np.testing.assert_array_equal(value(op, FLOATS), op(FLOATS))
    np.testing.assert_array_equal(value(op, INTS), op(INTS))


def test_invert_is_bitwise_or_logical():
    np.testing.assert_array_equal(value(operator.invert, INTS), ~INTS)
    np.testing.assert_array_equal(value(operator.invert, INTS > 0), ~(INTS > 0))


def test_numpys_own_matmul_and_operators_reach_the_trace():
    left = np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(value(lambda x: left @ x, FLOATS), left @ FLOATS)
    np.testing.assert_array_equal(value(lambda x: np.add(left.T[:, :3], x), FLOATS), 1 + FLOATS)


@pytest.mark.parametrize("fn", [np.exp, np.add.reduce, lambda x: np.add(x, x, where=True)])
def test_other_numpy_functions_are_refused(fn: Callable[[object], object]):
    with pytest.raises(TraceError, match=r"numpy\.\w+ needs a value known at trace time"):
        poot.trace(fn, (poot.weight((2,)),))


def test_a_traced_value_is_a_key():
    def fn(x: object) -> object:
        return {x: "a"} and x

    assert graph_of(fn, FLOATS).eqns == ()
