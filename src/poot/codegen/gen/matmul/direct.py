"""Schedule "gemv": products straight from memory, each lane a few rows and columns in registers.

A group makes `rows` rows by (threads / lanes) * `cols` columns of one batch. `lanes` lanes
share each column's sum: lane j takes every `lanes`-th run of `unroll` neighbouring terms, and
the group folds their sums through workgroup memory. `adjacent` says which lanes are neighbours:
1, those that share a sum (weights whose rows are summed lie in a row); 0, those of neighbouring
columns. Sums are f32.
"""

from __future__ import annotations

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
from poot.codegen.gen.row_reduce import Team, across_lanes, fold_row, row_leaf
from poot.codegen.gen.sinks import Sink
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.ir.graph import Eqn
from poot.limits import DeviceLimits
from poot.planner.request import Request, Schedule


@dataclass(frozen=True, slots=True)
class Shape:
    """The schedule's numbers for a segment: tiles of rows and columns, and how many groups they
    take."""

    segment: Segment
    rows: int
    cols: int
    lanes: int
    across: int
    unroll: int

    @staticmethod
    def of(segment: Segment, schedule: Schedule) -> Shape:
        lanes, unroll = schedule.get("lanes"), schedule.get("unroll")
        while segment.depth % unroll:
            unroll //= 2
        rows = min(schedule.get("rows"), segment.rows)
        across = schedule.get("threads") // lanes
        return Shape(segment, rows, schedule.get("cols"), lanes, across, max(unroll, 1))

    @property
    def row_tiles(self) -> int:
        return -(-self.segment.rows // self.rows)

    @property
    def col_tiles(self) -> int:
        return -(-self.segment.cols // (self.across * self.cols))

    @property
    def groups(self) -> int:
        return self.segment.batches * self.row_tiles * self.col_tiles


def lower_gemv(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch for all the products, and launches for outputs beside them and packed ones."""
    products, schedule = products_of(request), request.schedule
    job = open_job(request, limits, "gemv", schedule.get("threads"))
    job.bind_inputs(skip=(i for _, i in request.updates), vector=4)
    sinks = product_sinks(job, products)
    shapes = [Shape.of(s, schedule) for s in products.segments]
    total = sum(s.groups for s in shapes)
    k = job.k
    with each_group(k, total, limits) as group:
        first = 0
        for shape in shapes:
            if len(shapes) == 1:
                _segment_groups(job, products, shape, sinks, group)
            else:
                is_mine = (group >= first) & (group < first + shape.groups)
                with k.if_(is_mine):
                    _segment_groups(job, products, shape, sinks, group - first)
            first += shape.groups
    calls = (job.call(total), *side_calls(request, limits, products))
    return Lowered((*calls, *lower_spilled(request, limits)))


def _segment_groups(
    job: Job, products: Products, shape: Shape, sinks: dict[int, Sink], group: Val
) -> None:
    """One group's tile of a segment."""
    k, ix, segment = job.k, job.indexer, shape.segment
    tile = ix.atom(group, shape.groups)
    batch, row_tile, col_tile = ix.split(tile, (segment.batches, shape.row_tiles, shape.col_tiles))
    adjacent = bool(job.request.schedule.get("adjacent"))
    team = Team.of(k.lane(), shape.lanes, shape.across, adjacent)
    rows, is_row = _places(job, row_tile * shape.rows, 1, shape.rows, segment.rows)
    lane_col = ix.atom(team.row, shape.across)
    first = col_tile * (shape.across * shape.cols) + lane_col
    cols, is_col = _places(job, first, shape.across, shape.cols, segment.cols)
    folds = _folded_rows(job, products, segment, batch, rows)
    sums = _sums(job, shape, team, batch, rows, cols, folds)

    def store() -> None:
        for i, row in enumerate(rows):
            for j, col in enumerate(cols):
                own = segment.own(job, batch, row, col)
                mine = [sums[p][i][j] for p in range(len(segment.products))]
                folds.use(i)
                with job.when(is_row[i] & is_col[j]):
                    store_element(job, segment, sinks, own, mine)

    if team.lanes == 1:
        store()
    else:
        with k.if_(team.col.eq(0)):
            store()


def _places(
    job: Job, first: Index, step: int, count: int, extent: int
) -> tuple[list[Index], list[Val]]:
    """`count` places from `first` on, `step` apart, each clamped below extent, and whether each is
    below."""
    ix = job.indexer
    places = [first + i * step for i in range(count)]
    inside = [ix.below(p, extent) for p in places]
    return [ix.bounded(p, extent) for p in places], inside


@dataclass(slots=True)
class FoldedRows:
    """The left operand's folds for each row of a tile: (fold, value, row) a row, put in place by
    `use`."""

    job: Job
    values: list[list[tuple[Eqn, Val, Index]]]

    def use(self, row: int) -> None:
        for fold, value, index in self.values[row]:
            self.job.pull.leaves[fold.out.id] = row_leaf(self.job, value, index, fold)


def _folded_rows(
    job: Job, products: Products, segment: Segment, batch: Index, rows: list[Index]
) -> FoldedRows:
    """Folds every row of the tile with all lanes of the group."""
    k = job.k
    team = Team.of(k.lane(), k.threads, 1, True)
    values: list[list[tuple[Eqn, Val, Index]]] = []
    for row in rows:
        mine: list[tuple[Eqn, Val, Index]] = []
        if products.folds:
            left = segment.products[0].ins[0].type.shape
            own = segment.own(job, batch, row, Index())
            number = row_number(left, left_coords(segment, own, Index()))
            for fold in products.folds:
                value = fold_row(job, fold, number, team)
                job.pull.leaves[fold.out.id] = row_leaf(job, value, number, fold)
                mine.append((fold, value, number))
        values.append(mine)
    return FoldedRows(job, values)


def _sums(
    job: Job,
    shape: Shape,
    team: Team,
    batch: Index,
    rows: list[Index],
    cols: list[Index],
    folds: FoldedRows,
) -> list[list[list[Val]]]:
    """[product][row][column] sums, whole in the first lane of each column's team."""
    k, segment = job.k, shape.segment
    sums = [[[k.var(k.lit(0.0), name="s") for _ in cols] for _ in rows] for _ in segment.products]
    blocks = segment.depth // shape.unroll
    if blocks:
        with k.for_(team.col, blocks, team.lanes, name="q") as q:
            block = job.indexer.atom(q, blocks)
            for u in range(shape.unroll):
                _add_term(job, segment, block * shape.unroll + u, batch, rows, cols, folds, sums)
    flat = [k.copy(v) for p in sums for row in p for v in row]
    if team.lanes > 1:
        flat = across_lanes(job, team, "sums", flat, lambda a, b: a + b)
    width, count = len(cols), len(rows)
    return [
        [flat[(p * count + i) * width : (p * count + i + 1) * width] for i in range(count)]
        for p in range(len(segment.products))
    ]


def _add_term(
    job: Job,
    segment: Segment,
    at: Index,
    batch: Index,
    rows: list[Index],
    cols: list[Index],
    folds: FoldedRows,
    sums: list[list[list[Val]]],
) -> None:
    """Adds term `at` to every sum of the lane's tile."""
    k, left = job.k, segment.products[0].ins[0]
    lefts: list[Val] = []
    for i, row in enumerate(rows):
        folds.use(i)
        own = segment.own(job, batch, row, cols[0])
        lefts.append(job.pull.value(left, left_coords(segment, own, at)))
    for p, product in enumerate(segment.products):
        for j, col in enumerate(cols):
            own = segment.own(job, batch, rows[0], col)
            right = job.pull.value(product.ins[1], right_coords(product, own, at))
            for i, mine in enumerate(lefts):
                k.set(sums[p][i][j], k.fma(mine, right, sums[p][i][j]))
