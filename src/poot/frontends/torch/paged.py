"""`paged_decode`: attention of one new token a row over keys and values in blocks, as an op."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from poot import ops
from poot.api import compile as compile_program
from poot.errors import BackendError, BindError, TraceError
from poot.frontends.torch.memory import DTYPES
from poot.frontends.torch.op import NAMESPACE, TorchRun
from poot.ir.graph import Graph
from poot.ops.array import Array
from poot.ops.attention import masked, match_heads, scaled_scores, weigh_values
from poot.trace import slot, trace

_NAMES = {held: name for name, held in DTYPES.items()}
_FLOATS = ("f32", "f16", "bf16")
# Shapes that stay compiled.
MOST_SHAPES = 64
Shape = tuple[int, ...]


def paged_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` of one query token a row, over a paged
    cache: query [B,Hq,1,D], key_cache [blocks,block_size,Hkv,D], value_cache
    [blocks,block_size,Hkv,Dv], block_table int32 [B,n], lengths int32 [B] -> [B,Hq,1,Dv].

    Row b attends to its first lengths[b] tokens (with `window` to the last so many of them); token
    t lies in block block_table[b, t // block_size]. Query heads share key heads in order. `scale`
    is D ** -0.5 where it isn't given. A row of length 0 is 0; a length or block out of bounds is
    taken as the nearest one inside. The caches are read where they lie, on the current stream.
    Compiles for new shapes, which a capture can't: call it once before."""
    return torch.ops.poot.paged_decode(
        query, key_cache, value_cache, block_table, lengths,
        query.shape[-1] ** -0.5 if scale is None else float(scale),
        0.0 if softcap is None else float(softcap), 0 if window is None else int(window),
    )  # fmt: skip


def _call(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
    block_table: torch.Tensor, lengths: torch.Tensor, scale: float, softcap: float, window: int,
) -> torch.Tensor:  # fmt: skip
    shapes = tuple(tuple(t.shape) for t in (query, key_cache, value_cache, block_table, lengths))
    dtype = _NAMES.get(query.dtype, str(query.dtype))
    run = _compiled(str(query.device), dtype, shapes, scale, softcap, window)
    k, v = (pool.view(-1, *pool.shape[2:]) for pool in (key_cache, value_cache))
    given = {"q": query, "k": k, "v": v, "table": block_table, "lengths": lengths}
    (out,) = run.run(given, {})
    return out


def _fake(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, *_: object
) -> torch.Tensor:
    return query.new_empty((*query.shape[:-1], value_cache.shape[-1]))


_OP = torch.library.custom_op(
    f"{NAMESPACE}::paged_decode", _call, mutates_args=(),
    schema="(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, "
    "Tensor lengths, float scale, float softcap, int window) -> Tensor",
)  # fmt: skip
_OP.register_fake(_fake)  # pyright: ignore[reportUnknownMemberType] - torch types it in part


@lru_cache(MOST_SHAPES)
def _compiled(
    device: str, dtype: str, shapes: tuple[Shape, ...], scale: float, softcap: float, window: int
) -> TorchRun:
    if device.startswith("cuda") and torch.cuda.is_current_stream_capturing():
        raise BackendError(
            f"paged_decode of {shapes[0]} over {shapes[1]} isn't compiled yet, and a capture is no "
            "time for it: call it once before"
        )
    graph = decode_graph(dtype, shapes, scale, softcap, window)
    return TorchRun(compile_program(graph, device), {}, "main")


def decode_graph(
    dtype: str, shapes: tuple[Shape, ...], scale: float, softcap: float, window: int
) -> Graph:
    """The attention as a graph over slots q, k [blocks * block_size, Hkv, D], v likewise, table,
    lengths. Raises BindError on shapes that
    don't belong together."""
    q, k, v, table, lengths = shapes
    fits = (
        dtype in _FLOATS and len(q) == len(k) == len(v) == 4 and len(table) == 2
        and q[2] == 1 and k[:3] == v[:3] and k[3] == q[3] and lengths == (q[0],)
        and table[0] == q[0] and min(*k, *q, *table) > 0 and q[1] % k[2] == 0
    )  # fmt: skip
    if not fits:
        raise BindError(
            "paged_decode needs query [B,Hq,1,D] of f32, f16 or bf16, caches "
            "[blocks,block_size,Hkv,D] and [blocks,block_size,Hkv,Dv], block_table [B,n], lengths "
            f"[B]: got {dtype} {', '.join(map(str, shapes))}"
        )
    blocks, size, heads, _ = k
    rows, capacity = q[0], table[1] * size

    def fn(q: Array, k: Array, v: Array, table: Array, lengths: Array) -> Array:
        first = ops.clip(table, 0, blocks - 1) * size
        read = ops.reshape(first, (rows, table.shape[1], 1)) + ops.iota((1, 1, size), 2)
        read = ops.reshape(read, (rows, capacity))
        keys, values = (ops.take(pool, read).transpose(0, 2, 1, 3) for pool in (k, v))
        live = ops.clip(lengths, 1, capacity)
        # As ops.attention_live, but for its guard: the length is inside by what stands above.
        t = ops.iota((1, 1, 1, capacity), 3)
        seen = t < ops.reshape(live, (rows, 1, 1, 1))
        column = ops.reshape(seen, (rows, 1, capacity, 1))
        keys, values = match_heads(q, ops.where(column, keys, 0.0), ops.where(column, values, 0.0))
        scores = scaled_scores(q, keys, scale, softcap or None)
        if window:
            scores = masked(scores, ops.causal_mask(1, capacity, live - 1, window))
        out = weigh_values(ops.where(seen, scores, -math.inf), values, None, False)
        assert isinstance(out, Array)
        return ops.where(ops.reshape(lengths > 0, (rows, 1, 1, 1)), out, 0.0)

    pools = (slot((blocks * size, heads, x[3]), dtype) for x in (k, v))
    specs = (slot(q, dtype), *pools, slot(table, "i32"), slot(lengths, "i32"))
    try:
        return trace(fn, specs)
    except TraceError as e:
        raise BindError(f"paged_decode: {e.message}") from e
