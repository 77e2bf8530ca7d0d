"""From sums in fragments to outputs: a slice of columns at a time through workgroup memory, so that
neighbouring lanes apply the epilogue to neighbouring columns."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.matrix.shape import Place, Tile
from poot.codegen.gen.matmul.store import store_element
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import Val
from poot.codegen.kir.nodes import Frag
from poot.planner.matrix import FEW_SPARE, SPARE

STAGED = "sums"
# Elements whose epilogues stand side by side.
_BESIDE = 4


@dataclass(frozen=True, slots=True)
class Owner:
    """A subgroup that stores `rows` rows of a tile, from row `row` and column `col` of it on,
    `width` columns at a time. They lie in STAGED from `at` on, those of the next product `apart`
    further. `lane` is one of `lanes`. `is_swapped`: fragments have columns as rows, and it stores
    as many columns."""

    lane: Val
    lanes: int
    rows: int
    row: Index
    col: Index
    at: Val
    apart: int
    width: int
    is_swapped: bool = False

    @property
    def pitch(self) -> int:
        return self.width + (FEW_SPARE if self.is_swapped else SPARE)


def need_staged(job: Job, elems: int) -> None:
    job.k.need_shared(STAGED, "f32", elems)


def store_sums(
    job: Job, tile: Tile, place: Place, sinks: dict[int, Sink], sums: list[Val], owner: Owner,
    base: Val,
) -> None:  # fmt: skip
    """Stores a fragment of sums a product. `base` is where the fragment's own first row lies in
    STAGED (a warpgroup's fragment has rows of four subgroups)."""
    k = job.k
    frag = sums[0].type
    assert isinstance(frag, Frag), frag
    width = owner.width
    part = Frag(frag.family, frag.role, frag.m, width, frag.dtype)
    for first in range(0, frag.n, width):
        for n, total in enumerate(sums):
            held = total if frag.n == width else k.op("frag_slice", total, type=part, at=first)
            k.do("frag_store", base + n * owner.apart, owner.pitch, held, mem=STAGED)
        k.barrier("subgroup")
        _store_slice(job, tile, place, sinks, owner, first, width)
        k.barrier("subgroup")


def _store_slice(
    job: Job, tile: Tile, place: Place, sinks: dict[int, Sink], owner: Owner, first: int, width: int
) -> None:
    k, ix, segment = job.k, job.indexer, tile.segment
    total = owner.rows * width
    turns = -(-total // owner.lanes)
    beside = _BESIDE if turns % _BESIDE == 0 else 1
    with k.for_(0, turns // beside, unroll=1, name="e") as turn:
        for n in range(beside):
            number = ix.atom(turn, turns // beside) * (beside * owner.lanes)
            number = number + ix.atom(owner.lane, owner.lanes) + n * owner.lanes
            if owner.is_swapped:
                column, line = ix.divmod(number, owner.rows)
                row, col = place.row + column + first, place.col + owner.col + line
            else:
                line, column = ix.divmod(number, width)
                row, col = place.row + owner.row + line, place.col + owner.col + column + first
            there = ix.below(row, segment.rows) & ix.below(col, segment.cols)
            at = owner.at + ix.value(line * owner.pitch + column)
            mine = [k.load(STAGED, at + p * owner.apart) for p in range(len(segment.products))]
            own = segment.own(
                job, place.batch, ix.bounded(row, segment.rows), ix.bounded(col, segment.cols)
            )
            with job.when(there):
                store_element(job, segment, sinks, own, mine)
