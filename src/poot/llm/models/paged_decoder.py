"""Any decoder of `poot.llm.models.parts` over paged pools: many sequences a step.

The weights are those of `poot.llm.models.decoder`. A latent attention has one pool, of its rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poot import ops
from poot.ir.graph import Graph
from poot.llm.layout import Layout, layout_graphs
from poot.llm.lora import Lora, lora_specs
from poot.llm.models.decoder import (
    Held,
    decoder_arrays,
    decoder_specs,
    embedded,
    fed,
    logits_of,
)
from poot.llm.models.parts.heads import mix_heads
from poot.llm.models.parts.kinds import Decoder, Heads, Layer
from poot.llm.models.parts.latent import mix_latent_paged
from poot.llm.models.parts.places import lora_targets
from poot.llm.models.parts.values import Weights, adapted, normed
from poot.llm.paged import PagedStep, Pools, pool_specs
from poot.llm.pick import Choice, pick
from poot.llm.tensor_files import TensorFiles
from poot.ops.array import Array
from poot.trace import Spec

Caches = tuple[Pools[Array], ...]
Turn = tuple[Array, Array]


def paged_decoder_graphs(
    files: TensorFiles, model: Decoder, layout: Layout, *, dtype: str = "file"
) -> dict[str, Graph]:
    """The entry points of a layout, as `poot.llm.layout.layout_graphs` makes them."""
    shared: dict[str, object] = {
        "w": decoder_specs(files, model, layout.positions, dtype),
        "kv": tuple(_pools(layer, layout) for layer in model.layers),
        "lora": _loras(model, layout) if layout.adapters else (),
    }
    return layout_graphs(layout, paged_decoder_step(model), shared, model.vocab)


def _loras(model: Decoder, layout: Layout) -> tuple[Lora[Spec], ...]:
    return tuple(
        lora_specs(layout.adapters, layout.rank, lora_targets(layer, model.width))
        for layer in model.layers
    )


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
    return pool_specs(layout.slots, 1, a.kv_rank + a.rope, layout.kv, has_values=False)


def paged_decoder_step(model: Decoder) -> Callable[..., object]:
    """The step function (w, kv, lora, tokens, pos, read, write, last=None, adapter=None, how=None)
    -> ({ids, top, logits}, states) to be traced."""

    def step(
        w: Held[Array],
        kv: Caches,
        lora: tuple[Lora[Array], ...],
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
        x = embedded(model, w.outer, tokens.reshape(rows * count))
        at = paged.positions()
        turns = tuple(_turn(pair, at) for pair in w.turns)
        written: list[Pools[Array]] = []
        for i, (layer, pools) in enumerate(zip(model.layers, kv, strict=True)):
            held = w.layers[i] if adapter is None else adapted(w.layers[i], lora[i], adapter)
            x, new = _layer(layer, held, x, pools, paged, turns)
            written.append(new)
        if last is not None:
            x = ops.take(x, ops.iota((rows,), 0) * count + last)
        logits = logits_of(model, w.outer, x)
        ids = ops.argmax(logits, axis=1) if how is None else pick(logits, how)
        states: object = {"kv": tuple(written), "lora": lora} if lora else tuple(written)
        return {"ids": ids, "top": ops.max(logits, axis=1), "logits": logits}, states

    return step


def _layer(
    layer: Layer,
    w: Weights,
    x: Array,
    pools: Pools[Array],
    step: PagedStep,
    turns: tuple[Turn, ...],
) -> tuple[Array, Pools[Array]]:
    """x [rows * tokens, width] after one layer, and its pools with the new tokens."""
    a = layer.attention
    h = normed(w, "norm_in", x, layer.norm)
    if isinstance(a, Heads):
        turn = None if a.rotary is None else turns[a.rotary]
        mixed, new = mix_heads(a, w, h, pools, step, turn)
    else:
        mixed, new = mix_latent_paged(a, w, h, pools, step, turns[a.rotary])
    return fed(layer, w, x, mixed), new


def _turn(pair: Turn, at: Array) -> Turn:
    """The tables' rows at positions [rows, tokens]: [rows, 1, tokens, dim / 2] each."""
    rows, tokens = at.shape
    cos, sin = (ops.take(t, at).reshape(rows, 1, tokens, -1) for t in pair)
    return cos, sin
