"""GPT-OSS, Bloom, MPT, and DeepSeek V2 and V3."""

from __future__ import annotations

from dataclasses import replace

from poot.llm.json_config import part
from poot.llm.keys import Keys
from poot.llm.models.families.plain import heads_of, plain_decoder
from poot.llm.models.families.read import (
    IGNORED,
    MAX_CONTEXT,
    MAX_EXPERTS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCAB,
    MAX_WIDTH,
    NAMES,
    Sizes,
    need_neutral,
    read_act,
    read_rotary,
    read_sizes,
    read_windows,
    rope_keys,
    yarn_size,
)
from poot.llm.models.parts.kinds import (
    Decoder,
    Dense,
    Experts,
    Heads,
    Latent,
    Layer,
    Norm,
    Router,
)
from poot.ops.attention import alibi_slopes

BLOOM_CONTEXT = 2048  # what Bloom was trained on; its files don't say
_MPT_NAMES = {
    "prefix": "transformer.", "layers": "blocks", "embed": "wte", "norm": "norm_f",
    "norm_in": "norm_1", "norm_feed": "norm_2", "qkv": "attn.Wqkv", "out": "attn.out_proj",
    "up": "ffn.up_proj", "down": "ffn.down_proj",
}  # fmt: skip
_MPT_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attn_type": ("multihead_attention",), "prefix_lm": (False,), "alibi": (True,),
    "attn_uses_sequence_id": (False,), "alibi_bias_max": (8,), "qk_ln": (False,),
}  # fmt: skip


def read_gpt_oss(keys: Keys) -> Decoder:
    """GPT-OSS: a learned sink a head, every other layer windowed, experts with clamped gates."""
    need_neutral(keys, {})
    sizes = read_sizes(keys, head_dim=64)
    biased = keys.flag("attention_bias", True)
    attention = replace(heads_of(sizes), is_sunk=True, is_biased=biased, is_out_biased=biased)
    count = keys.integer("num_local_experts", 1, MAX_EXPERTS)
    used = keys.integer("num_experts_per_tok", 1, count)
    clamped = (
        keys.real("swiglu_alpha", 0.0, 1e6, 1.702), keys.real("swiglu_limit", 0.0, 1e6, 7.0)
    )  # fmt: skip
    feed = Experts(count, sizes.ffn, Router(used, is_biased=True), clamped=clamped)
    by_turns = tuple(i % 2 == 0 for i in range(sizes.layers))
    windows = read_windows(keys, sizes.layers, by_turns)
    made = plain_decoder("GPT-OSS", keys, sizes, attention, (feed,) * sizes.layers, windows)
    made.names.update(
        sink="=self_attn.sinks",
        router="mlp.router",
        each_gate_up="=mlp.experts.gate_up_proj",
        each_gate_up_bias="=mlp.experts.gate_up_proj_bias",
        each_down="=mlp.experts.down_proj",
        each_down_bias="=mlp.experts.down_proj_bias",
    )
    return made


def read_bloom(keys: Keys) -> Decoder:
    """Bloom: ALiBi, LayerNorm with biases, one after the embedding too, q, k, v of each head in one
    matrix."""
    need_neutral(keys, {"apply_residual_connection_post_layernorm": (False,)})
    width = _either(keys, "hidden_size", "n_embed", MAX_WIDTH)
    heads = _either(keys, "n_head", "num_attention_heads", MAX_HEADS)
    if width % heads:
        raise keys.refuse("n_head", f"a divisor of the width {width}")
    norm = Norm(keys.real("layer_norm_epsilon", 0.0, 1.0, 1e-5), is_layer=True)
    head = width // heads
    attention = Heads(
        heads, heads, head, scale=head**-0.5, slopes=alibi(heads), is_biased=True,
        is_out_biased=True, fused="heads",
    )  # fmt: skip
    feed = Dense(4 * width, "gelu_tanh", is_gated=False, is_biased=True)
    layers = _either(keys, "n_layer", "num_hidden_layers", MAX_LAYERS)
    names = {
        **NAMES,
        "prefix": "transformer.", "layers": "h", "embed": "word_embeddings",
        "embed_norm": "word_embeddings_layernorm", "norm": "ln_f",
        "qkv": "self_attention.query_key_value", "out": "self_attention.dense",
        "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h",
    }  # fmt: skip
    return Decoder(
        family="Bloom",
        width=width,
        vocab=keys.integer("vocab_size", 1, MAX_VOCAB),
        context=keys.integer("seq_length", 1, 1 << 30, BLOOM_CONTEXT),
        layers=(Layer(attention, feed, norm),) * layers,
        norm=norm,
        rotaries=(),
        names=names,
        is_tied=keys.flag("tie_word_embeddings", True),
        embed_norm=norm,
        ignored=IGNORED,
    )


