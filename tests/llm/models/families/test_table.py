"""The table of families, and configurations from strangers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from poot.errors import FormatError
from poot.llm.json_config import keys_of
from poot.llm.models.families.table import FAMILIES, read_family
from poot.llm.models.parts.kinds import Decoder
from tests.support.hf_run import saved, tiny
from tests.support.hf_tiny import TINY


def reading(name: str, **edits: object) -> Decoder:
    config = json.loads((saved(name) / "config.json").read_text()) | edits
    return read_family(keys_of("config.json", config))


def test_every_row_is_tried_against_transformers():
    assert {f"{stem}ForCausalLM" for stem, _ in TINY.values()} == set(FAMILIES)


def test_an_unknown_architecture_is_named_with_the_list():
    with pytest.raises(
        FormatError, match=r"is GPT2LMHeadModel; poot has BloomForCausalLM, .*Qwen3"
    ):
        reading("llama2", architectures=["GPT2LMHeadModel"])
    with pytest.raises(FormatError, match="is not named; poot has"):
        reading("llama2", architectures=[])


@pytest.mark.parametrize(
    "name", ["llama2", "bloom", "deepseek_v3", "gemma3", "gpt_oss", "qwen3_moe"]
)
@pytest.mark.parametrize(
    "value", [-1, 0, 1 << 60, 1e300, float("nan"), "many", True, [], {"a": 1}, None]
)
def test_a_size_that_is_absurd_is_a_format_error_or_no_size_at_all(name: str, value: object):
    """Whatever any one key says, reading ends, in a model within bounds or a FormatError."""
    config = json.loads((saved(name) / "config.json").read_text())
    for key in config:
        try:
            model = reading(name, **{key: value})
        except FormatError:
            continue
        assert 1 <= len(model.layers) <= 1024
        assert 1 <= model.width <= 1 << 17


@pytest.mark.parametrize(
    "name, edits, words",
    [
        ("llama2", {"hidden_size": 50, "head_dim": None}, "a divisor of the width 50"),
        ("llama2", {"num_key_value_heads": 3}, "a divisor of 4 heads"),
        ("llama2", {"hidden_act": "relu"}, "hidden_act is 'relu'; needs one of silu"),
        ("llama2", {"quantization_config": {"quant_method": "hqq"}}, r"quantised \(hqq\)"),
        ("llama2", {"rope_parameters": {"rope_type": "dynamic"}}, "rope_type is 'dynamic'"),
        ("llama2", {"sliding_window": 4}, "sliding_window is 4"),
        ("mixtral", {"num_experts_per_tok": 5}, "an integer from 1 to 4"),
        ("gemma2", {"layer_types": ["full_attention"]}, "2 texts"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
        (
            "phi3_long",
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}},
            "short",
        ),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob is True"),
        ("deepseek_v3", {"n_group": 3}, "a divisor of 8 experts"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln is True"),
        ("mpt", {"attn_config": {"alibi": False}}, "alibi is False"),
        ("mpt", {"n_heads": 5}, "a divisor of the width 48"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual"),
    ],
)
def test_what_a_family_does_not_do_is_named(name: str, edits: dict[str, object], words: str):
    with pytest.raises(FormatError, match=words):
        reading(name, **edits)


def test_older_files_say_the_same_under_older_keys():
    """rope_theta and rope_scaling at the top, as before rope_parameters."""
    said = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32}  # fmt: skip
    old = reading("llama3", rope_parameters=None, rope_theta=5e5, rope_scaling=said)
    assert old.rotaries == tiny("llama3").model.rotaries
    new = tiny("gemma3").model
    old = reading("gemma3", rope_parameters=None, rope_theta=1e6, rope_local_base_freq=1e4)
    assert replace(old, names=new.names) == new
