"""Gemma 2 and 3: norms before and after with gains of 1 + w, scaled embedding, GeGLU, windowed
layers among whole ones."""

from __future__ import annotations

from dataclasses import replace

from poot.llm.keys import Keys
from poot.llm.models.families.plain import heads_of, plain_decoder
from poot.llm.models.families.read import (
    Sizes,
    need_neutral,
    read_act,
    read_rotary,
    read_sizes,
    read_windows,
    rope_keys,
)
from poot.llm.models.parts.kinds import Decoder, Dense, Heads, Norm, Rotary

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "use_bidirectional_attention": (False,),
    "attention_bias": (False,),
}


def _decoder(
    family: str,
    keys: Keys,
    sizes: Sizes,
    attention: Heads,
    windows: tuple[int | None, ...],
) -> Decoder:
    scale = keys.real("query_pre_attn_scalar", 0.0, 1e6, 256.0) ** -0.5
    feed = Dense(sizes.ffn, read_act(keys, "hidden_activation", "gelu_pytorch_tanh"))
    made = plain_decoder(
        family, keys, sizes, replace(attention, scale=scale), (feed,) * sizes.layers, windows
    )
    made.names.update(
        norm_mixed="post_attention_layernorm",
        norm_feed="pre_feedforward_layernorm",
        norm_fed="post_feedforward_layernorm",
    )
    norm = Norm(sizes.eps, plus_one=True)
    layers = tuple(replace(x, norm=norm, has_post_norms=True) for x in made.layers)
    return replace(made, layers=layers, norm=norm, embed_scale=sizes.width**0.5)


def _cap(keys: Keys, key: str) -> float | None:
    return keys.real(key, 0.0, 1e6) if key in keys.values else None


def read_gemma2(keys: Keys) -> Decoder:
    """Gemma 2: scores and logits are capped; every other layer, from the first, is windowed."""
    need_neutral(keys, _NEUTRAL)
    sizes = read_sizes(keys, head_dim=256, tied=True)
    attention = replace(heads_of(sizes), softcap=_cap(keys, "attn_logit_softcapping"))
    by_turns = tuple(i % 2 == 0 for i in range(sizes.layers))
    windows = read_windows(keys, sizes.layers, by_turns)
    made = _decoder("Gemma 2", keys, sizes, attention, windows)
    return replace(made, softcap=_cap(keys, "final_logit_softcapping"))


def read_gemma3(keys: Keys) -> Decoder:
    """Gemma 3: q and k are normed; windowed layers turn by a frequency of their own. By default
    every sixth layer is whole."""
    need_neutral(keys, _NEUTRAL)
    sizes = read_sizes(keys, head_dim=256, tied=True)
    norm = Norm(sizes.eps, plus_one=True)
    attention = replace(heads_of(sizes), softcap=_cap(keys, "attn_logit_softcapping"), qk_norm=norm)
    every = keys.integer("sliding_window_pattern", 1, 1 << 20, 6)
    windows = read_windows(
        keys, sizes.layers, tuple(bool((i + 1) % every) for i in range(sizes.layers))
    )
    made = _decoder("Gemma 3", keys, sizes, attention, windows)
    whole = read_rotary(rope_keys(keys, "full_attention"), sizes.head_dim, sizes.context, theta=1e6)
    layers = tuple(
        replace(x, attention=replace(attention, scale=_scale(x.attention), window=w,
                                     rotary=0 if w is None else 1))
        for x, w in zip(made.layers, windows, strict=True)
    )  # fmt: skip
    return replace(
        made,
        layers=layers,
        rotaries=(whole, _local(keys, sizes)),
        softcap=_cap(keys, "final_logit_softcapping"),
    )


def _scale(attention: object) -> float:
    assert isinstance(attention, Heads)
    return attention.scale


def _local(keys: Keys, sizes: Sizes) -> Rotary:
    """The rotation of windowed layers."""
    if any(k.startswith("rope_parameters.sliding_attention.") for k in keys.values):
        rope = rope_keys(keys, "sliding_attention")
        return read_rotary(rope, sizes.head_dim, sizes.context)
    return Rotary(sizes.head_dim, keys.real("rope_local_base_freq", 0.0, 1e12, 10000.0))
