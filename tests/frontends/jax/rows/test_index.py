"""Primitives whose addresses are data, against JAX, indices outside among them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import poot
from poot.errors import UnsupportedOps
from tests.support.jaxpr import check, floats, ints

X = floats(5, 4, 3)
AT = np.array([[0, 4, -1], [7, -9, 2]], np.int32)
Fn = Callable[..., object]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: x[i, 1],
        lambda x, i: x[i, :, i],
        lambda x, i: x[i[:, :, None], i[:, None]],
        lambda x, i: jnp.take(x, i, axis=1, mode="clip"),
        lambda x, i: jnp.take(x, i, axis=2, mode="fill", fill_value=7.0),
        lambda x, i: x.at[i].get(mode="promise_in_bounds") if i.ndim == 0 else x[i],
        lambda x, i: (
            jnp.take_along_axis(x, jnp.abs(i[:, :1])[:, :, None] % 4, axis=1)
            if x.shape[0] == 2
            else x[i[0]]
        ),
    ],
)
def test_elements_at_indices(fn: Fn):
    check(fn, X, AT)


def test_integers_outside_are_what_jax_says():
    check(lambda x, i: x[i], ints(5, 2), AT)
    check(lambda x, i: x[i], ints(5, 2).astype(np.uint32), AT)


def test_elements_along_an_axis():
    at = np.abs(ints(5, 2, 3)) % 4
    check(lambda x, i: jnp.take_along_axis(x, i, axis=1), X, at)


def test_windows():
    for at in (0, 2, 9, -1, -9):
        check(lambda x, i: lax.dynamic_slice(x, (i, 1, 0), (2, 2, 3)), X, np.int32(at))
        check(lambda x, i: lax.dynamic_index_in_dim(x, i, 1), X, np.int32(at))


def test_a_window_for_each_row():
    at = np.array([0, 1, 9, -1, 2], np.int32)
    check(jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 3))), X, at)
    check(jax.vmap(lambda x, i: x[i]), X, at)


def test_windows_replaced():
    new = floats(2, 1, 3, seed=1)
    for at in (0, 2, 9, -1, -9):
        fn = lax.dynamic_update_slice
        check(lambda x, u, i: fn(x, u, (i, 1, 0)), X, new, np.int32(at))  # noqa: B023 - run now


def test_a_window_of_each_row_replaced():
    at = np.array([0, 1, 9, -1, 2], np.int32)
    row = floats(5, 1, 3, seed=1)
    check(jax.vmap(lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0))), X, row, at)
    check(lambda x, i: x.at[jnp.arange(5), i].set(1.0), X, at)


@pytest.mark.parametrize("at", [0, 3, -1, 9, -9])
def test_elements_set(at: int):
    i = np.int32(at)
    check(lambda x, i: x.at[i].set(1.0), X, i)
    check(lambda x, i: x.at[:, i].set(jnp.ones(3)), X, i)
    check(lambda x, i: x.at[1, i].set(2.0, mode="clip"), X, i)
    check(lambda x, i: x.at[i, :, 1].set(x[0, :, 0]), X, i)


def test_rows_set_at_indices():
    check(lambda x, u: x.at[jnp.array([3, 0])].set(u), X, floats(2, 4, 3, seed=1))
    check(lambda x, i: x.at[i].set(5.0), X, np.array([1, 4, -1], np.int32))


def test_many_windows_are_refused():
    with pytest.raises(UnsupportedOps, match="at most 64 windows: windows=65"):
        poot.from_jax(lambda x: x.at[jnp.arange(65)].set(0.0), floats(80))


def test_what_is_proved_inside_needs_no_select():
    got = poot.from_jax(lambda x, i: x[i], X, ints(2), ranges={"i": (0, 5)})
    assert [e.op for e in got.graph.eqns if e.op in ("select", "gather")] == ["gather"]
