"""Any decoder of `poot.llm.models.parts`, as a plain function over `poot.ops`.

A step takes one chunk of tokens of one sequence, writes what its attentions keep at position `pos`
of each layer's State, and gives the logits of one row, or of all. Matrices stay in the dtype that
the checkpoint has them in, bf16 among them, and are widened where they are used; sums, activations
and caches are f32. Vectors (gains, biases, sinks) are bound in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from poot import ops
from poot.errors import RequestError
from poot.ir.dtypes import DTYPES as IR_DTYPES
from poot.ir.graph import Graph
from poot.ir.tree import flatten
from poot.llm.models.llama import DTYPES, entry_name
from poot.llm.models.parts.coded import Matrix, coded_array, coded_spec, stacked, values_of
from poot.llm.models.parts.feed import feed_dense, feed_experts
from poot.llm.models.parts.heads import mix_heads
from poot.llm.models.parts.kinds import Decoder, Dense, Heads, Layer, Rotary
from poot.llm.models.parts.latent import mix_latent
from poot.llm.models.parts.places import Place, layer_places, outer_places, prefix_of
from poot.llm.models.parts.step import Cache, FixedStep
from poot.llm.models.parts.values import Weights, normed, wide
from poot.llm.tensor_files import TensorFiles
from poot.ops.array import Array
from poot.trace import Spec, slot, state, trace, weight

T = TypeVar("T")
Turn = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """A model's weights as specs, traced values or arrays: `outer` and each of `layers` by the
    names of `poot.llm.models.parts.places`; a (cos, sin) for each rotary."""

    outer: Mapping[str, T]
    layers: tuple[Mapping[str, Matrix[T]], ...]
    turns: tuple[tuple[T, T], ...]


def decoder_graphs(
    files: TensorFiles,
    model: Decoder,
    *,
    capacity: int,
    buckets: Sequence[int],
    dtype: str = "file",
    all_logits: bool = False,
) -> dict[str, Graph]:
    """One entry point a bucket, over the same Weights and State. Slots and outputs are those of
    `poot.llm.models.llama.llama_graphs`.

    Raises RequestError for a bucket past the capacity, a capacity past the context, or an unknown
    dtype."""
    if dtype not in DTYPES:
        raise RequestError(f"dtype is {dtype!r}; needs one of {', '.join(DTYPES)}")
    if not 1 <= capacity <= model.context:
        raise RequestError(
            f"capacity is {capacity}; needs 1 to the model's context of {model.context}"
        )
    if not buckets or min(buckets) < 1 or max(buckets) > capacity:
        raise RequestError(f"buckets are {list(buckets)}; needs sizes from 1 to {capacity}")
    specs = decoder_specs(files, model, capacity, dtype)
    caches = tuple(_cache(layer, capacity) for layer in model.layers)
    graphs: dict[str, Graph] = {}
    for bucket in buckets:
        slots: dict[str, object] = {
            "tokens": slot((bucket,), kind="tokens", range=(0, model.vocab)),
            "pos": slot((), kind="pos", range=(0, capacity - bucket + 1)),
        }
        if bucket > 1 and not all_logits:
            slots["last"] = slot((), range=(0, bucket))
        step = decoder_step(model, capacity, all_logits=all_logits)
        graphs[entry_name(bucket)] = trace(step, {"w": specs, "kv": caches, **slots})
    return graphs


def _cache(layer: Layer, capacity: int) -> Cache[Spec]:
    a = layer.attention
    if isinstance(a, Heads):
        rows = state((1, a.kv_heads, capacity, a.head_dim))
        return Cache(rows, state(rows.type.shape))
    return Cache(state((1, 1, capacity, a.kv_rank + a.rope)), None)


def decoder_step(
    model: Decoder, capacity: int, *, all_logits: bool = False
) -> Callable[..., object]:
    """The step function (w, kv, tokens, pos, last=None) -> (logits, kv) to be traced."""

    def step(
        w: Held[Array],
        kv: tuple[Cache[Array], ...],
        tokens: Array,
        pos: Array,
        last: Array | None = None,
    ) -> tuple[Array, tuple[Cache[Array], ...]]:
        here = FixedStep(tokens.shape[0], capacity, pos)
        turns = tuple(_turn(pair, pos, tokens.shape[0]) for pair in w.turns)
        x = embedded(model, w.outer, tokens)
        written: list[Cache[Array]] = []
        for layer, held, cache in zip(model.layers, w.layers, kv, strict=True):
            x, new = _layer(layer, held, x, cache, here, turns)
            written.append(new)
        if last is not None:
            x = ops.dynamic_slice(x, last, 1)
        logits = logits_of(model, w.outer, x)
        return (logits if all_logits else logits.reshape(model.vocab)), tuple(written)

    return step


def _turn(pair: Turn, pos: Array, tokens: int) -> Turn:
    cos, sin = (ops.dynamic_slice(t, pos, tokens) for t in pair)
    return cos.reshape(1, 1, *cos.shape), sin.reshape(1, 1, *sin.shape)


def embedded(model: Decoder, outer: Mapping[str, Array], tokens: Array) -> Array:
    """The embedding's rows at tokens [n], f32 [n, width]."""
    x = ops.embedding(outer["embed"], tokens).astype("f32")
    if model.embed_scale is not None:
        x = x * model.embed_scale
    return x if model.embed_norm is None else normed(outer, "embed_norm", x, model.embed_norm)


