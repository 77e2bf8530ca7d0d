"""Schedule "gemm": tiles of both operands in workgroup memory, tiles of sums in registers.

A group makes a tile of `tile_m` rows by `tile_n` columns of one batch with (tile_m / lane_m) *
(tile_n / lane_n) lanes of lane_m by lane_n sums each. It takes `tile_k` terms at a time: all
lanes pull the operands' elements into workgroup memory (prologues run once an element and
tile), meet, and add. A lane's rows and columns lie apart by the lanes beside it. What is
outside the product is loaded at a clamped index; terms past the depth count as zero on both
sides. `adjacent` says that the right operand is pulled along its summed axis. Sums are f32.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.matmul.parts import (
    Products,
    Segment,
    left_coords,
    products_of,
    right_coords,
    row_number,
)
from poot.codegen.gen.matmul.store import product_sinks, side_calls, store_element
from poot.codegen.gen.row_reduce import Team, fold_row, row_leaf
from poot.codegen.gen.sinks import Sink
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.limits import DeviceLimits
from poot.planner.request import Request, Schedule


@dataclass(frozen=True, slots=True)
class Tile:
    """The schedule's numbers for a segment."""

    segment: Segment
    m: int
    n: int
    k: int
    lane_m: int
    lane_n: int
    adjacent: bool

    @staticmethod
    def of(segment: Segment, schedule: Schedule) -> Tile:
        m, n, k = (schedule.get(f"tile_{axis}") for axis in "mnk")
        lane_m, lane_n = schedule.get("lane_m"), schedule.get("lane_n")
        return Tile(segment, m, n, k, lane_m, lane_n, bool(schedule.get("adjacent")))

    @property
    def beside_m(self) -> int:
        return self.m // self.lane_m

    @property
    def beside_n(self) -> int:
        return self.n // self.lane_n

    @property
    def threads(self) -> int:
        return self.beside_m * self.beside_n

    @property
    def grid(self) -> tuple[int, int, int]:
        s = self.segment
        return s.batches, -(-s.rows // self.m), -(-s.cols // self.n)

    @property
    def groups(self) -> int:
        batches, rows, cols = self.grid
        return batches * rows * cols


def lower_gemm(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch for all the products, and launches for outputs beside them and packed ones."""
    products, schedule = products_of(request), request.schedule
    tiles = [Tile.of(s, schedule) for s in products.segments]
    job = open_job(request, limits, "gemm", tiles[0].threads)
    job.bind_inputs(skip=(i for _, i in request.updates))
    sinks = product_sinks(job, products)
    total = sum(t.groups for t in tiles)
    k = job.k
    with each_group(k, total, limits) as group:
        first = 0
        for tile in tiles:
            if len(tiles) == 1:
                _Group(job, products, tile, sinks, group).run()
            else:
                with k.if_((group >= first) & (group < first + tile.groups)):
                    _Group(job, products, tile, sinks, group - first).run()
            first += tile.groups
    calls = (job.call(total), *side_calls(request, limits, products))
    return Lowered((*calls, *lower_spilled(request, limits)))


class _Group:
    """One group's work on a tile of a segment."""

    def __init__(
        self, job: Job, products: Products, tile: Tile, sinks: dict[int, Sink], group: Val
    ) -> None:
        self.job, self.products, self.tile, self.sinks = job, products, tile, sinks
        k, ix = job.k, job.indexer
        self.batch, self.row_tile, self.col_tile = ix.split(ix.atom(group, tile.groups), tile.grid)
        self.lane = k.lane()
        lane = ix.atom(self.lane, tile.threads)
        self.lane_row, self.lane_col = ix.split(lane, (tile.beside_m, tile.beside_n))
        k.need_shared("left_tile", "f32", tile.m * tile.k)
        for p in range(len(tile.segment.products)):
            k.need_shared(f"right_tile{p}", "f32", tile.n * tile.k)

    def run(self) -> None:
        self._fold_rows()
        k, tile = self.job.k, self.tile
        sums = [
            [[k.var(k.lit(0.0), name="s") for _ in range(tile.lane_n)] for _ in range(tile.lane_m)]
            for _ in tile.segment.products
        ]
        blocks = -(-tile.segment.depth // tile.k)
        with k.for_(0, blocks, name="q") as q:
            self._fill(self.job.indexer.atom(q, blocks) * tile.k)
            k.barrier()
            with k.for_(0, tile.k, unroll=None, name="kk") as kk:
                self._add(kk, sums)
            k.barrier()
        self._store(sums)

    def _row(self, within: Index) -> Index:
        return self.job.indexer.bounded(
            self.row_tile * self.tile.m + within, self.tile.segment.rows
        )

    def _col(self, within: Index) -> Index:
        return self.job.indexer.bounded(
            self.col_tile * self.tile.n + within, self.tile.segment.cols
        )

    def _fold_rows(self) -> None:
        """The left operand's folds of each row of the tile, by the row's share of lanes, kept in
        workgroup memory."""
        if not self.products.folds:
            return
        job, k, tile, segment = self.job, self.job.k, self.tile, self.tile.segment
        rows = min(tile.m, tile.threads)
        team = Team.of(self.lane, tile.threads // rows, rows, True)
        for fold in self.products.folds:
            k.need_shared(f"fold{fold.out.id}", "f32", tile.m)
        for start in range(0, tile.m, rows):
            within = job.indexer.atom(team.row, rows) + start
            own = segment.own(job, self.batch, self._row(within), Index())
            left = segment.products[0].ins[0].type.shape
            number = row_number(left, left_coords(segment, own, Index()))
            for fold in self.products.folds:
                value = fold_row(job, fold, number, team)
                job.pull.leaves[fold.out.id] = row_leaf(job, value, number, fold)
                with job.when(team.col.eq(0)):
                    k.store(f"fold{fold.out.id}", job.indexer.value(within), value)
        k.barrier()

    def _use_folds(self, within: Index, number: Index) -> None:
        """Folds of the tile's row `within` as leaves."""
        k = self.job.k
        for fold in self.products.folds:
            value = k.load(f"fold{fold.out.id}", self.job.indexer.value(within))
            self.job.pull.leaves[fold.out.id] = row_leaf(self.job, value, number, fold)

    def _fill(self, block: Index) -> None:
        """Both operands' tiles of the terms from `block` on."""
        tile = self.tile
        for at in self._shares(tile.m):
            with self._guard(at, tile.m):
                self._fill_left(block, at)
        for at in self._shares(tile.n):
            with self._guard(at, tile.n):
                self._fill_right(block, at)

    def _shares(self, extent: int) -> list[Index]:
        """This lane's elements of a tile of `extent` by tile_k, by number."""
        lane = self.job.indexer.atom(self.lane, self.tile.threads)
        return [lane + n for n in range(0, extent * self.tile.k, self.tile.threads)]

    def _guard(self, at: Index, extent: int) -> AbstractContextManager[None]:
        return self.job.when(self.job.indexer.below(at, extent * self.tile.k))

    def _fill_left(self, block: Index, number: Index) -> None:
        """Neighbouring lanes take neighbouring terms."""
        job, tile, segment = self.job, self.tile, self.tile.segment
        within, kk = job.indexer.divmod(number, tile.k)
        at, is_there = self._term(block, kk)
        own = segment.own(job, self.batch, self._row(within), Index())
        coords = left_coords(segment, own, at)
        left = segment.products[0].ins[0]
        self._use_folds(within, row_number(left.type.shape, coords))
        self._put("left_tile", kk * tile.m + within, is_there, job.pull.value(left, coords))

    def _fill_right(self, block: Index, number: Index) -> None:
        """Neighbouring lanes take neighbouring terms, or columns, as the operand lies."""
        job, tile, segment = self.job, self.tile, self.tile.segment
        if tile.adjacent:
            within, kk = job.indexer.divmod(number, tile.k)
        else:
            kk, within = job.indexer.divmod(number, tile.n)
        at, is_there = self._term(block, kk)
        own = segment.own(job, self.batch, Index(), self._col(within))
        for p, product in enumerate(segment.products):
            value = job.pull.value(product.ins[1], right_coords(product, own, at))
            self._put(f"right_tile{p}", kk * tile.n + within, is_there, value)

    def _term(self, block: Index, kk: Index) -> tuple[Index, Val]:
        """The term's number, clamped below the depth, and whether it was below."""
        ix, depth = self.job.indexer, self.tile.segment.depth
        at = block + kk
        return ix.bounded(at, depth), ix.below(at, depth)

    def _put(self, name: str, slot: Index, is_there: Val, value: Val) -> None:
        k = self.job.k
        k.store(name, self.job.indexer.value(slot), k.select(is_there, value, k.lit(0.0)))

    def _add(self, kk: Val, sums: list[list[list[Val]]]) -> None:
        k, tile, ix = self.job.k, self.tile, self.job.indexer
        lane_row, lane_col = ix.value(self.lane_row), ix.value(self.lane_col)
        row_at, col_at = kk * tile.m + lane_row, kk * tile.n + lane_col
        lefts = [k.load("left_tile", row_at + i * tile.beside_m) for i in range(tile.lane_m)]
        for p in range(len(tile.segment.products)):
            for j in range(tile.lane_n):
                right = k.load(f"right_tile{p}", col_at + j * tile.beside_n)
                for i, left in enumerate(lefts):
                    k.set(sums[p][i][j], k.fma(left, right, sums[p][i][j]))

    def _store(self, sums: list[list[list[Val]]]) -> None:
        job, tile, segment = self.job, self.tile, self.tile.segment
        ix = job.indexer
        for i in range(tile.lane_m):
            for j in range(tile.lane_n):
                row = self.row_tile * tile.m + self.lane_row + i * tile.beside_m
                col = self.col_tile * tile.n + self.lane_col + j * tile.beside_n
                is_there = ix.below(row, segment.rows) & ix.below(col, segment.cols)
                within = self.lane_row + i * tile.beside_m
                own = segment.own(
                    job, self.batch, ix.bounded(row, segment.rows), ix.bounded(col, segment.cols)
                )
                mine = [job.k.copy(s[i][j]) for s in sums]
                left = segment.products[0].ins[0].type.shape
                with job.when(is_there):
                    self._use_folds(within, row_number(left, left_coords(segment, own, Index())))
                    store_element(job, segment, self.sinks, own, mine)
