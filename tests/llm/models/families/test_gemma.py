"""What the readers of Gemma make of its files."""

from __future__ import annotations

from tests.support.hf_run import tiny


def test_gemma_3s_windowed_layers_turn_by_a_frequency_of_their_own():
    model = tiny("gemma3").model
    assert [(x.attention.rotary, x.attention.window) for x in model.layers] == [(1, 6), (0, None)]
    assert [r.theta for r in model.rotaries] == [1e6, 1e4]


def test_gemma_2_caps_scores_and_logits_and_scales_by_its_own_number():
    model = tiny("gemma2").model
    assert (model.layers[0].attention.softcap, model.softcap) == (50.0, 30.0)
    assert model.layers[0].attention.scale == 24**-0.5
    assert model.layers[0].has_post_norms
    assert model.norm.plus_one
    assert model.is_tied
