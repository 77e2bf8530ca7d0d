"""Primitives that move elements, against JAX."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import poot
from poot.errors import UnsupportedOps
from tests.support.jaxpr import check, floats

X = floats(3, 4, 2)


def test_shapes():
    check(lambda x: (x.reshape(4, 6), x.ravel(), x[None], x[:, :1].squeeze(1)), X)
    check(lambda x: lax.reshape(x, (6, 4), (2, 0, 1)), X)


def test_broadcasts():
    check(lambda x: lax.broadcast_in_dim(x, (3, 5, 4, 2), (0, 2, 3)), X)
    check(lambda x: lax.broadcast_in_dim(x, (2, 3), ()), np.float32(3.5))


def test_transposes():
    check(lambda x: (x.T, jnp.moveaxis(x, 0, 1), x.sum().T), X)


def test_slices():
    check(lambda x: (x[1:, ::2], x[:, 3:1], x[2], x[..., -1]), X)


def test_joins_and_splits():
    check(lambda x: (jnp.concatenate((x, x[:1]), 0), jnp.stack((x, x), 1)), X)
    check(lambda x: jnp.split(x, (1, 3), axis=1), X)
    check(lambda x: jnp.unstack(x, axis=1), X)


def test_padding():
    check(lambda x: jnp.pad(x, ((1, 0), (0, 2), (0, 0)), constant_values=7.0), X)
    check(lambda x: lax.pad(x, np.float32(1), ((-1, 2, 0), (0, 0, 0), (1, -1, 0))), X)


def test_padding_between_elements_is_refused():
    with pytest.raises(UnsupportedOps, match="no padding between elements: axis=0, between=1"):
        poot.from_jax(lambda x: lax.pad(x, np.float32(0), ((0, 0, 1), (0, 0, 0), (0, 0, 0))), X)


def test_reversals_and_repeats():
    check(lambda x: (jnp.flip(x), jnp.tile(x, (2, 1, 3)), jnp.repeat(x, 2, axis=1)), X)


def test_counting():
    check(lambda x: x[..., 0] + lax.broadcasted_iota(jnp.float32, (3, 4), 1), X)
    check(lambda x: x[0, :, 0] + jnp.arange(4), X)


def test_rows_of_a_scan():
    check(lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros((4, 2)), x), X)
    check(lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x, reverse=True), X)
