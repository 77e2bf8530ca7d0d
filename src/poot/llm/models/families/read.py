"""What readers of configurations share: sizes, rotations, windows, names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from poot.errors import FormatError
from poot.llm.gguf_file import Value
from poot.llm.json_config import part
from poot.llm.keys import Keys
from poot.llm.models.parts.kinds import Rotary
from poot.ops.rope import FactorScaling, LinearScaling, Llama3Scaling, Scaling, YarnScaling

ACTS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
}  # fmt: skip
NAMES: Mapping[str, str] = {
    "prefix": "model.", "layers": "layers", "embed": "embed_tokens", "norm": "norm",
    "head": "lm_head", "norm_in": "input_layernorm", "norm_feed": "post_attention_layernorm",
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "qkv": "self_attn.qkv_proj", "out": "self_attn.o_proj", "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
    "gate_up": "mlp.gate_up_proj", "down": "mlp.down_proj", "router": "mlp.gate",
    "each_gate": "mlp.experts.{e}.gate_proj", "each_up": "mlp.experts.{e}.up_proj",
    "each_down": "mlp.experts.{e}.down_proj",
}  # fmt: skip
IGNORED = ("rotary_emb.inv_freq",)  # buffers that old checkpoints hold
WINDOWED, FULL = "sliding_attention", "full_attention"
MAX_LAYERS, MAX_HEADS, MAX_EXPERTS = 1 << 10, 1 << 10, 1 << 10
MAX_WIDTH, MAX_VOCAB, MAX_CONTEXT = 1 << 17, 1 << 22, 1 << 30


@dataclass(frozen=True, slots=True)
class Sizes:
    """What every family but Bloom says under the same keys."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    eps: float
    is_tied: bool


