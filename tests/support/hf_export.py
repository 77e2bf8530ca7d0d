"""Tiny Hugging Face models through `torch.export`, each with the attention that it is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

import poot
from poot.frontends.imported import Imported
from tests.support.hf_tiny import TINY, tiny_model

VOCAB, TOKENS = 97, 20
_ENDS: Mapping[str, object] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
_SIZES: Mapping[str, object] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    **_ENDS,
}

# name -> (the model's class, its configuration's, what that says). Families that poot doesn't read
# by itself; the others are in TINY.
OTHERS: Mapping[str, tuple[str, str, Mapping[str, object]]] = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "vocab_size": VOCAB, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4, **_ENDS}),
    "mpt": ("MptForCausalLM", "MptConfig", {
        "vocab_size": VOCAB, "d_model": 48, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}),
    "opt": ("OPTForCausalLM", "OPTConfig", {
        "vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "ffn_dim": 64, "max_position_embeddings": 64, "word_embed_proj_dim": 48, **_ENDS}),
    "falcon": ("FalconForCausalLM", "FalconConfig", {
        "vocab_size": VOCAB, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        **_ENDS}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _SIZES),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", {**_SIZES, "num_key_value_heads": 2}),
    "phi": ("PhiForCausalLM", "PhiConfig", {**_SIZES, "num_key_value_heads": 2}),
    "cohere": ("CohereForCausalLM", "CohereConfig", {**_SIZES, "num_key_value_heads": 2}),
}  # fmt: skip


_WHISPER = {
    "vocab_size": VOCAB, "d_model": 48, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_source_positions": 32, "max_target_positions": 32,
    "num_mel_bins": 16, "decoder_start_token_id": 1, "suppress_tokens": [],
    "begin_suppress_tokens": [], **_ENDS,
}  # fmt: skip
# name -> (class, configuration, what it says, attentions). Encoders, and encoders with decoders.
ENCODERS: Mapping[str, tuple[str, str, Mapping[str, object], int]] = {
    "bert": ("BertModel", "BertConfig", _SIZES, 2),
    "t5": ("T5ForConditionalGeneration", "T5Config", {
        "vocab_size": VOCAB, "d_model": 48, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 0}, 6),
    "vit": ("ViTModel", "ViTConfig", {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "image_size": 32, "patch_size": 8}, 2),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", _WHISPER, 6),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """An imported model, how many attentions it has, and what torch makes of the feed: logits, or
    the last hidden state."""

    imported: Imported
    layers: int
    feed: Mapping[str, np.ndarray]
    logits: np.ndarray


def ids(batch: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB, (batch, TOKENS)))


@cache
def model_of(name: str) -> PreTrainedModel:
    if name in TINY:
        return tiny_model(name, VOCAB)
    model, config, said = OTHERS[name]
    torch.manual_seed(7)
    return getattr(transformers, model)(getattr(transformers, config)(**said)).eval().float()


@cache
def exported(name: str, attention: str, padded: bool = False) -> Exported:
    """The model with its attention "eager" or "sdpa"; of two rows, the first padded at the left,
    where `padded`. Experts are read row by row: torch exports no product grouped by expert."""
    model = model_of(name)
    model.set_attn_implementation(attention)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")
    feed = {"input_ids": ids(2 if padded else 1)}
    if padded:
        feed["attention_mask"] = torch.ones(2, TOKENS, dtype=torch.int64)
        feed["attention_mask"][0, :5] = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # what transformers and torch warn of is theirs
        program = torch.export.export(model, (), {**feed, "use_cache": False})
        logits = model(**feed, use_cache=False).logits.numpy()
        imported = poot.from_torch(program)
    arrays = {name: x.numpy() for name, x in feed.items()}
    return Exported(imported, model.config.num_hidden_layers, arrays, logits)


def _encoder_feed(name: str) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    if name == "vit":
        return {"pixel_values": torch.randn(1, 3, 32, 32, generator=draw)}
    if name == "whisper":
        sound = torch.randn(1, 16, 64, generator=draw)
        return {"input_features": sound, "decoder_input_ids": ids()[:, :6]}
    feed = {"input_ids": ids(2), "attention_mask": torch.ones(2, TOKENS, dtype=torch.int64)}
    feed["attention_mask"][1, 13:] = 0
    return feed | ({"decoder_input_ids": ids(2)[:, :6]} if name == "t5" else {})


@cache
def encoder(name: str, attention: str) -> Exported:
    """A model of ENCODERS, two rows of which one is padded where it reads tokens."""
    model, config, said, attentions = ENCODERS[name]
    torch.manual_seed(7)
    made = getattr(transformers, model)(getattr(transformers, config)(**said)).eval().float()
    made.set_attn_implementation(attention)
    feed = _encoder_feed(name)
    fixed = {"use_cache": False} if "decoder_input_ids" in feed else {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        imported = poot.from_torch(torch.export.export(made, (), {**feed, **fixed}))
        first = next(iter(made(**feed, **fixed).values())).numpy()
    return Exported(imported, attentions, {n: x.numpy() for n, x in feed.items()}, first)


CAPACITY = 32


@cache
def decoder(name: str) -> Imported:
    """One token over a StaticCache of CAPACITY rows; its slots are input_ids and cache_position."""
    model = model_of(name)
    model.set_attn_implementation("sdpa")
    cache = {"batch_size": 1, "max_cache_len": CAPACITY, "device": "cpu"}
    model.config.use_cache = True
    model.generation_config = GenerationConfig(
        use_cache=True, cache_implementation="static", cache_config=cache, max_length=CAPACITY
    )
    step = TorchExportableModuleWithStaticCache(model)
    feed = {"input_ids": torch.tensor([[5]]), "cache_position": torch.tensor([3])}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(step, (), feed, strict=True)
        return poot.from_torch(program, ranges={"cache_position": (0, CAPACITY)})