def logits_of(model: Decoder, outer: Mapping[str, Array], x: Array) -> Array:
    """The logits of rows x [n, width], f32 [n, vocab]."""
    h = normed(outer, "norm", x, model.norm)
    logits = ops.linear(h, wide(outer, "embed" if model.is_tied else "head"))
    return logits if model.softcap is None else ops.softcap(logits, model.softcap)


def _layer(
    layer: Layer,
    w: Weights,
    x: Array,
    cache: Cache[Array],
    step: FixedStep,
    turns: tuple[Turn, ...],
) -> tuple[Array, Cache[Array]]:
    a = layer.attention
    h = normed(w, "norm_in", x, layer.norm)
    if isinstance(a, Heads):
        turn = None if a.rotary is None else turns[a.rotary]
        mixed, new = mix_heads(a, w, h, cache, step, turn)
    else:
        mixed, new = mix_latent(a, w, h, cache, step, turns[a.rotary])
    return fed(layer, w, x, mixed), new


def fed(layer: Layer, w: Weights, x: Array, mixed: Array) -> Array:
    """x [n, width] with what attention made of it, and then with what the feed-forward does."""
    if layer.has_post_norms:
        mixed = normed(w, "norm_mixed", mixed, layer.norm)
    x = x + mixed
    h = normed(w, "norm_feed", x, layer.norm)
    feed = layer.feed
    out = feed_dense(feed, w, h) if isinstance(feed, Dense) else feed_experts(feed, w, h)
    return x + (normed(w, "norm_fed", out, layer.norm) if layer.has_post_norms else out)


def _held(
    model: Decoder,
    prefix: str,
    bind: Callable[[Place], T],
    coded: Callable[[Place], Matrix[T]],
    turn: Callable[[Rotary], tuple[T, T]],
) -> Held[T]:
    return Held(
        {name: bind(place) for name, place in outer_places(model, prefix).items()},
        tuple(
            {name: coded(place) for name, place in layer_places(model, i, prefix).items()}
            for i in range(len(model.layers))
        ),
        tuple(turn(rotary) for rotary in model.rotaries),
    )


def _dtype(files: TensorFiles, place: Place, dtype: str) -> str:
    """What a weight is bound in."""
    if len(place.shape) < 2:
        return "f32"
    return files.dtype(place.tensors[0]) if dtype == "file" else dtype


def decoder_specs(files: TensorFiles, model: Decoder, positions: int, dtype: str) -> Held[Spec]:
    """The specs of `decoder_arrays`."""

    def turn(rotary: Rotary) -> tuple[Spec, Spec]:
        table = weight((positions, rotary.dim // 2))
        return table, table

    def bind(place: Place) -> Spec:
        return weight(place.shape, _dtype(files, place, dtype))

    def coded(place: Place) -> Matrix[Spec]:
        if model.coding is None or not place.is_coded(files, model.coding):
            return bind(place)
        if dtype != "file":
            return weight(place.shape, dtype)
        return coded_spec(model.coding, place.shape)

    return _held(model, prefix_of(model, files), bind, coded, turn)


def decoder_arrays(
    files: TensorFiles,
    model: Decoder,
    *,
    capacity: int,
    positions: int | None = None,
    dtype: str = "file",
) -> dict[str, np.ndarray]:
    """The arrays to bind to `decoder_graphs` of the same capacity and dtype, by input name. What is
    bound as it is stored stays on disk until the bind. Rotary tables are for `positions`, the
    capacity where None."""
    count = capacity if positions is None else positions

    def bind(place: Place) -> np.ndarray:
        kind = IR_DTYPES[_dtype(files, place, dtype)].numpy
        parts = [files.array(name) for name in place.tensors]
        whole = np.stack(parts) if place.is_stacked else parts[0]
        return whole.astype(kind, copy=False)

    def coded(place: Place) -> Matrix[np.ndarray]:
        coding = model.coding
        if coding is None or not place.is_coded(files, coding):
            return bind(place)
        parts = [coded_array(files, coding, name, place.each) for name in place.tensors]
        whole = stacked(parts) if place.is_stacked else parts[0]
        return whole if dtype == "file" else values_of(whole).astype(IR_DTYPES[dtype].numpy)

    def turn(rotary: Rotary) -> tuple[np.ndarray, np.ndarray]:
        return rotary.tables(count, capacity)

    held = _held(model, prefix_of(model, files), bind, coded, turn)
    leaves, _ = flatten(held, "w", (np.ndarray,))
    return {name: array for name, array in leaves if isinstance(array, np.ndarray)}