def alibi(heads: int) -> tuple[float, ...]:
    """ALiBi's slopes, in the order of Bloom and MPT alike."""
    return tuple(float(slope) for slope in alibi_slopes(heads))


def read_mpt(keys: Keys) -> Decoder:
    """MPT: ALiBi, LayerNorm and no bias at all, q, k and v of one matrix and bounded where the file
    says so."""
    need_neutral(keys, {"no_bias": (True,), "logit_scale": ()})
    said = part(keys, "attn_config")
    need_neutral(said, _MPT_NEUTRAL)
    width, heads = keys.integer("d_model", 1, MAX_WIDTH), keys.integer("n_heads", 1, MAX_HEADS)
    if width % heads:
        raise keys.refuse("n_heads", f"a divisor of the width {width}")
    norm = Norm(keys.real("layer_norm_epsilon", 0.0, 1.0, 1e-5), is_layer=True, is_biased=False)
    head = width // heads
    attention = Heads(
        heads, heads, head, scale=said.real("softmax_scale", 0.0, 1e6, head**-0.5),
        slopes=alibi(heads), fused="rows",
        clip=said.real("clip_qkv", 0.0, 1e6) if "clip_qkv" in said.values else None,
    )  # fmt: skip
    feed = Dense(width * keys.integer("expansion_ratio", 1, 64, 4), "gelu", is_gated=False)
    layers = keys.integer("n_layers", 1, MAX_LAYERS)
    return Decoder(
        family="MPT",
        width=width,
        vocab=keys.integer("vocab_size", 1, MAX_VOCAB),
        context=keys.integer("max_seq_len", 1, MAX_CONTEXT, 2048),
        layers=(Layer(attention, feed, norm),) * layers,
        norm=norm,
        rotaries=(),
        names={**NAMES, **_MPT_NAMES},
        is_tied=keys.flag("tie_word_embeddings", True),
        ignored=IGNORED,
    )


def _either(keys: Keys, key: str, other: str, most: int) -> int:
    return keys.integer(key if key in keys.values else other, 1, most)


def read_deepseek_v2(keys: Keys) -> Decoder:
    """DeepSeek V2: latent attention, shared and routed experts after the first layers."""
    need_neutral(
        keys,
        {
            "norm_topk_prob": (False,),
            "scoring_func": ("softmax",),
            "topk_method": ("greedy", "group_limited_greedy"),
            "mlp_bias": (False,),
        },
    )
    is_grouped = keys.values.get("topk_method") == "group_limited_greedy"
    return _deepseek("DeepSeek V2", keys, is_sigmoid=False, is_grouped=is_grouped, normal=False)


def read_deepseek_v3(keys: Keys) -> Decoder:
    """DeepSeek V3: as V2, with sigmoid routing and a learned correction."""
    need_neutral(keys, {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)})
    normal = keys.flag("norm_topk_prob", True)
    return _deepseek("DeepSeek V3", keys, is_sigmoid=True, is_grouped=True, normal=normal)


