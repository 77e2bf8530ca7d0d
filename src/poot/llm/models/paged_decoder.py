"""Any decoder of `poot.llm.models.parts` over paged pools: many sequences a step.

The weights are those of `poot.llm.models.decoder`. A latent attention keeps its rows in the pool of
keys, and the part of them that makes values again in the pool of values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poot import ops
from poot.errors import RequestError
from poot.ir.graph import Graph
from poot.llm.layout import COPY, Layout, decode_entry, prefill_entry
from poot.llm.models.decoder import (
    Held,
    decoder_arrays,
    decoder_specs,
    embedded,
    fed,
    logits_of,
)
from poot.llm.models.paged_llama import copy_step
from poot.llm.models.parts.heads import mix_heads
from poot.llm.models.parts.kinds import Decoder, Heads, Layer
from poot.llm.models.parts.latent import mix_latent_paged
from poot.llm.models.parts.values import normed
from poot.llm.paged import PagedStep, Pools, copy_slots, pool_specs, step_slots
from poot.llm.pick import Choice, choice_slots, pick
from poot.llm.tensor_files import TensorFiles
from poot.ops.array import Array
from poot.trace import Spec, trace

Caches = tuple[Pools[Array], ...]


def paged_decoder_graphs(
    files: TensorFiles, model: Decoder, layout: Layout, *, dtype: str = "file"
) -> dict[str, Graph]:
    """The entry points of a layout, with the outputs of
    `poot.llm.models.paged_llama.paged_llama_graphs`. Raises RequestError for a layout with
    adapters."""
    if layout.adapters:
        raise RequestError(f"poot's {model.family} from safetensors takes no adapters yet")
    specs: dict[str, object] = {
        "w": decoder_specs(files, model, layout.positions, dtype),
        "kv": tuple(_pools(layer, layout) for layer in model.layers),
    }
    graphs: dict[str, Graph] = {}
    for rows in layout.decode_rows:
        graphs[decode_entry(rows)] = _traced(model, layout, specs, rows, 1, is_sampled=False)
        if layout.sampled:
            name = decode_entry(rows, sampled=True)
            graphs[name] = _traced(model, layout, specs, rows, 1, is_sampled=True)
    for rows, tokens in layout.prefill:
        name = prefill_entry(rows, tokens)
        graphs[name] = _traced(model, layout, specs, rows, tokens, is_sampled=False)
    graphs[COPY] = trace(copy_step, {"kv": specs["kv"], **copy_slots(layout.slots)})
    return graphs


def paged_decoder_arrays(
    files: TensorFiles, model: Decoder, layout: Layout, *, dtype: str = "file"
) -> dict[str, np.ndarray]:
    """The arrays to bind to `paged_decoder_graphs`, by input name."""
    return decoder_arrays(
        files, model, capacity=layout.capacity, positions=layout.positions, dtype=dtype
    )


def _pools(layer: Layer, layout: Layout) -> Pools[Spec]:
    a = layer.attention
    if isinstance(a, Heads):
        return pool_specs(layout.slots, a.kv_heads, a.head_dim, layout.kv)
    return pool_specs(layout.slots, 1, a.kv_rank + a.rope, layout.kv, a.kv_rank)


def _traced(
    model: Decoder,
    layout: Layout,
    specs: dict[str, object],
    rows: int,
    tokens: int,
    *,
    is_sampled: bool,
) -> Graph:
    slots = step_slots(rows, tokens, layout.capacity, layout.slots, model.vocab)
    given: dict[str, object] = {**specs, **slots}
    if is_sampled:
        given["how"] = choice_slots(rows, model.vocab)
    return trace(paged_decoder_step(model), given)


def paged_decoder_step(model: Decoder) -> Callable[..., object]:
    """The step function (w, kv, tokens, pos, read, write, last=None, how=None) -> ({ids, top,
    logits}, kv) to be traced."""

    def step(
        w: Held[Array],
        kv: Caches,
        tokens: Array,
        pos: Array,
        read: Array,
        write: Array,
        last: Array | None = None,
        how: Choice[Array] | None = None,
    ) -> tuple[dict[str, Array], Caches]:
        paged = PagedStep(tokens, pos, read, write)
        rows, count, _ = paged.shape
        x = embedded(model, w.outer, tokens.reshape(rows * count))
        at = paged.positions()
        turns = tuple(_turn(pair, at) for pair in w.turns)
        written: list[Pools[Array]] = []
        for layer, held, pools in zip(model.layers, w.layers, kv, strict=True):
            a = layer.attention
            h = normed(held, "norm_in", x, layer.norm)
            if isinstance(a, Heads):
                turn = None if a.rotary is None else turns[a.rotary]
                mixed, new = mix_heads(a, held, h, pools, paged, turn)
            else:
                mixed, new = mix_latent_paged(a, held, h, pools, paged, turns[a.rotary])
            x = fed(layer, held, x, mixed)
            written.append(new)
        if last is not None:
            x = ops.take(x, ops.iota((rows,), 0) * count + last)
        logits = logits_of(model, w.outer, x)
        ids = ops.argmax(logits, axis=1) if how is None else pick(logits, how)
        return {"ids": ids, "top": ops.max(logits, axis=1), "logits": logits}, tuple(written)

    return step


def _turn(pair: tuple[Array, Array], at: Array) -> tuple[Array, Array]:
    """The tables' rows at positions [rows, tokens]: [rows, 1, tokens, dim / 2] each."""
    rows, tokens = at.shape
    cos, sin = (ops.take(t, at).reshape(rows, 1, tokens, -1) for t in pair)
    return cos, sin
