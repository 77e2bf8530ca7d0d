"""Tiny models of each family with random weights, made, saved and run by `transformers`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import PreTrainedModel

_SIZES: Mapping[str, object] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_MLA: Mapping[str, object] = {
    **_SIZES,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}
_TYPES = ["sliding_attention", "full_attention"]

# name -> (the class's stem, what its configuration says besides)
TINY: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "llama2": ("Llama", _SIZES),
    "llama3": ("Llama", {**_SIZES, "rope_parameters": _LLAMA3}),
    "llama_biased": ("Llama", {**_SIZES, "attention_bias": True, "mlp_bias": True,
                               "tie_word_embeddings": True}),
    "mistral": ("Mistral", {**_SIZES, "sliding_window": 7, "head_dim": 16}),
    "mixtral": ("Mixtral", {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2", {**_SIZES, "use_sliding_window": True, "sliding_window": 6,
                        "max_window_layers": 1}),
    "qwen3": ("Qwen3", {**_SIZES, "head_dim": 16}),
    "qwen3_moe": ("Qwen3Moe", {**_SIZES, "head_dim": 16, "num_experts": 8,
                               "num_experts_per_tok": 3, "moe_intermediate_size": 24,
                               "mlp_only_layers": [0]}),
    "gemma2": ("Gemma2", {**_SIZES, "head_dim": 16, "sliding_window": 6,
                          "query_pre_attn_scalar": 24, "layer_types": _TYPES}),
    "gemma3": ("Gemma3", {**_SIZES, "head_dim": 16, "sliding_window": 6,
                          "query_pre_attn_scalar": 24, "layer_types": _TYPES}),
    "phi3": ("Phi3", {**_SIZES, "sliding_window": 9, "pad_token_id": 0,
                      "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                          "partial_rotary_factor": 0.5}}),
    "phi3_long": ("Phi3", {**_SIZES, "pad_token_id": 0,
                           "original_max_position_embeddings": 32,
                           "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                                               "original_max_position_embeddings": 32,
                                               "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                                               "long_factor": [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]}}),
    "gpt_oss": ("GptOss", {**_SIZES, "head_dim": 16, "sliding_window": 6, "layer_types": _TYPES,
                           "num_local_experts": 4, "num_experts_per_tok": 2,
                           "rope_parameters": {**_YARN, "truncate": False}}),
    "bloom": ("Bloom", {"vocab_size": 97, "hidden_size": 48, "n_layer": 2, "n_head": 6}),
    "mpt": ("Mpt", {"vocab_size": 97, "d_model": 48, "n_layers": 2, "n_heads": 6,
                    "max_seq_len": 256, "attn_config": {"clip_qkv": 0.8}}),
    "deepseek_v2": ("DeepseekV2", {**_MLA, "q_lora_rank": None, "topk_method":
                                   "group_limited_greedy", "n_group": 4, "topk_group": 2,
                                   "rope_parameters": {**_YARN, "mscale": 0.707,
                                                       "mscale_all_dim": 0.707}}),
    "deepseek_v3": ("DeepseekV3", {**_MLA, "q_lora_rank": 20, "n_group": 2, "topk_group": 1,
                                   "rope_parameters": {**_YARN, "mscale": 1.0,
                                                       "mscale_all_dim": 1.0}}),
}  # fmt: skip


# Others, for tests that name them.
MORE: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "gpt_oss_wide": ("GptOss", {**TINY["gpt_oss"][1], "hidden_size": 64}),
}


@cache
def tiny_model(name: str, vocab: int = 97) -> PreTrainedModel:
    """The model, in f32, all of its tensors drawn: gains near 1, biases, sinks and all."""
    stem, said = {**TINY, **MORE}[name]
    is_text = "TextConfig" if stem == "Gemma3" else "Config"
    config = getattr(transformers, f"{stem}{is_text}")(**{**said, "vocab_size": vocab})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{stem}ForCausalLM")(config).eval().float()
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, held in sorted(model.state_dict().items()):
            wide = torch.randn(held.shape, generator=draw)
            if held.ndim == 1:
                around = 1.0 if "norm" in key and "bias" not in key else 0.0
                held.copy_(around + 0.2 * wide)
            else:
                held.copy_(wide * held.shape[-1] ** -0.5)
    return model


def save_tiny(
    name: str, folder: Path, *, shard: str = "5GB", dtype: str = "float32", vocab: int = 97
) -> Path:
    """The checkpoint in `folder`, in shards of at most `shard`."""
    model = tiny_model(name, vocab)
    if dtype != "float32":
        model = copy.deepcopy(model).to(getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def hf_logits(name: str, ids: list[int], vocab: int = 97) -> np.ndarray:
    """f32 [len(ids), vocab] of one pass over all of them."""
    with torch.no_grad():
        return tiny_model(name, vocab)(torch.tensor([ids])).logits[0].float().numpy()
