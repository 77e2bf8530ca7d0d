"""What the readers of plain families make of their files."""

from __future__ import annotations

from poot.llm.models.parts.kinds import Dense, Experts, Heads, Layer
from tests.support.hf_run import tiny


def heads(layer: Layer) -> Heads:
    assert isinstance(layer.attention, Heads)
    return layer.attention


def test_windows_stand_where_each_family_has_them():
    windows = {n: [heads(x).window for x in tiny(n).model.layers] for n in ("mistral", "qwen2")}
    assert windows == {"mistral": [7, 7], "qwen2": [None, 6]}


def test_biases_norms_and_fused_matrices_follow_the_family():
    assert heads(tiny("qwen2").model.layers[0]).is_biased
    assert not heads(tiny("qwen2").model.layers[0]).is_out_biased
    assert heads(tiny("qwen3").model.layers[0]).qk_norm is not None
    assert heads(tiny("phi3").model.layers[0]).fused == "rows"
    assert heads(tiny("llama_biased").model.layers[0]).is_out_biased


def test_layers_that_the_file_excepts_have_no_experts():
    kinds = [type(layer.feed) for layer in tiny("qwen3_moe").model.layers]
    assert kinds == [Dense, Experts]
