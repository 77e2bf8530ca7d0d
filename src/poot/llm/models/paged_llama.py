"""Llama over paged pools: many sequences a step, each with its own adapter.

The weights are those of `poot.llm.models.llama`; what differs is where keys and values lie, and
that each row stands at its own position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poot import ops
from poot.ir.graph import Graph
from poot.llm.config import LlamaConfig
from poot.llm.gguf_file import GgufFile
from poot.llm.layout import Layout, layout_graphs
from poot.llm.lora import Lora, chosen, delta, lora_specs
from poot.llm.models.llama import (
    Layer,
    Matrix,
    Weights,
    embed_rows,
    linear,
    llama_arrays,
    weight_specs,
)
from poot.llm.paged import PagedStep, Pools, pool_specs
from poot.llm.pick import Choice, pick
from poot.ops.array import Array

Caches = tuple[Pools[Array], ...]
Loras = tuple[Lora[Array], ...]
Turn = tuple[Array, Array]


_MODULES = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
    "self_attn.o_proj": "out", "mlp.gate_proj": "gate", "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}  # fmt: skip


def llama_targets(config: LlamaConfig) -> dict[str, tuple[int, int]]:
    """The matrices of a layer that an adapter may change: name -> (in, out)."""
    d, q, kv = config.width, config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        "q": (d, q), "k": (d, kv), "v": (d, kv), "out": (q, d),
        "gate": (d, config.ffn), "up": (d, config.ffn), "down": (config.ffn, d),
    }  # fmt: skip


def llama_modules(config: LlamaConfig) -> dict[str, tuple[int, str]]:
    """The modules that an adapter may change, by PEFT's names -> (layer, matrix)."""
    return {
        f"layers.{i}.{name}": (i, matrix)
        for i in range(config.layers)
        for name, matrix in _MODULES.items()
    }


def paged_llama_graphs(
    file: GgufFile, config: LlamaConfig, layout: Layout, *, dtype: str = "file"
) -> dict[str, Graph]:
    """The entry points of a layout, as `poot.llm.layout.layout_graphs` makes them."""
    pools = pool_specs(layout.slots, config.kv_heads, config.head_dim, layout.kv)
    lora = lora_specs(layout.adapters, layout.rank, llama_targets(config))
    shared: dict[str, object] = {
        "w": weight_specs(file, config, layout.positions, dtype),
        "kv": (pools,) * config.layers,
        "lora": (lora,) * config.layers if layout.adapters else (),
    }
    return layout_graphs(layout, paged_llama_step(config), shared, config.vocab)


def paged_llama_arrays(
    file: GgufFile, config: LlamaConfig, layout: Layout, *, dtype: str = "file"
) -> dict[str, np.ndarray]:
    """The arrays to bind to `paged_llama_graphs`, by input name."""
    return llama_arrays(file, config, capacity=layout.positions, dtype=dtype)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a layer needs besides its weights: the step, rotary rows, and each row's adapter."""

    step: PagedStep
    turn: Turn
    adapter: Array | None


def paged_llama_step(config: LlamaConfig) -> Callable[..., object]:
    """The step function (w, kv, lora, tokens, pos, read, write, last=None, adapter=None, how=None)
    -> ({ids, top, logits}, states) to be traced."""

    def step(
        w: Weights[Array],
        kv: Caches,
        lora: Loras,
        tokens: Array,
        pos: Array,
        read: Array,
        write: Array,
        last: Array | None = None,
        adapter: Array | None = None,
        how: Choice[Array] | None = None,
    ) -> tuple[dict[str, Array], object]:
        paged = PagedStep(tokens, pos, read, write)
        rows, count, _ = paged.shape
        x = embed_rows(w.embed, tokens.reshape(rows * count)).reshape(rows, count, config.width)
        at = paged.positions()
        cos, sin = (ops.take(t, at).reshape(rows, 1, count, -1) for t in (w.cos, w.sin))
        here = _Rows(paged, (cos, sin), adapter)
        written: list[Pools[Array]] = []
        for i, (layer, pools) in enumerate(zip(w.layers, kv, strict=True)):
            x, new = _layer(config, layer, x, pools, here, lora[i] if lora else None)
            written.append(new)
        if last is not None:
            first = ops.iota((rows,), 0) * count
            x = ops.take(x.reshape(rows * count, config.width), first + last)
        h = ops.rms_norm(x.reshape(rows, config.width), w.norm, config.norm_eps)
        logits = linear(h, w.embed if w.head is None else w.head)
        top = ops.max(logits, axis=1)
        ids = ops.argmax(logits, axis=1) if how is None else pick(logits, how)
        held: object = {"kv": tuple(written), "lora": lora} if lora else tuple(written)
        return {"ids": ids, "top": top, "logits": logits}, held

    return step


def _layer(
    config: LlamaConfig,
    layer: Layer[Array],
    x: Array,
    pools: Pools[Array],
    here: _Rows,
    lora: Lora[Array] | None,
) -> tuple[Array, Pools[Array]]:
    """x [R, T, width] after one layer, and its pools with the new tokens."""
    rows, count, _ = here.step.shape

    def project(h: Array, name: str, matrix: Matrix[Array]) -> Array:
        out = linear(h.reshape(rows * count, h.shape[2]), matrix).reshape(rows, count, -1)
        if lora is None:
            return out
        assert here.adapter is not None
        return out + delta(chosen(lora[name], here.adapter), h)

    def heads(h: Array, name: str, matrix: Matrix[Array], many: int) -> Array:
        apart = project(h, name, matrix).reshape(rows, count, many, config.head_dim)
        return apart.transpose(0, 2, 1, 3)

    h = ops.rms_norm(x, layer.attn_norm, config.norm_eps)
    q = ops.rotate(heads(h, "q", layer.q, config.heads), *here.turn, interleaved=True)
    k = ops.rotate(heads(h, "k", layer.k, config.kv_heads), *here.turn, interleaved=True)
    v = heads(h, "v", layer.v, config.kv_heads)
    mixed, new = here.step.attend(pools, q, k, v, scale=config.head_dim**-0.5)
    flat = mixed.transpose(0, 2, 1, 3).reshape(rows, count, config.heads * config.head_dim)
    x = x + project(flat, "out", layer.out)
    h = ops.rms_norm(x, layer.ffn_norm, config.norm_eps)
    gated = ops.swiglu(project(h, "gate", layer.gate), project(h, "up", layer.up))
    return x + project(gated, "down", layer.down), new
