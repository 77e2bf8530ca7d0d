"""What the readers of GPT-OSS, Bloom and DeepSeek make of their files."""

from __future__ import annotations

import math

from poot.llm.models.families.others import alibi
from tests.support.hf_run import tiny


def test_gpt_oss_has_sinks_and_clamped_experts():
    layer = tiny("gpt_oss").model.layers[0]
    assert layer.attention.is_sunk
    assert layer.attention.window == 6
    assert layer.feed.clamped == (1.702, 7.0)


def test_bloom_has_slopes_and_no_rotation():
    model = tiny("bloom").model
    assert len(model.layers[0].attention.slopes) == 6
    assert (model.rotaries, model.context) == ((), 2048)


def test_mpt_has_slopes_and_bounds_what_it_projects():
    attention = tiny("mpt").model.layers[0].attention
    assert attention.slopes == (0.25, 0.0625, 2.0**-6, 2.0**-8, 0.5, 0.125)
    assert alibi(4) == (0.25, 0.0625, 2.0**-6, 2.0**-8)
    assert attention.clip == 0.8


def test_deepseeks_scale_grows_with_yarn():
    grown = 0.1 * 0.707 * math.log(8.0) + 1.0
    scale = tiny("deepseek_v2").model.layers[0].attention.scale
    assert math.isclose(scale, 24**-0.5 * grown * grown)


def test_deepseek_v3_routes_by_sigmoid_in_groups_with_shared_experts():
    feed = tiny("deepseek_v3").model.layers[1].feed
    assert (feed.router.is_sigmoid, feed.router.groups, feed.router.scale) == (True, 2, 1.7)
    assert feed.shared == 64
