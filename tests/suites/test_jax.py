"""Models as Flax, Equinox and jnp write them, through `from_jax`: logits equal, attention fused."""

from __future__ import annotations

from contextlib import closing
from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import poot
from poot.frontends.imported import Imported
from tests.support.everywhere import compile_on
from tests.support.jax_tiny import LAYERS, LENGTH, MODELS, WORDS

IDS = np.random.default_rng(0).integers(0, WORDS, (2, LENGTH), np.int32)
ROPED = ("plain", "jax.nn")


@cache
def imported(name: str) -> tuple[Imported, np.ndarray]:
    """The model's graph, and the logits that JAX gives."""
    fn, weights = MODELS[name]()
    return poot.from_jax(fn, weights, IDS), np.asarray(
        eqx.filter_jit(fn)(weights, jnp.asarray(IDS))
    )


@pytest.mark.parametrize("target", ["cpu", "vulkan"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_jax(name: str, target: str):
    got, want = imported(name)
    with closing(got.bind(compile_on(target, got.graph))) as session:
        out = session.step(ids=IDS)
    np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_every_attention_fuses(name: str):
    report = poot.compile(imported(name)[0].graph, "cpu").explain()
    assert f"attention: attention {LAYERS}" in report
    assert "not fused" not in report
    assert ("did: 2 x rope" in report) == (name in ROPED)
