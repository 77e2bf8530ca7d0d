"""Static indexing equals numpy's, and says what it can't do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import poot
from poot.errors import TypeRuleError
from poot.ops.indexing import select
from tests.support.traced import normal, value

X = normal(0, 3, 4, 5)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(1, None),
        (slice(None), 2),
        (..., 0),
        (0, ..., 1),
        None,
        (slice(None), None, 1, None),
        (slice(None, None, 2), slice(3, 0, -2)),
        slice(None, None, -1),
        (slice(5, 9), slice(2, 1)),
        (slice(-2, None), ..., slice(None, -1)),
        (1, 2, 3),
        (),
        np.int64(2),
        (slice(np.int32(1), None),),
    ],
)
def test_basic_indices_are_numpys(index: object):
    want = X[index]  # pyright: ignore[reportArgumentType] - numpy takes each of them
    np.testing.assert_array_equal(value(lambda x: x[index], X), want)


@settings(max_examples=60, deadline=None)
@given(index=basic_indices((3, 4, 5), max_dims=6, allow_newaxis=True, allow_ellipsis=True))
def test_any_basic_index_is_numpys(index: object):
    want = np.asarray(X[index])  # pyright: ignore[reportArgumentType] - numpy takes each of them
    np.testing.assert_array_equal(value(lambda x: x[index], X), want)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_an_index_array_stands_where_its_axis_stood(axis: int, rows: list[int]):
    index = (*(slice(None),) * axis, np.asarray(rows, np.int32))
    np.testing.assert_array_equal(value(lambda x: x[index], X), X[index])
    traced = value(lambda x, i: x[(*(slice(None),) * axis, i)], X, index[-1])
    np.testing.assert_array_equal(traced, X[index])


def test_an_index_array_goes_with_slices_and_new_axes():
    i = np.asarray([[1, 0], [2, 2]], np.int32)
    np.testing.assert_array_equal(value(lambda x, i: x[::-1, None, i], X, i), X[::-1, None, i])


@pytest.mark.parametrize(
    "index, message",
    [
        (3, "an index inside its axis: index=3, axis=0, extent=3"),
        ((0, -5), "an index inside its axis: index=-5, axis=1, extent=4"),
        ((0, 0, 0, 0), "at most one index an axis"),
        ((..., ...), "at most one index an axis and one ..."),
        (slice(None, None, 0), "a step other than 0"),
        (slice(0.0, 1.0), "slices with int bounds"),
        (True, "an index known at trace time or an i32 array: index=True"),
        ("a", "an index known at trace time or an i32 array: index=a"),
        ((np.asarray([0]), np.asarray([0])), "at most one index array"),
        ((0, np.asarray([0])), r"no ints beside an index array: .*x\[0\]\[:, ids\]"),
        (np.asarray([3]), "an index proved in 0..2: .*proved=3..3"),
        (np.asarray([-1]), "an index proved in 0..2: .*proved=-1..-1"),
    ],
)
def test_an_index_that_has_no_place_is_refused(index: object, message: str):
    with pytest.raises(TypeRuleError, match=message):
        poot.trace(lambda x: x[index], (poot.weight((3, 4, 5)),))


def test_a_traced_value_bounds_no_slice():
    with pytest.raises(TypeRuleError, match=r"slices with int bounds.*Write ops.dynamic_slice"):
        poot.trace(lambda x, i: x[i:], (poot.weight((3, 4)), poot.slot(())))


def test_a_selection_is_plain_data():
    chosen = select((slice(3, 0, -2), None, 1), (4, 5), ())
    assert (chosen.start, chosen.stop, chosen.step) == ((1, 1), (4, 2), (2, 1))
    assert (chosen.flip, chosen.shape, chosen.axis) == ((0,), (2, 1), -1)
