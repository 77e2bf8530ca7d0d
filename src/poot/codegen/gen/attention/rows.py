"""One query row at work in a workgroup: its query staged, each lane running over its share of keys.

A lane keeps its running (maximum, sum) in registers and its weighted values in workgroup memory,
channel by channel with lanes adjacent: no private array is indexed at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.attention.keys import Keys
from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.attention.score import dot, each_block, score
from poot.codegen.gen.attention.softmax import NEG_INF, step
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import Val

Where = tuple[Index, Index, Index]


@dataclass(frozen=True, slots=True)
class Row:
    """One query row: its place (batch row, query head, query row), its keys, its element d."""

    where: Where
    keys: Keys
    query: Callable[[Index], Val]


def declare_state(job: Job, parts: Parts, lanes: int) -> None:
    """The lanes' states in workgroup memory: lanes * (dv + 2) floats, with nothing between them."""
    align = packed_align(lanes)
    job.k.shared("acc", "f32", parts.value_width * lanes, align)
    job.k.shared("peaks", "f32", lanes, align)
    job.k.shared("sums", "f32", lanes, align)


def packed_align(lanes: int) -> int:
    """The alignment, in bytes, at which arrays of a multiple of `lanes` floats follow one another
    without a gap: the planner counts none."""
    return min(16, 4 * lanes)


def open_row(job: Job, parts: Parts, index: Index, lanes: int) -> Row:
    """The query row of this number. All lanes stage its query where the schedule says so."""
    b, h, r = job.indexer.split(index, (parts.batch, parts.heads, parts.rows))
    head, _ = job.indexer.divmod(h, parts.repeat)
    return Row((b, h, r), Keys(job, parts, b, head), _query(job, parts, (b, h, r), lanes))


def _query(job: Job, parts: Parts, where: Where, lanes: int) -> Callable[[Index], Val]:
    q = parts.at["q"]
    if not job.request.schedule.get("stage_q"):
        return lambda d: job.pull.value(q, (*where, d))
    k = job.k
    k.shared("query", "f32", parts.width, packed_align(lanes))
    with k.for_(k.lane(), parts.width, lanes, name="d") as d:
        at = job.indexer.atom(d, parts.width)
        k.store("query", d, job.pull.value(q, (*where, at)))
    k.barrier()
    return lambda d: k.load("query", job.indexer.value(d))


def lane_pass(job: Job, parts: Parts, row: Row, lanes: int, keys: tuple[Val, Val]) -> None:
    """Every lane's own keys among first .. end - 1, dealt in turn; its state is published after."""
    k, lane = job.k, job.k.lane()
    first, end = keys
    peak = k.var(k.lit(NEG_INF), name="peak")
    total = k.var(k.lit(0.0), name="total")
    with k.for_(0, parts.value_width, name="c") as c:
        k.store("acc", c * lanes + lane, 0.0)
    with k.for_(first + lane, end, lanes, name="t") as t:
        key = job.indexer.atom(t, parts.keys)
        product = dot(job, parts, row.query, row.keys, key)
        got = step(k, k.copy(peak), score(job, parts, product, row.where, key))
        k.set(total, k.fma(total, got.shrink, got.weight))
        k.set(peak, got.peak)

        def add(channels: list[Index]) -> None:
            for c in channels:
                at = job.indexer.value(c * lanes) + lane
                v = row.keys.value(key, c)
                k.store("acc", at, k.fma(k.load("acc", at), got.shrink, got.weight * v))

        each_block(job, parts.value_width, add)
    k.store("peaks", lane, peak)
    k.store("sums", lane, total)
    k.barrier()
