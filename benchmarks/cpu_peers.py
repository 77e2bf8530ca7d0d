"""The peers of benchmarks/cpu.py on the same weights: PyTorch's Hugging Face model, llama.cpp."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from poot.llm.config import read_llama_config
from poot.llm.gguf_file import GgufFile

TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}  # fmt: skip


def _half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """q or k rows from GGUF's interleaved rotary pairs to Hugging Face's halves."""
    width = rows.shape[0] // heads
    return rows.reshape(heads, width // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def torch_model(file: GgufFile, dtype: str) -> LlamaForCausalLM:
    """The Hugging Face model with the checkpoint's weights."""
    c = read_llama_config(file)
    config = LlamaConfig(
        vocab_size=c.vocab, hidden_size=c.width, intermediate_size=c.ffn,
        num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.kv_heads,
        max_position_embeddings=c.context, rms_norm_eps=c.norm_eps, tie_word_embeddings=c.tied,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
        attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    weights = {"model.embed_tokens.weight": file.dequantize("token_embd.weight"),
               "model.norm.weight": file.dequantize("output_norm.weight")}  # fmt: skip
    for layer in range(c.layers):
        for short, name in _NAMES.items():
            array = file.dequantize(f"blk.{layer}.{short}.weight")
            heads = {"attn_q": c.heads, "attn_k": c.kv_heads}.get(short)
            array = _half_split(array, heads) if heads else array
            weights[f"model.layers.{layer}.{name}.weight"] = array
    if not c.tied:
        weights["lm_head.weight"] = file.dequantize("output.weight")
    state = {n: torch.from_numpy(np.ascontiguousarray(x)) for n, x in weights.items()}
    model.load_state_dict(state, strict=not c.tied)
    return model.to(TORCH_DTYPES[dtype])


class TorchDecoder:
    """Steps of the model with its cache, as a session's."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model = model
        self.cache = DynamicCache()

    def reset(self) -> None:
        self.cache = DynamicCache()

    def step(self, tokens: np.ndarray) -> np.ndarray:
        """Logits of the last token, f32 on the host."""
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        with torch.inference_mode():
            out = self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return out.logits[0, -1].float().numpy()


def sdpa(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> Callable[[], np.ndarray]:
    tensors = [torch.from_numpy(x) for x in (q, k, v)]

    def run() -> np.ndarray:
        with torch.inference_mode():
            return torch.nn.functional.scaled_dot_product_attention(
                *tensors, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
            ).numpy()

    return run


def write_gguf(file: GgufFile, source: Path, target: Path, kind: str) -> None:
    """The checkpoint again with every matrix in F32 or BF16."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        types = field.types
        sub = types[-1] if types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), types[0], sub)
    for tensor in reader.tensors:
        array = file.dequantize(tensor.name)
        if kind == "BF16" and array.ndim > 1:
            words = gguf.quants.quantize(array, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(tensor.name, words, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(tensor.name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_cpp(model: Path, threads: int, prompt: int, decode: int) -> dict[str, float] | None:
    """One round: seconds of the prompt, seconds a token. None where node-llama-cpp isn't there: the
    folder that has it in node_modules is named by NODE_LLAMA_CPP."""
    if "NODE_LLAMA_CPP" not in os.environ:
        return None
    script = Path(__file__).with_name("llama_cpp.mjs")
    words = [str(model), str(threads), str(prompt), str(decode), "2"]
    done = subprocess.run(
        ["node", str(script), *words], capture_output=True, text=True, check=True, timeout=600
    )
    return json.loads(done.stdout.splitlines()[-1])[-1]  # the first round warms up
