"""Functions that move, join, cut and make arrays, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from tests.support.traced import evaluate, graph_of, normal, value

X = normal(0, 2, 3, 4)


def test_moving_axes_is_numpys():
    np.testing.assert_array_equal(value(ops.transpose, X), X.T)
    np.testing.assert_array_equal(
        value(lambda x: ops.transpose(x, (1, 2, 0)), X), X.transpose(1, 2, 0)
    )
    np.testing.assert_array_equal(value(lambda x: ops.swapaxes(x, 0, -1), X), X.swapaxes(0, -1))
    np.testing.assert_array_equal(value(lambda x: ops.flip(x, -2), X), np.flip(X, -2))
    np.testing.assert_array_equal(value(lambda x: ops.reshape(x, (-1, 2)), X), X.reshape(-1, 2))


def test_flipping_nothing_is_nothing():
    assert value(lambda x: ops.flip(x, 0), np.zeros((0, 2), np.float32)).shape == (0, 2)


@pytest.mark.parametrize("axis", [0, 1, 3, -1, -4])
def test_expand_dims_is_numpys(axis: int):
    got = value(lambda x: ops.expand_dims(x, axis), X)
    np.testing.assert_array_equal(got, np.expand_dims(X, axis))


def test_squeeze_drops_axes_of_one():
    x = X[:, :1, None]
    assert value(ops.squeeze, x).shape == (2, 4)
    assert value(lambda x: ops.squeeze(x, 1), x).shape == (2, 1, 4)
    assert value(lambda x: ops.squeeze(x, (-2, 1)), x).shape == (2, 4)
    with pytest.raises(TypeRuleError, match="squeeze needs axes of extent 1"):
        value(lambda x: ops.squeeze(x, 0), x)


def test_broadcast_to_stretches():
    got = value(lambda x: ops.broadcast_to(x[:, :1], (5, 2, 3, 4)), X)
    np.testing.assert_array_equal(got, np.broadcast_to(X[:, :1], (5, 2, 3, 4)))
    assert graph_of(lambda x: ops.broadcast_to(x, X.shape), X).eqns == ()


@pytest.mark.parametrize("times", [0, 1, 3])
@pytest.mark.parametrize("axis", [0, -1])
def test_repeat_is_numpys(times: int, axis: int):
    got = value(lambda x: ops.repeat(x, times, axis), X)
    np.testing.assert_array_equal(got, np.repeat(X, times, axis))


def test_joining_and_cutting_are_numpys():
    y = X + 1
    got = value(lambda x, y: ops.concat([x, y], -1), X, y)
    np.testing.assert_array_equal(got, np.concatenate([X, y], -1))
    np.testing.assert_array_equal(
        value(lambda x, y: ops.stack([x, y], -1), X, y), np.stack([X, y], -1)
    )
    np.testing.assert_array_equal(value(lambda x: ops.concat([x, y]), X), np.concatenate([X, y]))
    for parts, at in ((2, -1), ((1, 3), 2), ([2, 0, 1], 1)):
        got = evaluate(lambda x, p=parts, a=at: ops.split(x, p, a), X)
        cuts = parts if isinstance(parts, int) else np.cumsum(parts)[:-1]
        for mine, numpys in zip(got, np.split(X, cuts, at), strict=True):
            np.testing.assert_array_equal(mine, numpys)


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda x: ops.split(x, 3, 0), "parts that divide the extent"),
        (lambda x: ops.split(x, (1, 2), 0), "extents that add up to the axis"),
        (lambda x: ops.concat([]), "at least one operand"),
        (lambda x: ops.stack([]), "at least one operand"),
        (lambda x: ops.repeat(x, -1, 0), "0 times or more"),
        (lambda x: ops.concat([x, x[0]]), "operands alike but along axis"),
        (lambda x: ops.iota((2, 3), 2), "an axis of its operand"),
        (lambda x: ops.arange(0, 4, 0), "a step other than 0"),
        (lambda x: ops.full((2,), 0.5, "i32"), "a whole number for i32"),
    ],
)
def test_what_has_no_meaning_is_refused(fn: object, message: str):
    assert callable(fn)
    with pytest.raises(TypeRuleError, match=message):
        poot.trace(fn, (poot.weight((2, 3, 4)),))


@pytest.mark.parametrize("bounds", [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (3, 3), (4, 1)])
def test_arange_is_numpys(bounds: tuple[int, ...]):
    got = value(lambda x: ops.arange(*bounds), X)
    np.testing.assert_array_equal(got, np.arange(*bounds, dtype=np.int32))
    assert got.dtype == np.int32


def test_values_from_nothing():
    np.testing.assert_array_equal(value(lambda x: ops.iota((2, 3), -1, "u32"), X), [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(value(lambda x: ops.zeros((2, 1), "i32"), X), [[0], [0]])
    np.testing.assert_array_equal(value(lambda x: ops.ones((2,), "bool"), X), [True, True])
    np.testing.assert_array_equal(value(lambda x: ops.zeros((2,), "bool"), X), [False, False])
    np.testing.assert_array_equal(value(lambda x: ops.full((), 2.5, "f16"), X), np.float16(2.5))
    np.testing.assert_array_equal(value(ops.zeros_like, X), np.zeros_like(X))
    np.testing.assert_array_equal(
        value(lambda x: ops.zeros_like(x > 0), X), np.zeros(X.shape, bool)
    )
    np.testing.assert_array_equal(value(lambda x: ops.full_like(x, 3), X), np.full_like(X, 3))


def test_one_hot_marks_its_index():
    index = np.asarray([[2, 0], [3, 1]], np.int32)
    got = value(lambda i: ops.one_hot(i, 3), index)
    np.testing.assert_array_equal(got, index[..., None] == np.arange(3))
    assert got.dtype == np.float32
    assert value(lambda i: ops.one_hot(i, 3, "bool"), index).dtype == np.bool_
