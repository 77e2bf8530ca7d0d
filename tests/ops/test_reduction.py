"""Functions that fold or rank, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from poot import ops
from poot.errors import TypeRuleError
from tests.support.traced import evaluate, normal, value

X = normal(0, 3, 4)
B = X > 0.3


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_folds_are_numpys(name: str, axis: object):
    got = value(lambda x: getattr(ops, name)(x, axis, keepdims=True), X)
    np.testing.assert_allclose(got, getattr(np, name)(X, axis=axis, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_any_and_all_are_numpys(axis: int | None):
    for b in (B, np.zeros((3, 0), bool), np.ones((3, 2), bool)):
        np.testing.assert_array_equal(value(lambda x: ops.any(x, axis), b), b.any(axis))
        np.testing.assert_array_equal(value(lambda x: ops.all(x, axis), b), b.all(axis))


def test_any_and_all_want_bools():
    for fn in (ops.any, ops.all):
        with pytest.raises(TypeRuleError, match=r"needs bools: .*Write x != 0"):
            value(fn, X)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_argmax_is_numpys(axis: int | None):
    np.testing.assert_array_equal(value(lambda x: ops.argmax(x, axis), X), X.argmax(axis))


def test_topk_is_descending_and_prefers_the_lower_index():
    x = np.float32([[1, 3, 3, 2, np.nan], [0, 0, 0, 0, 0]])
    values, indices = evaluate(lambda x: ops.topk(x, 3), x)
    np.testing.assert_array_equal(values, [[3, 3, 2], [0, 0, 0]])
    np.testing.assert_array_equal(indices, [[1, 2, 3], [0, 1, 2]])


def test_a_rank_is_a_proved_index():
    def fn(x: object) -> object:
        return ops.take(x, ops.topk(x[0], 2)[1], axis=1), ops.take(x, ops.argmax(x, 0))

    columns, rows = evaluate(fn, X)
    np.testing.assert_array_equal(columns, X[:, np.argsort(-X[0])[:2]])
    np.testing.assert_array_equal(rows, X[X.argmax(0)])


def test_nothing_has_no_largest():
    with pytest.raises(TypeRuleError, match="reduce needs at least one element to fold"):
        value(lambda x: ops.max(x, 0), np.zeros((0, 2), np.float32))
