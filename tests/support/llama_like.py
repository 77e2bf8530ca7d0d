"""A decoder of the Llama family over `ops`: GQA, rotary positions, a cache of fixed capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import poot
from poot import ops
from poot.ops import Array
from poot.trace import Spec

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, CAPACITY, VOCABULARY = 576, 9, 3, 64, 1536, 128, 49152
Layer = Mapping[str, Array]


def llama_like(
    w: Mapping[str, object], kv: Sequence[Layer], tokens: Array, pos: Array
) -> tuple[Array, list[Layer]]:
    """(logits [L, vocabulary], the caches with L more tokens)."""
    table, gain, layers = w["embedding"], w["norm"], w["layers"]
    assert isinstance(table, Array)
    assert isinstance(gain, Array)
    assert isinstance(layers, list)
    x = ops.embedding(table, tokens)
    positions = ops.arange(tokens.shape[0]) + pos
    keep = ops.causal_mask(tokens.shape[0], CAPACITY, pos)
    caches: list[Layer] = []
    for layer, cache in zip(layers, kv, strict=True):
        mixed, cache = _attend(
            layer, cache, ops.rms_norm(x, layer["n1"], 1e-5), positions, keep, pos
        )
        x = x + mixed
        h = ops.rms_norm(x, layer["n2"], 1e-5)
        gated = ops.swiglu(ops.linear(h, layer["gate"]), ops.linear(h, layer["up"]))
        x = x + ops.linear(gated, layer["down"])
        caches.append(cache)
    return ops.linear(ops.rms_norm(x, gain, 1e-5), table), caches


def _attend(
    layer: Layer, cache: Layer, h: Array, positions: Array, keep: Array, pos: Array
) -> tuple[Array, Layer]:
    rows = h.shape[0]
    q, k, v = (
        ops.linear(h, layer[name]).reshape(1, rows, -1, HEAD).swapaxes(1, 2) for name in "qkv"
    )
    q, k = (ops.rope(x, positions, 1e5, interleaved=True) for x in (q, k))
    keys = ops.dynamic_update_slice(cache["k"], k, pos, 2)
    values = ops.dynamic_update_slice(cache["v"], v, pos, 2)
    out = ops.attention_masked(q, keys, values, mask=keep, scale=HEAD**-0.5)
    assert isinstance(out, Array)
    mixed = ops.linear(out.swapaxes(1, 2).reshape(rows, WIDTH), layer["o"])
    return mixed, {"k": keys, "v": values}


def llama_like_specs(layers: int, rows: int = 8) -> tuple[object, ...]:
    """The specs of `llama_like` with so many layers and tokens a step."""
    of = poot.weight
    shapes = {
        "n1": (WIDTH,),
        "n2": (WIDTH,),
        "q": (HEADS * HEAD, WIDTH),
        "k": (KV_HEADS * HEAD, WIDTH),
        "v": (KV_HEADS * HEAD, WIDTH),
        "o": (WIDTH, HEADS * HEAD),
        "gate": (HIDDEN, WIDTH),
        "up": (HIDDEN, WIDTH),
        "down": (WIDTH, HIDDEN),
    }
    weights = {
        "embedding": of((VOCABULARY, WIDTH)),
        "norm": of((WIDTH,)),
        "layers": [{name: of(shape) for name, shape in shapes.items()} for _ in range(layers)],
    }
    cache: Spec = poot.state((1, KV_HEADS, CAPACITY, HEAD))
    return (
        weights,
        [{"k": cache, "v": cache} for _ in range(layers)],
        poot.slot((rows,), kind="tokens", range=(0, VOCABULARY)),
        poot.slot((), kind="pos", range=(0, CAPACITY - rows + 1)),
    )
