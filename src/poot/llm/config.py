"""What a Llama checkpoint says of itself, checked, and the tensors that must follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from poot.errors import FormatError
from poot.llm.gguf_file import GgufFile
from poot.llm.keys import Keys

Shape = tuple[int, ...]

# Keys that change the meaning of a Llama graph, with the values that leave poot's as it is.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "llama.rope.scaling.type": ("none",),
    "llama.rope.scale_linear": (1.0,),
    "llama.attention.sliding_window": (0,),
    "llama.attention.clamp_kqv": (0.0,),
    "llama.attention.scale": (0.0,),
    "llama.attn_logit_softcapping": (0.0,),
    "llama.final_logit_softcapping": (0.0,),
    "llama.logit_scale": (0.0, 1.0),
    "llama.embedding_scale": (0.0, 1.0),
    "llama.residual_scale": (0.0, 1.0),
    "llama.expert_count": (0,),
    "llama.attention.causal": (True,),
    "llama.use_parallel_residual": (False,),
}


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The numbers of a Llama model. Widths count elements: a layer reads and writes rows of
    `width`, q has `heads * head_dim` of them, k and v `kv_heads * head_dim`. RoPE turns the first
    `rope_dim` of each head. `tied`: the logits are taken with the token embedding."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    norm_eps: float
    rope_theta: float
    rope_dim: int
    tied: bool

    def tensor_shapes(self) -> dict[str, Shape]:
        """The checkpoint's tensors by GGUF name. A linear weight is [out, in]."""
        d, q, kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer: dict[str, Shape] = {
            "attn_norm": (d,),
            "attn_q": (q, d),
            "attn_k": (kv, d),
            "attn_v": (kv, d),
            "attn_output": (d, q),
            "ffn_norm": (d,),
            "ffn_gate": (self.ffn, d),
            "ffn_up": (self.ffn, d),
            "ffn_down": (d, self.ffn),
        }
        shapes: dict[str, Shape] = {"token_embd.weight": (self.vocab, d)}
        for i in range(self.layers):
            shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        shapes["output_norm.weight"] = (d,)
        return shapes if self.tied else shapes | {"output.weight": (self.vocab, d)}


def read_llama_config(file: GgufFile) -> LlamaConfig:
    """The configuration of a GGUF file of architecture "llama".

    Raises FormatError, naming key and value or tensor and shape, where a key is missing or absurd,
    asks for what poot's Llama does not do, or where the tensors are not those that follow.
    """
    keys = Keys(file.path.name, file.metadata)
    if keys.text("general.architecture") != "llama":
        raise keys.refuse("general.architecture", "'llama', the family poot reads from GGUF")
    for key, neutral in _NEUTRAL.items():
        if key in keys.values and keys.values[key] not in neutral:
            raise keys.refuse(key, f"{neutral[0]!r} or no such key: poot's Llama does no other")
    config = _config(keys, tied="output.weight" not in file.tensors)
    _check_tensors(file, config)
    return config


def _config(keys: Keys, *, tied: bool) -> LlamaConfig:
    width = keys.integer("llama.embedding_length", 1, 1 << 20)
    heads = keys.integer("llama.attention.head_count", 1, 1 << 12)
    kv_heads = keys.integer("llama.attention.head_count_kv", 1, heads, heads)
    if heads % kv_heads:
        raise keys.refuse("llama.attention.head_count_kv", f"a divisor of {heads} heads")
    if "llama.attention.key_length" not in keys.values and width % heads:
        raise keys.refuse("llama.attention.head_count", f"a divisor of the width {width}")
    head_dim = keys.integer("llama.attention.key_length", 1, 1 << 14, max(1, width // heads))
    keys.integer("llama.attention.value_length", head_dim, head_dim, head_dim)
    rope_dim = keys.integer("llama.rope.dimension_count", 2, head_dim, head_dim)
    if rope_dim % 2:
        raise keys.refuse("llama.rope.dimension_count", "an even number")
    vocabulary = keys.texts("tokenizer.ggml.tokens")
    return LlamaConfig(
        layers=keys.integer("llama.block_count", 1, 1 << 12),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=keys.integer("llama.feed_forward_length", 1, 1 << 22),
        vocab=keys.integer("llama.vocab_size", len(vocabulary), len(vocabulary), len(vocabulary)),
        context=keys.integer("llama.context_length", 1, 1 << 30),
        norm_eps=keys.real("llama.attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope_theta=keys.real("llama.rope.freq_base", 0.0, 1e12, 10000.0),
        rope_dim=rope_dim,
        tied=tied,
    )


def _check_tensors(file: GgufFile, config: LlamaConfig) -> None:
    wanted = config.tensor_shapes()
    for name, shape in wanted.items():
        found = file.info(name).shape
        if found != shape:
            raise FormatError(
                f"{file.path.name}: tensor {name} has shape {list(found)}; its metadata makes it "
                f"{list(shape)}"
            )
    strange = sorted(file.tensors.keys() - wanted.keys())
    if strange:
        raise FormatError(
            f"{file.path.name}: poot's Llama has no tensor {strange[0]} "
            f"({len(strange)} such), so it would compute something else"
        )
