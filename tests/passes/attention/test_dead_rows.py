"""Weights selected to zero in rows of nothing but -inf."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from poot import ops
from poot.ops import Array
from tests.support.fused import only, operands, rewrite_of
from tests.support.traced import normal

Test = Callable[[Array], Array]


def by_maximum(s: Array) -> Array:
    return s.max(-1, keepdims=True) == -math.inf


def by_count(s: Array) -> Array:
    return ops.logical_not(ops.any(ops.logical_not(s == -math.inf), -1, True))


def arrays() -> tuple[np.ndarray, ...]:
    """q, k, v and a mask whose row 2 hides every key."""
    mask = np.where(normal(3, 1, 1, 5, 7) > 0, 0, -np.inf).astype(np.float32)
    mask[..., 2, :], mask[..., 0] = -np.inf, 0
    mask[..., 2, 0] = -np.inf
    return normal(0, 1, 2, 5, 8), normal(1, 1, 2, 7, 8), normal(2, 1, 2, 7, 6), mask


@pytest.mark.parametrize("test", [by_maximum, by_count])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_row_that_sees_no_key_is_zero_after_the_rewrite_too(test: Test, is_turned: bool):
    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        s = (q @ k.swapaxes(2, 3)) * 0.3 + mask
        dead = test(s)
        w = ops.softmax(s)
        if is_turned:
            return ops.where(ops.logical_not(dead), w, 0.0) @ v
        return ops.where(dead, 0.0, w) @ v

    got = rewrite_of(fn, *arrays())
    eqn = only(got)
    assert eqn.attr("lse") is True
    assert operands(eqn)["mask"] == "f32[1,1,5,7]"
    assert [e.op for e in got.after.eqns if e.op in ("reduce", "exp")] == []


def test_what_tests_other_scores_is_no_test_of_dead_rows():
    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        s = (q @ k.swapaxes(2, 3)) * 0.3
        dead = by_maximum(s)
        return ops.where(dead, 0.0, ops.softmax(s + mask)) @ v

    q, k, v, mask = arrays()
    assert rewrite_of(fn, q, k, v, np.maximum(mask, -9)).eqns("attention") == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, w: ops.where(s.max(-1, keepdims=True) == 0.0, 0.0, w),
        lambda s, w: ops.where(s.max(-1, keepdims=True) == -math.inf, 1.0, w),
        lambda s, w: ops.where(s.max(2, keepdims=True) == -math.inf, 0.0, w),
        lambda s, w: ops.where(s == -math.inf, 0.0, w),
    ],
)
def test_other_selects_of_the_weights_stay(wrong: Callable[[Array, Array], Array]):
    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        s = (q @ k.swapaxes(2, 3)) * 0.3 + mask
        return wrong(s, ops.softmax(s)) @ v

    q, k, v, mask = arrays()
    assert rewrite_of(fn, q, k, v, np.maximum(mask, -9)).eqns("attention") == []
