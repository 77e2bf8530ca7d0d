"""Decoders of Llama's shapes with random weights, for the benchmarks: poot's own model code, no
file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot import ops
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph, Weight
from poot.llm.models.decoder import Held, decoder_step
from poot.llm.models.families.read import NAMES
from poot.llm.models.parts.kinds import Decoder, Dense, Heads, Layer, Norm, Rotary
from poot.llm.models.parts.places import Place as Named
from poot.llm.models.parts.places import layer_places, outer_places
from poot.llm.models.parts.step import Cache
from poot.ops.array import Array
from poot.ops.rope import rope_tables
from poot.trace import Spec, slot, state, trace, weight


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's sizes."""

    name: str
    width: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    theta: float = 500000.0

    def decoder(self, layers: int | None = None) -> Decoder:
        norm = Norm(1e-5)
        attention = Heads(self.heads, self.kv_heads, self.head_dim, self.head_dim**-0.5, rotary=0)
        count = self.layers if layers is None else layers
        return Decoder(
            "llama", self.width, self.vocab, 131072,
            (Layer(attention, Dense(self.ffn, "silu"), norm),) * count, norm,
            (Rotary(self.head_dim, self.theta),), dict(NAMES),
        )  # fmt: skip


SHAPES = {
    s.name: s
    for s in (
        Shape("llama-8b", 4096, 14336, 32, 32, 8, 128, 128256),
        Shape("llama-1b", 2048, 8192, 16, 32, 8, 64, 128256),
        Shape("smollm2-135m", 576, 1536, 30, 9, 3, 64, 49152),
    )
}


def decode_graph(
    shape: Shape, capacity: int, layers: int | None = None, dtype: str = "bf16",
    cache: str = "f32", rows: int = 1, greedy: bool = False,
) -> Graph:  # fmt: skip
    """One step of `rows` tokens of a sequence: slots `tokens`, `pos`, and `last` above one row.
    The output is the logits, or where `greedy` the most likely token, i32 [1]."""
    model = shape.decoder(layers)

    def bind(place: Named) -> Spec:
        return weight(place.shape, dtype if len(place.shape) == 2 else "f32")

    table = weight((capacity, shape.head_dim // 2))
    held = Held(
        {n: bind(p) for n, p in outer_places(model, "").items()},
        tuple(
            {n: bind(p) for n, p in layer_places(model, i, "").items()}
            for i in range(len(model.layers))
        ),
        ((table, table),),
    )
    kept = state((1, shape.kv_heads, capacity, shape.head_dim), cache)
    slots: dict[str, object] = {
        "tokens": slot((rows,), kind="tokens", range=(0, shape.vocab)),
        "pos": slot((), kind="pos", range=(0, capacity - rows + 1)),
    }
    if rows > 1:
        slots["last"] = slot((), range=(0, rows))
    caches = tuple(Cache(kept, kept) for _ in model.layers)
    step = decoder_step(model, capacity)

    def chosen(w: Held[Array], kv: tuple[Cache[Array], ...], tokens: Array, pos: Array) -> object:
        logits, kept = step(w, kv, tokens, pos)  # type: ignore[misc]
        return {"next": likeliest(logits)}, kept

    return trace(chosen if greedy else step, {"w": held, "kv": caches, **slots})


def likeliest(logits: Array) -> Array:
    """The largest logit's index, i32 [1]: first in rows, then among them."""
    (vocab,) = logits.shape
    cols = max(n for n in range(1, 513) if vocab % n == 0)
    rows = ops.reshape(logits, (vocab // cols, cols))
    inside = ops.argmax(rows, axis=1)
    best = ops.reshape(ops.argmax(ops.max(rows, axis=1), axis=0), (1,))
    return best * cols + ops.gather(inside, best, mode="clamp")


def random_weights(graph: Graph, shape: Shape, capacity: int) -> dict[str, np.ndarray]:
    """Arrays to bind: normal numbers / sqrt(width) for matrices, alike for all of a shape, gains
    near 1, rotary tables as they are."""
    rng = np.random.default_rng(0)
    tables = rope_tables(capacity, shape.theta, shape.head_dim)
    made: dict[tuple[int, ...], np.ndarray] = {}
    out: dict[str, np.ndarray] = {}
    for i in graph.inputs:
        if not isinstance(i.storage, Weight):
            continue
        kind, dims = DTYPES[i.var.type.dtype].numpy, i.var.type.shape
        if i.name.startswith("w.turns."):
            out[i.name] = tables[int(i.name[-1])]
            continue
        if dims not in made:
            if len(dims) == 1:
                made[dims] = (1 + 0.1 * rng.standard_normal(dims)).astype(kind)
            else:
                block = rng.standard_normal(1 << 20, np.float32) * dims[1] ** -0.5
                made[dims] = np.resize(block.astype(kind), dims)
        out[i.name] = made[dims]
    return out
