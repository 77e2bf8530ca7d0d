"""Latent attention: a chunk's keys and values, made, mean what a token's absorbed query does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.hf_run import IDS, fed, stepper, tiny


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_a_chunk_and_its_tokens_one_by_one_give_the_same_logits_and_the_same_cache(name: str):
    whole, single = (stepper(tiny(name), "oracle", 32, (1, 12)) for _ in range(2))
    np.testing.assert_allclose(
        fed(whole, IDS[:12], [12]), fed(single, IDS[:12], [1] * 12), rtol=0, atol=2e-5
    )
    after = [step([IDS[12]], 12) for step in (whole, single)]
    np.testing.assert_allclose(*after, rtol=0, atol=2e-5)


def test_the_cache_of_a_layer_is_one_row_of_latent_and_rotary_elements():
    graph = tiny("deepseek_v3").graphs(32, (1,))["decode"]
    held = [str(i.var.type) for i in graph.inputs if i.name.startswith("kv.")]
    assert held == ["f32[1,1,32,32]"] * 3
