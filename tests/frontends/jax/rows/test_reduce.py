"""Reductions, cumulative sums and orders, against JAX."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import poot
from poot.errors import UnsupportedOps
from tests.support.jaxpr import bools, check, edges, floats, ints

X, N, A = floats(3, 4, 2), ints(3, 4), bools(3, 4)


def test_reductions_of_floats():
    check(lambda x: (x.sum(0), x.max((1, 2)), x.min(-1, keepdims=True), x.mean(), x.var(1)), X)


def test_reductions_of_integers():
    check(lambda x: (x.sum(0), x.max(), x.min(1)), N)


def test_reductions_of_bools():
    check(lambda a: (a.any(0), a.all(1), lax.reduce_max(a, (0,)), lax.reduce_min(a, (1,))), A)


def test_where_the_largest_and_the_least_stand():
    check(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x)), X)
    check(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1)), N)


def test_a_nan_stands_above_all_numbers():
    check(lambda x: (jnp.argmax(x), jnp.argmin(x)), edges())
    check(lambda x: jnp.argmax(x), np.concatenate((edges(), edges())))


def test_orders_among_nan_infinities_and_zeros():
    both = np.concatenate((edges(), edges()[::-1]))
    check(lambda x: (lax.top_k(x, 20), jnp.sort(x), jnp.argsort(x)), both)
    check(lambda n: (jnp.argmin(n), jnp.argsort(n)), np.array([1, -(2**31), 5, 2], np.int32))


def test_nan_with_a_sign_goes_last_among_the_largest():
    bits = [0x7FC00001, 0xFFC00001, 0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000, 0x80000000, 0]
    x = np.array(bits, np.uint32).view(np.float32)
    check(lambda x: lax.top_k(x, 8)[1], x)
    check(lambda x: lax.top_k(x, 8)[1], x[::-1].copy())


def test_running_sums():
    check(lambda x: (jnp.cumsum(x, 1), lax.cumsum(x, 0, reverse=True)), X)
    check(lambda x: jnp.cumsum(x, 0), N)


def test_the_largest_few():
    check(lambda x: lax.top_k(x, 2), X)


def test_orders():
    check(lambda x: (jnp.sort(x, axis=1), jnp.argsort(x, axis=1)), X)
    check(lambda x: jnp.sort(x), N)


def test_an_order_by_two_keys_is_refused():
    with pytest.raises(UnsupportedOps, match="sort needs one key: num_keys=2"):
        poot.from_jax(lambda x: lax.sort((x, x), num_keys=2), X)
