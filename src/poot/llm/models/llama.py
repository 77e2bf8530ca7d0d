"""Llama as a plain function over `poot.ops`, with a KV cache of fixed capacity.

A step takes one chunk of tokens of one sequence: it writes their keys and values at position `pos`
of each layer's State, and gives the logits of one row, or of all. Weights stay in the checkpoint's
own codes and are decoded where they are used; with dtype "f32" they are decoded before the bind,
with "bf16" decoded and rounded to it (sums stay f32).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from poot import ops
from poot.errors import FormatError, RequestError
from poot.ir.dtypes import DTYPES as IR_DTYPES
from poot.ir.graph import Graph
from poot.ir.tree import flatten
from poot.llm.config import LlamaConfig
from poot.llm.gguf_file import GgufFile
from poot.ops.array import Array
from poot.trace import Spec, slot, state, trace, weight

T = TypeVar("T")
DTYPES = ("file", "f32", "bf16")
SCALES = "f16"


@dataclass(frozen=True, slots=True)
class Q4(Generic[T]):
    """A matrix [out, in] in Q4_1 codes: each block of 32 inputs is code * scale + minimum."""

    codes: T
    scales: T
    mins: T


@dataclass(frozen=True, slots=True)
class Q8(Generic[T]):
    """A matrix [out, in] in Q8_0 codes: each block of 32 inputs is code * scale."""

    codes: T
    scales: T


Matrix = T | Q4[T] | Q8[T]


@dataclass(frozen=True, slots=True)
class Layer(Generic[T]):
    """One layer's weights. Matrices are [out, in]; norms [width]."""

    attn_norm: T
    q: Matrix[T]
    k: Matrix[T]
    v: Matrix[T]
    out: Matrix[T]
    ffn_norm: T
    gate: Matrix[T]
    up: Matrix[T]
    down: Matrix[T]


@dataclass(frozen=True, slots=True)
class Weights(Generic[T]):
    """A model's weights as specs, traced values or arrays. `cos` and `sin` are the rotary tables,
    f32 [capacity, rope_dim / 2], made in f64: a GPU's own sine may be good to 2^-11 only (Vulkan
    specification, precision of sin). `head` is None where the embedding serves for it."""

    embed: Matrix[T]
    cos: T
    sin: T
    layers: tuple[Layer[T], ...]
    norm: T
    head: Matrix[T] | None


@dataclass(frozen=True, slots=True)
class Cache(Generic[T]):
    """One layer's keys and values, [1, kv_heads, capacity, head_dim]."""

    k: T
    v: T


def entry_name(bucket: int) -> str:
    """The entry point for chunks of `bucket` rows."""
    return "decode" if bucket == 1 else f"prefill_{bucket}"


def llama_graphs(
    file: GgufFile,
    config: LlamaConfig,
    *,
    capacity: int,
    buckets: Sequence[int],
    dtype: str = "file",
    all_logits: bool = False,
) -> dict[str, Graph]:
    """One entry point a bucket, over the same Weights and State. Each takes the slots `tokens`
    [bucket], `pos` [] and, where the bucket is above 1 and not `all_logits`, `last` []: the row
    whose logits it gives. The output is f32 [vocab], or [bucket, vocab] where `all_logits`.

    Raises RequestError for a bucket past the capacity, a capacity past the context, or an unknown
    dtype; FormatError for a tensor whose type has no codes here while dtype is "file".
    """
    if dtype not in DTYPES:
        raise RequestError(f"dtype is {dtype!r}; needs one of {', '.join(DTYPES)}")
    if not 1 <= capacity <= config.context:
        raise RequestError(
            f"capacity is {capacity}; needs 1 to the model's context of {config.context}"
        )
    if not buckets or min(buckets) < 1 or max(buckets) > capacity:
        raise RequestError(f"buckets are {list(buckets)}; needs sizes from 1 to {capacity}")
    specs = weight_specs(file, config, capacity, dtype)
    shape = (1, config.kv_heads, capacity, config.head_dim)
    kv = tuple(Cache(state(shape), state(shape)) for _ in range(config.layers))
    graphs: dict[str, Graph] = {}
    for bucket in buckets:
        slots: dict[str, object] = {
            "tokens": slot((bucket,), kind="tokens", range=(0, config.vocab)),
            "pos": slot((), kind="pos", range=(0, capacity - bucket + 1)),
        }
        if bucket > 1 and not all_logits:
            slots["last"] = slot((), range=(0, bucket))
        graphs[entry_name(bucket)] = trace(
            llama_step(config, all_logits=all_logits), {"w": specs, "kv": kv, **slots}
        )
    return graphs


