"""What a paged program has: its pools, and the entry points that an engine may step."""

from __future__ import annotations

from dataclasses import dataclass

from poot.errors import RequestError, need
from poot.llm.blocks import BLOCK_SIZE
from poot.llm.paged import KV_TYPES

COPY = "copy_block"


@dataclass(frozen=True, slots=True)
class Layout:
    """`blocks` of the pools, the reserved one among them; `capacity`: positions that a sequence may
    have. Entry points: one decode for each of `decode_rows`, one prefill for each of `prefill`
    (rows, tokens of each), and the copy of a block. `adapters` may be loaded at once, of rank up to
    `rank`. With `sampled`, decode entry points choose tokens by temperature too. Raises
    RequestError for numbers that fit no program."""

    blocks: int
    capacity: int
    decode_rows: tuple[int, ...] = (1, 4)
    prefill: tuple[tuple[int, int], ...] = ((1, 16), (1, 64))
    kv: str = "f32"
    adapters: int = 0
    rank: int = 8
    sampled: bool = False

    def __post_init__(self) -> None:
        rows, chunks = self.decode_rows, self.prefill
        _need(self.kv in KV_TYPES, f"a KV cache of {', '.join(KV_TYPES)}", kv=self.kv)
        _need(self.blocks >= 2, "2 blocks or more, the reserved one among them",
                     blocks=self.blocks)  # fmt: skip
        _need(self.capacity >= 1, "a capacity of 1 or more", capacity=self.capacity)
        is_rising = list(rows) == sorted(set(rows)) and rows and rows[0] >= 1
        _need(bool(is_rising), "rising decode rows from 1 up", decode_rows=rows)
        is_set = chunks and all(r >= 1 and t >= 2 for r, t in chunks)
        _need(
            bool(is_set) and any(r == 1 for r, _ in chunks),
            "prefill buckets (rows, tokens >= 2), one of them of 1 row", prefill=chunks,
        )  # fmt: skip
        _need(self.adapters >= 0 and self.rank >= 1, "adapters from 0 and a rank from 1 up",
                     adapters=self.adapters, rank=self.rank)  # fmt: skip

    @property
    def slots(self) -> int:
        """Slots of each pool."""
        return self.blocks * BLOCK_SIZE

    @property
    def positions(self) -> int:
        """Positions that rotary tables need: padding runs past the capacity."""
        return self.capacity + max(tokens for _, tokens in self.prefill) - 1

    def decode_bucket(self, rows: int) -> int:
        """The smallest decode entry point that holds so many rows."""
        return next(b for b in self.decode_rows if b >= rows)


def decode_entry(rows: int, *, sampled: bool = False) -> str:
    """The entry point that decodes so many rows."""
    return f"sample_{rows}" if sampled else f"decode_{rows}"


def prefill_entry(rows: int, tokens: int) -> str:
    """The entry point that reads `tokens` of so many prompts."""
    return f"prefill_{rows}x{tokens}"


def _need(claim: bool, what: str, **seen: object) -> None:
    need(claim, what, error=RequestError, **seen)
