"""Families whose layers have a norm, attention, a norm, and one feed-forward: Llama, Mistral,
Mixtral, Qwen2, Qwen3, Phi-3."""

from __future__ import annotations

from dataclasses import replace

from poot.llm.keys import Keys
from poot.llm.models.families.read import (
    IGNORED,
    MAX_EXPERTS,
    NAMES,
    Sizes,
    need_neutral,
    read_act,
    read_rotary,
    read_sizes,
    read_windows,
    rope_keys,
)
from poot.llm.models.parts.kinds import Decoder, Dense, Experts, Heads, Layer, Norm, Router

Windows = tuple[int | None, ...]


def heads_of(sizes: Sizes) -> Heads:
    """Grouped-query attention of these sizes, turned by the first rotary."""
    return Heads(sizes.heads, sizes.kv_heads, sizes.head_dim, scale=sizes.head_dim**-0.5, rotary=0)


def plain_decoder(
    family: str,
    keys: Keys,
    sizes: Sizes,
    attention: Heads,
    feeds: tuple[Dense | Experts, ...],
    windows: Windows,
) -> Decoder:
    """A decoder of RMSNorm layers that differ in feed-forward and window alone."""
    norm = Norm(sizes.eps)
    rotary = read_rotary(rope_keys(keys), sizes.head_dim, sizes.context)
    return Decoder(
        family=family,
        width=sizes.width,
        vocab=sizes.vocab,
        context=sizes.context,
        layers=tuple(
            Layer(replace(attention, window=window), feed, norm)
            for feed, window in zip(feeds, windows, strict=True)
        ),
        norm=norm,
        rotaries=(rotary,),
        names=dict(NAMES),
        is_tied=sizes.is_tied,
        ignored=IGNORED,
    )


def _dense(keys: Keys, sizes: Sizes, *, biased: bool = False, fused: bool = False) -> Dense:
    return Dense(sizes.ffn, read_act(keys), is_biased=biased, is_fused=fused)


def read_llama(keys: Keys) -> Decoder:
    """Llama 2 and 3, SmolLM: biases where the file asks for them, scaled rotation."""
    need_neutral(keys, {"sliding_window": ()})
    sizes = read_sizes(keys)
    biased = keys.flag("attention_bias", False)
    attention = replace(heads_of(sizes), is_biased=biased, is_out_biased=biased)
    feed = _dense(keys, sizes, biased=keys.flag("mlp_bias", False))
    none: Windows = (None,) * sizes.layers
    return plain_decoder("Llama", keys, sizes, attention, (feed,) * sizes.layers, none)


def read_mistral(keys: Keys) -> Decoder:
    """Mistral: a window on every layer where the file names one."""
    need_neutral(keys, {})
    sizes = read_sizes(keys)
    windows = read_windows(keys, sizes.layers, (True,) * sizes.layers)
    feeds = (_dense(keys, sizes),) * sizes.layers
    return plain_decoder("Mistral", keys, sizes, heads_of(sizes), feeds, windows)


def read_mixtral(keys: Keys) -> Decoder:
    """Mixtral: each row uses the experts of the largest softmax, weighed among themselves."""
    need_neutral(keys, {})
    sizes = read_sizes(keys)
    count = keys.integer("num_local_experts", 1, MAX_EXPERTS)
    used = keys.integer("num_experts_per_tok", 1, count)
    feed = Experts(count, sizes.ffn, Router(used), act=read_act(keys))
    windows = read_windows(keys, sizes.layers, (True,) * sizes.layers)
    made = plain_decoder("Mixtral", keys, sizes, heads_of(sizes), (feed,) * sizes.layers, windows)
    expert = "block_sparse_moe.experts.{e}."
    made.names.update(
        router="block_sparse_moe.gate",
        each_gate=f"{expert}w1",
        each_up=f"{expert}w3",
        each_down=f"{expert}w2",
    )
    return made


def _qwen_windows(keys: Keys, sizes: Sizes) -> Windows:
    if not keys.flag("use_sliding_window", False):
        return (None,) * sizes.layers
    first = keys.integer("max_window_layers", 0, 1 << 20, 28)
    return read_windows(keys, sizes.layers, tuple(i >= first for i in range(sizes.layers)))


def read_qwen2(keys: Keys) -> Decoder:
    """Qwen2: biases on q, k and v."""
    need_neutral(keys, {})
    sizes = read_sizes(keys)
    attention = replace(heads_of(sizes), is_biased=True)
    feeds = (_dense(keys, sizes),) * sizes.layers
    windows = _qwen_windows(keys, sizes)
    return plain_decoder("Qwen2", keys, sizes, attention, feeds, windows)


def _qwen3_heads(keys: Keys, sizes: Sizes) -> Heads:
    biased = keys.flag("attention_bias", False)
    norm = Norm(sizes.eps)
    return replace(heads_of(sizes), is_biased=biased, is_out_biased=biased, qk_norm=norm)


def read_qwen3(keys: Keys) -> Decoder:
    """Qwen3: q and k of each head are normed before they are turned."""
    need_neutral(keys, {})
    sizes = read_sizes(keys, head_dim=128)
    feeds = (_dense(keys, sizes),) * sizes.layers
    windows = _qwen_windows(keys, sizes)
    return plain_decoder("Qwen3", keys, sizes, _qwen3_heads(keys, sizes), feeds, windows)


def read_qwen3_moe(keys: Keys) -> Decoder:
    """Qwen3 with experts on all layers but those that the file excepts."""
    need_neutral(keys, {})
    sizes = read_sizes(keys, head_dim=128)
    key = "num_local_experts" if "num_local_experts" in keys.values else "num_experts"
    count = keys.integer(key, 1, MAX_EXPERTS)
    router = Router(
        keys.integer("num_experts_per_tok", 1, count), keys.flag("norm_topk_prob", False)
    )
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    experts, dense = Experts(count, width, router, act=read_act(keys)), _dense(keys, sizes)
    every = keys.integer("decoder_sparse_step", 1, 1 << 20, 1)
    plain = keys.values.get("mlp_only_layers", ())
    if not isinstance(plain, tuple):
        raise keys.refuse("mlp_only_layers", "a list of layers")
    feeds = tuple(dense if i in plain or (i + 1) % every else experts for i in range(sizes.layers))
    windows = _qwen_windows(keys, sizes)
    return plain_decoder("Qwen3-MoE", keys, sizes, _qwen3_heads(keys, sizes), feeds, windows)


def read_phi3(keys: Keys) -> Decoder:
    """Phi-3: one matrix makes q, k and v, one gate and up; LongRoPE or plain rotation of a part."""
    need_neutral(keys, {"attention_bias": (False,)})
    sizes = read_sizes(keys)
    attention = replace(heads_of(sizes), fused="rows")
    feeds = (_dense(keys, sizes, fused=True),) * sizes.layers
    windows = read_windows(keys, sizes.layers, (True,) * sizes.layers)
    return plain_decoder("Phi-3", keys, sizes, attention, feeds, windows)