def llama_step(config: LlamaConfig, *, all_logits: bool = False) -> Callable[..., object]:
    """The step function (w, kv, tokens, pos, last=None) -> (logits, kv) to be traced."""

    def step(
        w: Weights[Array],
        kv: tuple[Cache[Array], ...],
        tokens: Array,
        pos: Array,
        last: Array | None = None,
    ) -> tuple[Array, tuple[Cache[Array], ...]]:
        rows, capacity = tokens.shape[0], kv[0].k.shape[2]
        x = embed_rows(w.embed, tokens)
        turn = tuple(ops.dynamic_slice(table, pos, rows) for table in (w.cos, w.sin))
        mask = ops.additive_mask(ops.causal_mask(rows, capacity, start=pos))
        written: list[Cache[Array]] = []
        for layer, cache in zip(w.layers, kv, strict=True):
            h = ops.rms_norm(x, layer.attn_norm, config.norm_eps)
            mixed, new = _attention(config, layer, h, cache, (turn[0], turn[1]), mask, pos)
            written.append(new)
            x = x + mixed
            h = ops.rms_norm(x, layer.ffn_norm, config.norm_eps)
            gated = ops.swiglu(linear(h, layer.gate), linear(h, layer.up))
            x = x + linear(gated, layer.down)
        if last is not None:
            x = ops.dynamic_slice(x, last, 1)
        h = ops.rms_norm(x, w.norm, config.norm_eps)
        logits = linear(h, w.embed if w.head is None else w.head)
        return (logits if all_logits else logits.reshape(config.vocab)), tuple(written)

    return step


def _attention(
    config: LlamaConfig,
    layer: Layer[Array],
    h: Array,
    cache: Cache[Array],
    turn: tuple[Array, Array],
    mask: Array,
    pos: Array,
) -> tuple[Array, Cache[Array]]:
    """h [L, width] over the cache with the chunk's keys and values written: ([L, width], cache).

    GGUF stores q and k rows for interleaved rotary pairs."""
    rows, width = h.shape[0], config.head_dim

    def heads(matrix: Matrix[Array], count: int) -> Array:
        return linear(h, matrix).reshape(1, rows, count, width).transpose(0, 2, 1, 3)

    q = ops.rotate(heads(layer.q, config.heads), *turn, interleaved=True)
    k = ops.rotate(heads(layer.k, config.kv_heads), *turn, interleaved=True)
    v = heads(layer.v, config.kv_heads)
    new = Cache(
        ops.dynamic_update_slice(cache.k, k, pos, axis=2),
        ops.dynamic_update_slice(cache.v, v, pos, axis=2),
    )
    mixed = ops.attention_masked(q, new.k, new.v, mask=mask, scale=width**-0.5)
    assert isinstance(mixed, Array)
    flat = mixed.transpose(0, 2, 1, 3).reshape(rows, config.heads * width)
    return linear(flat, layer.out), new


def linear(x: Array, matrix: Matrix[Array]) -> Array:
    """x [..., in] times the matrix [out, in], f32 [..., out]."""
    return ops.linear(x, decoded(matrix))


def decoded(matrix: Matrix[Array]) -> Array:
    """The matrix in f32, [out, in]."""
    if isinstance(matrix, Q4):
        return ops.dequant_q4_1(matrix.codes, matrix.scales, matrix.mins)
    if isinstance(matrix, Q8):
        return ops.dequant_q8_0(matrix.codes, matrix.scales)
    return matrix.astype("f32")