def _deepseek(
    family: str, keys: Keys, *, is_sigmoid: bool, is_grouped: bool, normal: bool
) -> Decoder:
    sizes = read_sizes(keys, head_dim=1)
    norm = Norm(sizes.eps)
    attention = _latent(keys, sizes)
    act = read_act(keys)
    every = keys.integer("moe_layer_freq", 1, 1 << 20, 1)
    first = keys.integer("first_k_dense_replace", 0, MAX_LAYERS, 0)
    dense = Dense(sizes.ffn, act)
    experts: Dense | Experts = dense
    if "n_routed_experts" in keys.values and first < sizes.layers:
        experts = _routed(keys, act, is_sigmoid=is_sigmoid, is_grouped=is_grouped, normal=normal)
    layers = tuple(
        Layer(attention, experts if i >= first and i % every == 0 else dense, norm)
        for i in range(sizes.layers)
    )
    names = {
        **NAMES,
        "q_a": "self_attn.q_a_proj", "q_a_norm": "self_attn.q_a_layernorm",
        "q_b": "self_attn.q_b_proj", "kv_a": "self_attn.kv_a_proj_with_mqa",
        "kv_a_norm": "self_attn.kv_a_layernorm", "kv_b": "self_attn.kv_b_proj",
        "correction": "=mlp.gate.e_score_correction_bias",
        "shared_gate": "mlp.shared_experts.gate_proj", "shared_up": "mlp.shared_experts.up_proj",
        "shared_down": "mlp.shared_experts.down_proj",
    }  # fmt: skip
    drafts = keys.integer("num_nextn_predict_layers", 0, 16, 0)
    skipped = tuple(f"model.layers.{sizes.layers + i}." for i in range(drafts))
    return Decoder(
        family=family,
        width=sizes.width,
        vocab=sizes.vocab,
        context=sizes.context,
        layers=layers,
        norm=norm,
        rotaries=(read_rotary(rope_keys(keys), attention.rope, sizes.context),),
        names=names,
        is_tied=sizes.is_tied,
        ignored=IGNORED + skipped,
    )


def _latent(keys: Keys, sizes: Sizes) -> Latent:
    nope = keys.integer("qk_nope_head_dim", 1, MAX_WIDTH)
    rope = keys.integer("qk_rope_head_dim", 2, MAX_WIDTH)
    scale = (nope + rope) ** -0.5
    turned = rope_keys(keys)
    by = turned.values.get("mscale_all_dim")
    if turned.values.get("rope_type", "default") != "default" and by:
        grown = yarn_size(turned.real("factor", 0.0, 1e6), turned.real("mscale_all_dim", 0.0, 1e6))
        scale *= grown * grown
    return Latent(
        heads=sizes.heads,
        q_rank=keys.integer("q_lora_rank", 1, MAX_WIDTH) if "q_lora_rank" in keys.values else None,
        kv_rank=keys.integer("kv_lora_rank", 1, MAX_WIDTH),
        nope=nope,
        rope=rope,
        value=keys.integer("v_head_dim", 1, MAX_WIDTH),
        scale=scale,
        norm=Norm(1e-6),
        rotary=0,
        is_interleaved=keys.flag("rope_interleave", True),
        is_biased=keys.flag("attention_bias", False),
    )


def _routed(keys: Keys, act: str, *, is_sigmoid: bool, is_grouped: bool, normal: bool) -> Experts:
    count = keys.integer("n_routed_experts", 1, MAX_EXPERTS)
    groups = keys.integer("n_group", 1, count, 1) if is_grouped else 1
    each = count // groups
    if count % groups or (is_sigmoid and groups > 1 and each < 2):
        raise keys.refuse("n_group", f"a divisor of {count} experts, with two or more in a group")
    groups_used = keys.integer("topk_group", 1, groups, 1) if groups > 1 else 1
    most = each * groups_used
    router = Router(
        used=keys.integer("num_experts_per_tok", 1, most),
        is_normal=normal,
        scale=keys.real("routed_scaling_factor", 0.0, 1e6, 1.0),
        is_sigmoid=is_sigmoid,
        groups=groups,
        groups_used=groups_used,
    )
    width = keys.integer("moe_intermediate_size", 1, 1 << 22)
    shared = 0
    if "n_shared_experts" in keys.values:
        shared = keys.integer("n_shared_experts", 0, MAX_EXPERTS) * width
    return Experts(count, width, router, shared=shared, act=act)
