"""What a layer asks of a step, whichever way keys and values are kept; and the fixed way.

x of a step is f32 [rows * tokens, width]: `tokens` new tokens of each of `rows` sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from poot import ops
from poot.ops.array import Array

T = TypeVar("T")
K = TypeVar("K")
Bias = Callable[[int, int, Array], Array]


@dataclass(frozen=True, slots=True)
class Cache(Generic[T]):
    """One layer's keys and values, [1, kv_heads, capacity, width of each]. `v` is None where the
    values are made from the keys."""

    k: T
    v: T | None


class Step(Protocol[K]):
    """A step over caches of kind K."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, new tokens of each, capacity)."""
        ...

    def attend(
        self,
        pools: K,
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sink: Array | None = None,
        bias: Bias | None = None,
    ) -> tuple[Array, K]:
        """Writes k, v [rows, Hkv, tokens, D] and attends causally with q [rows, Hq, tokens, D]:
        ([rows, Hq, tokens, Dv], the caches). `bias` makes a mask of (tokens, capacity, pos)."""
        ...


@dataclass(frozen=True, slots=True)
class FixedStep:
    """One sequence whose keys stand at their positions: the new ones at `pos`, i32 []."""

    tokens: int
    capacity: int
    pos: Array

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.tokens, self.capacity

    def attend(
        self,
        pools: Cache[Array],
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sink: Array | None = None,
        bias: Bias | None = None,
    ) -> tuple[Array, Cache[Array]]:
        assert pools.v is not None
        new = Cache(self.append(pools.k, k), self.append(pools.v, v))
        keep = self.keep(window)
        assert new.v is not None
        if bias is None:
            mixed = ops.attention_masked(
                q, new.k, new.v, mask=keep, scale=scale, softcap=softcap, sink=sink
            )
        else:
            mask = ops.where(keep, bias(self.tokens, self.capacity, self.pos), float("-inf"))
            length = ops.reshape(self.pos + self.tokens, (1,))
            mixed = ops.attention_live(
                q, new.k, new.v, length, mask=mask, scale=scale, softcap=softcap, sink=sink
            )
        assert isinstance(mixed, Array)
        return mixed, new

    def append(self, cache: Array, x: Array) -> Array:
        """The cache [1, H, capacity, D] with x [1, H, tokens, D] at `pos`."""
        return ops.dynamic_update_slice(cache, x, self.pos, axis=2)

    def keep(self, window: int | None = None) -> Array:
        """Which keys each new token may see, bool [tokens, capacity]."""
        return ops.causal_mask(self.tokens, self.capacity, start=self.pos, window=window)
