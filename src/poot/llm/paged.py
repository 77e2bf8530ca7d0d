"""Keys and values of a step in pools of slots: how they are written, and attended to.

A step runs `rows` sequences of `tokens` new tokens each. `pos` [rows] is the position of a row's
first; `write` names the pool slot of each new token, or -1; `read` [rows, capacity] the slot of
each position, slot 0 past a row's length. A model calls `PagedStep.attend` for each layer, and
makes no choice between layouts: the gather is stated, and the compiler reads the pools in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from poot import ops
from poot.errors import RequestError
from poot.llm.blocks import BLOCK_SIZE
from poot.ops.array import Array
from poot.trace import Spec, slot, state

T = TypeVar("T")
# How a cache stores a row of one head -> (dtype of the codes, largest code; None: stored as it is)
KV_TYPES: dict[str, tuple[str, float | None]] = {
    "f32": ("f32", None),
    "f16": ("f16", None),
    "bf16": ("bf16", None),
    "int8": ("i8", 127.0),
    "fp8": ("f8e4m3", 448.0),
}
_LEAST = 1e-30  # a row of zeros has this for its largest, and codes of zero


@dataclass(frozen=True, slots=True)
class Pool(Generic[T]):
    """Rows of one kind of a layer: values or codes [slots, heads, width], and where they are codes
    a scale f32 [slots, heads] for each row."""

    rows: T
    scales: T | None


@dataclass(frozen=True, slots=True)
class Pools(Generic[T]):
    """One layer's keys and values. `v` is None where a value is the first channels of its key."""

    k: Pool[T]
    v: Pool[T] | None


def pool_specs(
    slots: int, heads: int, width: int, kv: str, *, has_values: bool = True
) -> Pools[Spec]:
    """The States of a layer's pools; without `has_values`, of keys alone. Raises RequestError for
    an unknown kind of cache."""
    if kv not in KV_TYPES:
        raise RequestError(f"the KV cache is {kv!r}; needs one of {', '.join(KV_TYPES)}")
    dtype, top = KV_TYPES[kv]

    def pool() -> Pool[Spec]:
        scales = None if top is None else state((slots, heads))
        return Pool(state((slots, heads, width), dtype), scales)

    return Pools(pool(), pool() if has_values else None)


def step_slots(rows: int, tokens: int, capacity: int, slots: int, vocab: int) -> dict[str, Spec]:
    """The slots of an entry point of `rows` sequences with `tokens` new tokens each; `last` [rows]
    is the token of each row whose logits are asked for."""
    made = {
        "tokens": slot((rows, tokens), kind="tokens", range=(0, vocab)),
        "pos": slot((rows,), kind="pos", range=(0, capacity)),
        "read": slot((rows, capacity), kind="slot_map", range=(0, slots)),
        "write": slot((rows * tokens,), kind="write_map", range=(-1, slots)),
    }
    return made if tokens == 1 else made | {"last": slot((rows,), range=(0, tokens))}