def read_sizes(keys: Keys, *, head_dim: int | None = None, tied: bool = False) -> Sizes:
    """The sizes of a model, each in reach of a machine. `head_dim`: the family's own where the
    file names none, else width / heads. `tied`: likewise. Raises FormatError."""
    width = keys.integer("hidden_size", 1, MAX_WIDTH)
    heads = keys.integer("num_attention_heads", 1, MAX_HEADS)
    kv_heads = keys.integer("num_key_value_heads", 1, heads, heads)
    if heads % kv_heads:
        raise keys.refuse("num_key_value_heads", f"a divisor of {heads} heads")
    if head_dim is None and "head_dim" not in keys.values and width % heads:
        raise keys.refuse("num_attention_heads", f"a divisor of the width {width}")
    return Sizes(
        layers=keys.integer("num_hidden_layers", 1, MAX_LAYERS),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=keys.integer("head_dim", 1, MAX_WIDTH, head_dim or max(1, width // heads)),
        ffn=keys.integer("intermediate_size", 1, 1 << 22),
        vocab=keys.integer("vocab_size", 1, MAX_VOCAB),
        context=keys.integer("max_position_embeddings", 1, MAX_CONTEXT),
        eps=keys.real("rms_norm_eps", 0.0, 1.0, 1e-6),
        is_tied=keys.flag("tie_word_embeddings", tied),
    )


def read_act(keys: Keys, key: str = "hidden_act", default: str = "silu") -> str:
    """The activation by poot's name."""
    value = keys.values.get(key, default)
    if not isinstance(value, str) or value not in ACTS:
        raise keys.refuse(key, f"one of {', '.join(ACTS)}")
    return ACTS[value]


def need_neutral(keys: Keys, neutral: Mapping[str, tuple[object, ...]]) -> None:
    """Raises FormatError for a key whose value changes what a model computes from what poot
    does."""
    for key, allowed in neutral.items():
        if key in keys.values and keys.values[key] not in allowed:
            first = f"{allowed[0]!r} or " if allowed else ""
            raise keys.refuse(key, f"{first}no such key")


def read_windows(keys: Keys, layers: int, default: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Each layer's window, None where it sees all: by `layer_types`, else by `default` (whether
    each is windowed); there are none where `sliding_window` is missing."""
    if "sliding_window" not in keys.values:
        return (None,) * layers
    window = keys.integer("sliding_window", 1, MAX_CONTEXT)
    return tuple(window if is_cut else None for is_cut in is_windowed(keys, layers, default))


def is_windowed(keys: Keys, layers: int, default: tuple[bool, ...]) -> tuple[bool, ...]:
    """Whether each layer sees a window only."""
    if "layer_types" not in keys.values:
        return default
    kinds = keys.texts("layer_types")
    if len(kinds) != layers or not {WINDOWED, FULL} >= set(kinds):
        raise keys.refuse("layer_types", f"{layers} texts, each {WINDOWED} or {FULL}")
    return tuple(kind == WINDOWED for kind in kinds)


def rope_keys(keys: Keys, kind: str = "") -> Keys:
    """What a configuration says of rotation under one roof: `rope_parameters` (of one kind of
    layers where `kind`), or the older `rope_scaling` beside `rope_theta`."""
    tops = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
    merged: dict[str, Value] = {k: keys.values[k] for k in tops if k in keys.values}
    for head in ("rope_scaling", "rope_parameters"):
        found = part(keys, head)
        merged |= {k: v for k, v in found.values.items() if "." not in k}
        if kind:
            merged |= part(found, kind).values
    if "rope_type" not in merged and "type" in merged:
        merged["rope_type"] = merged["type"]
    return Keys(f"{keys.name}, rotation", merged)


def read_rotary(rope: Keys, head_dim: int, context: int, *, theta: float = 10000.0) -> Rotary:
    """A rotation of heads of `head_dim`. Raises FormatError for a kind that poot has none of."""
    share = rope.real("partial_rotary_factor", 0.0, 1.0, 1.0)
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        raise FormatError(
            f"{rope.name}: turns {dim} of each head's {head_dim} elements; needs an even number"
        )
    base = rope.real("rope_theta", 0.0, 1e12, theta)
    kind = rope.values.get("rope_type", "default")
    if kind == "longrope" or kind == "su":
        return _longrope(rope, dim, base, context)
    readers = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}
    if kind == "default":
        return Rotary(dim, base)
    if not isinstance(kind, str) or kind not in readers:
        raise rope.refuse("rope_type", f"one of default, longrope, {', '.join(readers)}")
    return Rotary(dim, base, readers[kind](rope))


def _linear(rope: Keys) -> Scaling:
    return LinearScaling(rope.real("factor", 0.0, 1e6))


def _llama3(rope: Keys) -> Scaling:
    low = rope.real("low_freq_factor", 0.0, 1e6)
    return Llama3Scaling(
        factor=rope.real("factor", 0.0, 1e6),
        low=low,
        high=rope.real("high_freq_factor", low, 1e6),
        original=rope.integer("original_max_position_embeddings", 1, MAX_CONTEXT),
    )


def _yarn(rope: Keys) -> Scaling:
    factor = rope.real("factor", 0.0, 1e6)
    attention: float | None = None
    if "attention_factor" in rope.values:
        attention = rope.real("attention_factor", 0.0, 1e6)
    elif rope.values.get("mscale") and rope.values.get("mscale_all_dim"):
        whole = yarn_size(factor, rope.real("mscale_all_dim", 0.0, 1e6))
        attention = yarn_size(factor, rope.real("mscale", 0.0, 1e6)) / whole
    return YarnScaling(
        factor=factor,
        original=rope.integer("original_max_position_embeddings", 1, MAX_CONTEXT),
        beta_fast=rope.real("beta_fast", 0.0, 1e6, 32.0),
        beta_slow=rope.real("beta_slow", 0.0, 1e6, 1.0),
        attention_factor=attention,
        truncate=rope.flag("truncate", True),
    )


def yarn_size(factor: float, by: float) -> float:
    """YaRN's growth of attention: 0.1 by ln(factor) + 1, from a factor of 1 up."""
    return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(rope: Keys, dim: int, theta: float, context: int) -> Rotary:
    original = rope.integer("original_max_position_embeddings", 2, MAX_CONTEXT, context)
    factor = rope.real("factor", 0.0, 1e6, context / original)
    plain = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    size = rope.real("attention_factor", 0.0, 1e6, plain)
    short, long = (_factors(rope, f"{n}_factor", dim // 2) for n in ("short", "long"))
    return Rotary(dim, theta, FactorScaling(short, size), FactorScaling(long, size), original)


def _factors(rope: Keys, key: str, count: int) -> tuple[float, ...]:
    value = rope.values.get(key)
    numbers = value if isinstance(value, tuple) else ()
    found = tuple(
        float(n) for n in numbers
        if isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < 1e9
    )  # fmt: skip
    if len(found) != count or len(numbers) != count:
        raise rope.refuse(key, f"{count} numbers above 0, one for each pair")
    return found
