"""A Llama checkpoint of a few kilobytes with random weights, written as GGUF."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from poot.llm.tokenizer import BYTE_OF

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("t h", "th e", "Ġ the", "Ġ a")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, HEADS, KV_HEADS, FFN, LAYERS, CONTEXT = 64, 4, 2, 96, 2, 128
HEAD = WIDTH // HEADS
KEYS: dict[str, int | float | str | bool] = {
    "llama.block_count": LAYERS,
    "llama.context_length": CONTEXT,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": FFN,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": HEAD,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": CHAT,
}


def vocabulary() -> list[str]:
    return [*CONTROLS, *sorted(BYTE_OF), "th", "the", "Ġthe", "Ġa"]


def write_tiny_llama(
    path: Path,
    *,
    seed: int = 0,
    keys: dict[str, int | float | str | bool | None] | None = None,
    tensors: dict[str, np.ndarray | None] | None = None,
    embedding: str = "Q8_0",
    linear: str = "Q4_1",
    tied: bool = True,
) -> Path:
    """Write the checkpoint. `keys` and `tensors` replace rows of it; None takes a row out."""
    writer = gguf.GGUFWriter(path, "llama")
    adds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, value in (KEYS | (keys or {})).items():
        if value is not None:
            adds.get(type(value), writer.add_string)(key, value)
    tokens = vocabulary()
    writer.add_array("tokenizer.ggml.tokens", tokens)
    writer.add_array("tokenizer.ggml.token_type", [3] * len(CONTROLS) + [1] * (len(tokens) - 3))
    writer.add_array("tokenizer.ggml.merges", list(MERGES))
    rows = random_tensors(len(tokens), seed, tied=tied) | (tensors or {})
    for name, values in rows.items():
        if values is None:
            continue
        kind = embedding if name in ("token_embd.weight", "output.weight") else linear
        code = gguf.GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quantize(values, code), raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_tensors(vocab: int, seed: int, *, tied: bool) -> dict[str, np.ndarray]:
    """Weights near unit scale, norms near 1; linear weights are [out, in]."""
    rng = np.random.default_rng(seed)
    kv = KV_HEADS * HEAD
    layer = {
        "attn_norm": (WIDTH,),
        "ffn_down": (WIDTH, FFN),
        "ffn_gate": (FFN, WIDTH),
        "ffn_up": (FFN, WIDTH),
        "ffn_norm": (WIDTH,),
        "attn_k": (kv, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "attn_q": (WIDTH, WIDTH),
        "attn_v": (kv, WIDTH),
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, WIDTH)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    shapes["output_norm.weight"] = (WIDTH,)
    if not tied:
        shapes["output.weight"] = (vocab, WIDTH)
    return {
        name: (
            1 + 0.1 * rng.standard_normal(shape)
            if len(shape) == 1
            else rng.standard_normal(shape) / np.sqrt(shape[1])
        ).astype(np.float32)
        for name, shape in shapes.items()
    }