@dataclass(frozen=True, slots=True)
class PagedStep:
    """Where the rows of a step stand: traced slots of `step_slots`."""

    tokens: Array
    pos: Array
    read: Array
    write: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, new tokens of each, capacity)."""
        rows, tokens = self.tokens.shape
        return rows, tokens, self.read.shape[1]

    def positions(self) -> Array:
        """The position of each new token, i32 [rows, tokens]: below capacity + tokens - 1, past a
        row's end where they are padding."""
        rows, tokens, _ = self.shape
        return ops.reshape(self.pos, (rows, 1)) + ops.iota((1, tokens), 1)

    def attend(
        self,
        pools: Pools[Array],
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sink: Array | None = None,
        bias: Callable[[int, int, Array], Array] | None = None,
    ) -> tuple[Array, Pools[Array]]:
        """Writes k, v [rows, Hkv, tokens, D] and attends with q [rows, Hq, tokens, D] to all that a
        row holds by then, causally: ([rows, Hq, tokens, Dv] in q's dtype, the pools). `bias` makes
        an additive mask of (tokens, capacity, pos), for ALiBi."""
        assert pools.v is not None
        keys, values = _write(pools.k, k, self.write), _write(pools.v, v, self.write)
        mixed = self._mixed(
            keys, values, q, scale=scale, window=window, softcap=softcap, sink=sink, bias=bias
        )
        return mixed, Pools(keys, values)

    def attend_rows(
        self, pools: Pools[Array], q: Array, rows: Array, value_width: int, *, scale: float
    ) -> tuple[Array, Pools[Array]]:
        """The same over rows [rows, Hkv, tokens, D] that are keys, and in their first `value_width`
        channels values: one pool holds them."""
        assert pools.v is None
        keys = _write(pools.k, rows, self.write)
        values = Pool(keys.rows[..., :value_width], keys.scales)
        return self._mixed(keys, values, q, scale=scale), Pools(keys, None)

    def _mixed(
        self,
        k: Pool[Array],
        v: Pool[Array],
        q: Array,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sink: Array | None = None,
        bias: Callable[[int, int, Array], Array] | None = None,
    ) -> Array:
        """Attention to all that the rows' maps name of two pools."""
        _, tokens, capacity = self.shape
        keys, values = (_read(pool, self.read) for pool in (k, v))
        keep = ops.causal_mask(tokens, capacity, start=self.pos, window=window)
        query = q.astype(keys.dtype)
        mask = None if bias is None else bias(tokens, capacity, self.pos).astype(keys.dtype)
        if tokens == 1 and mask is None:
            mixed = ops.attention_masked(
                query, keys, values, mask=keep, scale=scale, softcap=softcap, sink=sink
            )
        else:
            length = ops.minimum(self.pos + tokens, capacity)
            both = keep if mask is None else ops.where(keep, mask, float("-inf"))
            mixed = ops.attention_live(
                query, keys, values, length, mask=both, scale=scale, softcap=softcap, sink=sink
            )
        assert isinstance(mixed, Array)
        return mixed.astype(q.dtype)


def _write(pool: Pool[Array], x: Array, at: Array) -> Pool[Array]:
    """The pool with the rows of x [R, H, T, D] at slots `at` [R*T]."""
    rows, heads, tokens, width = x.shape
    flat = x.transpose(0, 2, 1, 3).reshape(rows * tokens, heads, width)
    if pool.scales is None:
        return Pool(ops.scatter_update(pool.rows, flat.astype(pool.rows.dtype), at), None)
    codes, scales = encode(flat, pool.rows.dtype)
    return Pool(
        ops.scatter_update(pool.rows, codes, at), ops.scatter_update(pool.scales, scales, at)
    )


def encode(x: Array, dtype: str) -> tuple[Array, Array]:
    """(codes of dtype i8 or f8e4m3, scales f32 [...]) of x [..., D]: the largest of a row is the
    largest code, i8 codes round to the nearest."""
    most = next(top for held, top in KV_TYPES.values() if held == dtype and top is not None)
    wide = x.astype("f32")
    scales = ops.maximum(ops.max(ops.abs(wide), axis=-1), _LEAST) / most
    codes = wide / ops.reshape(scales, (*scales.shape, 1))
    if dtype == "i8":
        codes = ops.floor(codes + 0.5)
    return ops.clip(codes, -most, most).astype(dtype), scales


def _read(pool: Pool[Array], read: Array) -> Array:
    """The rows that `read` [R, Lk] names, [R, H, Lk, D]; codes come as f32."""
    rows = ops.take(pool.rows, read)
    if pool.scales is not None:
        scales = ops.take(pool.scales, read)
        rows = rows.astype("f32") * ops.reshape(scales, (*scales.shape, 1))
    return rows.transpose(0, 2, 1, 3)


def copy_blocks(pools: Pools[Array], source: Array, target: Array) -> Pools[Array]:
    """The pools with slots `target` [n] holding what slots `source` [n] hold."""

    def moved(rows: Array) -> Array:
        return ops.scatter_update(rows, ops.take(rows, source), target)

    def pool(held: Pool[Array]) -> Pool[Array]:
        return Pool(moved(held.rows), None if held.scales is None else moved(held.scales))

    return Pools(pool(pools.k), None if pools.v is None else pool(pools.v))


def copy_step(
    kv: tuple[Pools[Array], ...], source: Array, target: Array
) -> tuple[Array, tuple[Pools[Array], ...]]:
    """The step that copies a block of every pool. A trace has an output: how many slots it
    copies."""
    return (target >= 0).astype("i32").sum(), tuple(copy_blocks(p, source, target) for p in kv)


def copy_slots(slots: int) -> dict[str, Spec]:
    """The slots of the entry point that copies one block."""
    return {
        "source": slot((BLOCK_SIZE,), range=(0, slots)),
        "target": slot((BLOCK_SIZE,), kind="write_map", range=(-1, slots)),
    }
