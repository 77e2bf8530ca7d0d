"""What random draws are made of, beside JAX."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax
from jax.extend.random import threefry2x32_p

import poot
from poot.errors import UnsupportedOps
from poot.frontends.jax.rows.random import RANDOM, iota_2x32_shape
from tests.support.jaxpr import check, edges, floats


def test_words_of_counters_are_those_of_jax():
    draw = np.random.default_rng(0)
    words = draw.integers(0, 2**32, (4, 3, 5), np.uint64).astype(np.uint32)
    check(lambda a: threefry2x32_p.bind(*a), words)
    check(lambda a, k: threefry2x32_p.bind(k[0], k[1], a[0], a[1]), words, words[2, 0, :2])


def test_the_inverse_of_erf_is_that_of_jax():
    check(lax.erf_inv, np.tanh(floats(40, scale=2.0)))
    check(lax.erf_inv, edges())
    check(lax.erf_inv, np.array([0.999, -0.99999, 0.9999999, -0.5], np.float32))


def test_counters_of_more_than_thirty_one_bits_are_refused():
    with pytest.raises(UnsupportedOps, match="fewer than 2\\^31 elements"):
        poot.from_jax(lambda k: jax.random.bits(k, (1 << 16, 1 << 15)), jax.random.key(0))
    assert RANDOM["iota_2x32_shape"] is iota_2x32_shape