def embed_rows(table: Matrix[Array], ids: Array) -> Array:
    """The table's rows at ids [L], in f32 [L, width]: only these are decoded."""
    if isinstance(table, Q4):
        codes, scales = ops.take(table.codes, ids), ops.take(table.scales, ids)
        return ops.dequant_q4_1(codes, scales, ops.take(table.mins, ids))
    if isinstance(table, Q8):
        return ops.dequant_q8_0(ops.take(table.codes, ids), ops.take(table.scales, ids))
    return ops.embedding(table, ids).astype("f32")


def assemble(
    config: LlamaConfig,
    vector: Callable[[str], T],
    matrix: Callable[[str], Matrix[T]],
    tables: tuple[T, T],
) -> Weights[T]:
    """The weights by their GGUF names."""

    def layer(i: int) -> Layer[T]:
        return Layer(
            attn_norm=vector(f"blk.{i}.attn_norm.weight"),
            q=matrix(f"blk.{i}.attn_q.weight"),
            k=matrix(f"blk.{i}.attn_k.weight"),
            v=matrix(f"blk.{i}.attn_v.weight"),
            out=matrix(f"blk.{i}.attn_output.weight"),
            ffn_norm=vector(f"blk.{i}.ffn_norm.weight"),
            gate=matrix(f"blk.{i}.ffn_gate.weight"),
            up=matrix(f"blk.{i}.ffn_up.weight"),
            down=matrix(f"blk.{i}.ffn_down.weight"),
        )

    return Weights(
        embed=matrix("token_embd.weight"),
        cos=tables[0],
        sin=tables[1],
        layers=tuple(layer(i) for i in range(config.layers)),
        norm=vector("output_norm.weight"),
        head=None if config.tied else matrix("output.weight"),
    )


def _kind(file: GgufFile, name: str, dtype: str) -> str:
    """How a tensor is bound: "F32", "BF16", "Q4_1" or "Q8_0"."""
    kind = file.info(name).type
    if dtype == "bf16":
        return "BF16"
    if dtype == "f32" or kind == "F32":
        return "F32"
    if kind not in ("Q4_1", "Q8_0"):
        raise FormatError(
            f"{file.path.name}: tensor {name} is {kind}; poot runs Q4_1, Q8_0 and F32 from their "
            "own codes, and any type with dtype f32"
        )
    return kind


def weight_specs(file: GgufFile, config: LlamaConfig, capacity: int, dtype: str) -> Weights[Spec]:
    """The specs of `llama_arrays`; rotary tables for positions below `capacity`."""

    def vector(name: str) -> Spec:
        return weight(file.info(name).shape)

    def matrix(name: str) -> Matrix[Spec]:
        kind = _kind(file, name, dtype)
        rows, width = file.info(name).shape
        if kind in ("F32", "BF16"):
            return weight((rows, width), kind.lower())
        scales = weight((rows, width // 32), SCALES)
        if kind == "Q4_1":
            return Q4(weight((rows, width // 8), "u32"), scales, scales)
        return Q8(weight((rows, width // 4), "u32"), scales)

    table = weight((capacity, config.rope_dim // 2))
    return assemble(config, vector, matrix, (table, table))


def llama_arrays(
    file: GgufFile, config: LlamaConfig, *, capacity: int, dtype: str = "file"
) -> dict[str, np.ndarray]:
    """The arrays to bind to `llama_graphs` of the same capacity and dtype, by input name."""

    def vector(name: str) -> np.ndarray:
        return file.dequantize(name)

    def matrix(name: str) -> Matrix[np.ndarray]:
        kind = _kind(file, name, dtype)
        if kind == "Q4_1":
            return Q4(*ops.pack_q4_1(file.raw(name), file.info(name).shape))
        if kind == "Q8_0":
            return Q8(*ops.pack_q8_0(file.raw(name), file.info(name).shape))
        plain = file.dequantize(name)
        return plain.astype(IR_DTYPES["bf16"].numpy) if kind == "BF16" else plain

    tables = ops.rope_tables(capacity, config.rope_theta, config.rope_dim)
    leaves, _ = flatten(assemble(config, vector, matrix, tables), "w", (np.ndarray,))
    return {name: array for name, array in leaves if isinstance(array, np.ndarray)}
