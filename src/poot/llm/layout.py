"""What a paged program has: its pools, and the entry points that an engine may step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from poot.errors import RequestError, need
from poot.ir.graph import Graph
from poot.llm.blocks import BLOCK_SIZE
from poot.llm.paged import KV_TYPES, copy_slots, copy_step, step_slots
from poot.llm.pick import choice_slots
from poot.trace import slot, trace

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


def layout_graphs(
    layout: Layout, step: Callable[..., object], shared: Mapping[str, object], vocab: int
) -> dict[str, Graph]:
    """The entry points of a layout, over the same Weights and pools: `step` traced in each bucket.
    `shared` are the specs of its arguments w, kv and, where it takes adapters, lora. A step's
    outputs: `ids` i32 [rows], the largest logit's or the one chosen; `top` f32 [rows], the largest
    logit, which is no number where one of the row is none; `logits` f32 [rows, vocab]."""

    def traced(rows: int, tokens: int, *, is_sampled: bool = False) -> Graph:
        given: dict[str, object] = {
            **shared, **step_slots(rows, tokens, layout.capacity, layout.slots, vocab)
        }  # fmt: skip
        if layout.adapters:
            given["adapter"] = slot((rows,), range=(0, layout.adapters + 1))
        if is_sampled:
            given["how"] = choice_slots(rows, vocab)
        return trace(step, given)

    graphs: dict[str, Graph] = {}
    for rows in layout.decode_rows:
        graphs[decode_entry(rows)] = traced(rows, 1)
        if layout.sampled:
            graphs[decode_entry(rows, sampled=True)] = traced(rows, 1, is_sampled=True)
    for rows, tokens in layout.prefill:
        graphs[prefill_entry(rows, tokens)] = traced(rows, tokens)
    graphs[COPY] = trace(copy_step, {"kv": shared["kv"], **copy_slots(layout.slots)})
    return graphs


def _need(claim: bool, what: str, **seen: object) -> None:
    need(claim, what, error=RequestError, **seen)
