"""Functions whose addresses are data."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from poot.oracle import run
from poot.slots import ForwardSlotMap
from tests.support.traced import graph_of, normal, value

X = normal(0, 2, 8, 3)
POS = np.asarray([5, 2], np.int32)


def test_dynamic_slice_reads_from_each_rows_start():
    got = value(lambda x, p: ops.dynamic_slice(x, p, 3, axis=1), X, POS)
    np.testing.assert_array_equal(got, np.stack([X[0, 5:8], X[1, 2:5]]))
    at = np.asarray(4, np.int32)
    np.testing.assert_array_equal(
        value(lambda x, p: ops.dynamic_slice(x, p, 4, -2), X, at), X[:, 4:]
    )
    np.testing.assert_array_equal(value(lambda x: ops.dynamic_slice(x, 1, 1), X), X[1:])


def test_dynamic_update_slice_writes_at_each_rows_start():
    new = normal(1, 2, 3, 3)
    want = X.copy()
    want[0, 5:8], want[1, 2:5] = new
    got = value(lambda x, n, p: ops.dynamic_update_slice(x, n, p, 1), X, new, POS)
    np.testing.assert_array_equal(got, want)
    want = X.copy()
    want[:, 2] = 0
    zeros = np.zeros((2, 1, 3), np.float32)
    np.testing.assert_array_equal(
        value(lambda x: ops.dynamic_update_slice(x, zeros, 2, -2), X), want
    )


@pytest.mark.parametrize("size, hi", [(4, 6), (8, 2)])
def test_a_window_that_may_not_fit_needs_the_callers_word(size: int, hi: int):
    specs = (poot.weight((2, 8, 3)), poot.weight((2, size, 3)), poot.slot((2,), range=(0, hi)))
    message = rf"needs an index proved in 0..{8 - size}: .*proved=0..{hi - 1}. Declare range"
    with pytest.raises(TypeRuleError, match=f"dynamic_slice {message}"):
        poot.trace(lambda x, n, p: ops.dynamic_slice(x, p, size, 1), specs)
    with pytest.raises(TypeRuleError, match=f"dynamic_update_slice {message}"):
        poot.trace(lambda x, n, p: ops.dynamic_update_slice(x, n, p, 1), specs)
    poot.trace(lambda x, n, p: ops.dynamic_update_slice(x, n, p, 1, mode="clamp"), specs)


def test_a_clamped_window_moves_inside():
    got = value(lambda x, p: ops.dynamic_slice(x, p * 100, 3, 1, mode="clamp"), X, POS)
    np.testing.assert_array_equal(got, X[:, 5:])


def test_an_unknown_start_proves_nothing():
    with pytest.raises(TypeRuleError, match="proved=nothing"):
        poot.trace(lambda x, p: ops.dynamic_slice(x, p, 3, 1), (poot.weight((2, 8)), poot.slot(())))


def test_sizes_and_updates_that_do_not_fit_are_refused():
    with pytest.raises(TypeRuleError, match="0 <= size <= extent"):
        graph_of(lambda x: ops.dynamic_slice(x, 0, 9, 1), X)
    with pytest.raises(TypeRuleError, match="an update like x but along axis"):
        graph_of(lambda x: ops.dynamic_update_slice(x, x[:, :, :2], 0, 1), X)
    with pytest.raises(TypeRuleError, match="an i32 index"):
        graph_of(lambda x: ops.dynamic_slice(x, x[0, 0, 0], 1, 1), X)


def test_scatter_update_writes_rows_and_skips_those_outside():
    graph = poot.trace(
        lambda x, n, r: ops.scatter_update(x, n, r),
        (poot.weight((4, 3)), poot.weight((3, 3)), poot.slot((3,), kind="write_map")),
    )
    x, new = normal(0, 4, 3), normal(1, 3, 3)
    want = x.copy()
    want[2], want[0] = new[0], new[2]
    rows = ForwardSlotMap(np.asarray([2, -1, 0]), 4)
    np.testing.assert_array_equal(run(graph, {"x": x, "n": new, "r": rows}).outputs[0], want)


def test_gather_is_take():
    got = value(lambda x, p: ops.gather(x, p, 1), X, POS)
    np.testing.assert_array_equal(got, X[:, POS])
