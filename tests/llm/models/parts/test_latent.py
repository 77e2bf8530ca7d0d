"""Latent attention: a chunk's keys and values, made, mean what a token's absorbed query does."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.llm.layout import Layout
from poot.llm.models.paged_decoder import paged_decoder_graphs
from poot.llm.paged import PagedStep, pool_specs, step_slots
from poot.trace import slot
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


def test_over_pools_it_is_one_row_too():
    held = [i for i in _decode("f32").inputs if i.name.startswith("kv.")]
    assert [str(i.var.type) for i in held] == ["f32[128,1,32]"] * 3


def test_a_wide_latent_pool_is_read_once_for_many_heads_on_the_card():
    def step(pools, q, row, pos, read, write):
        return PagedStep(ops.reshape(pos, (2, 1)), pos, read, write).attend_rows(
            pools, q, row, 512, scale=0.1
        )

    maps = step_slots(2, 1, 64, 256, 10)
    specs = (
        pool_specs(256, 1, 576, "bf16", has_values=False),
        slot((2, 16, 1, 576), "bf16"),
        slot((2, 1, 1, 576), "bf16"),
        maps["pos"], maps["read"], maps["write"],
    )  # fmt: skip
    program = poot.compile(poot.trace(step, specs), target="h200")
    assert "attention +1: latent " in str(program.explain())


def _decode(kv: str):
    given = tiny("deepseek_v3")
    layout = Layout(blocks=8, capacity=32, decode_rows=(2,), prefill=((1, 16),), kv=kv)
    return paged_decoder_graphs(given.files, given.model, layout)["decode_2"]
