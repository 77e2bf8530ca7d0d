"""Schedule "panels", the inner part: one strip of rows by one panel of columns, all terms.

Sums stay in registers, in as many interleaved parts as keep the multipliers busy. Where the right
operand is codes with a scale a run, a run's codes are summed first and scaled once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.index import ZERO, Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.parts import Products, Segment, right_coords
from poot.codegen.gen.matmul.scaled import Scaled, scaled_of
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import Val
from poot.ir.graph import Eqn
from poot.planner.panels import is_in_panels
from poot.planner.request import Request

# Sums of one strip that keep the multipliers busy: their latency times how many there are.
_SUMS = 8
# Terms an unrolled step takes where the right operand lies ready, and interleaved parts at most.
_STAGED_RUN = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """The schedule's numbers, and the rows of all batches as one."""

    rows: int
    depth: int
    lanes: int
    panel: int
    strip: int
    run: int

    @staticmethod
    def of(request: Request, products: Products) -> Shape:
        segment, get = products.segments[0], request.schedule.get
        rows = segment.batches * segment.rows
        return Shape(rows, segment.depth, get("lanes"), get("panel"), get("strip"), get("run"))

    @property
    def strips(self) -> int:
        return -(-self.rows // self.strip)

    @property
    def vectors(self) -> int:
        return self.panel // self.lanes

    def panels(self, segment: Segment) -> int:
        return -(-segment.cols // self.panel)


@dataclass(frozen=True, slots=True)
class Work:
    """The main kernel in the making."""

    job: Job
    products: Products
    shape: Shape
    sinks: dict[int, Sink]
    lane: Index
    stages_left: bool
    stages_right: bool

    def row_coords(self, segment: Segment, row: Index, col: Index) -> Coords:
        """An element's coordinates in the products' results, from its row among all batches."""
        lead = self.job.indexer.split(row, (*segment.batch, segment.rows))
        return (*lead, col)

    @property
    def needs_runs(self) -> bool:
        """The rows lie in workgroup memory, and some product sums codes that have a minimum a
        run."""
        return self.stages_left and any(
            (made := _by_runs(self, s, p, self._some_panel(s))) and made.minimum is not None
            for s in self.products.segments
            for p in s.products
        )

    def _some_panel(self, segment: Segment) -> Index:
        return self.job.indexer.atom(self.job.k.group_id(0), self.shape.panels(segment))

    def run_sum(self, strip: Index, block: Index, row: int) -> Val:
        """The sum of a row's terms in one run."""
        shape, k = self.shape, self.job.k
        if self.stages_left:
            return k.load("runs", self.job.indexer.value(block * shape.strip + row))
        total = self.left_at(strip, block * shape.run, row)
        for u in range(1, shape.run):
            total = total + self.left_at(strip, block * shape.run + u, row)
        return total

    def left_at(self, strip: Index, at: Index, row: int) -> Val:
        """Term `at` of row `row` of a strip, the same in every lane."""
        shape = self.shape
        place = (strip * shape.depth + at) * shape.strip + row
        return self.job.k.load("left", self.job.indexer.value(place))


def column_of(work: Work, segment: Segment, panel: Index, vector: int) -> Index:
    """This lane's column of one vector of a panel."""
    return panel * work.shape.panel + work.lane + vector * work.shape.lanes


def right_place(
    work: Work, segment: Segment, product: Eqn, panel: Index, vector: int, at: Index
) -> Coords:
    """Where the right operand is asked for a term of this lane's column."""
    col = column_of(work, segment, panel, vector)
    request = work.job.request
    is_filled = is_in_panels(request.body, product, request.layouts)
    if segment.cols % work.shape.panel and not is_filled:
        col = work.job.indexer.bounded(col, segment.cols)
    own = (*(ZERO for _ in segment.batch), ZERO, col)
    return right_coords(product, own, at)


def staged_place(work: Work, product: int, at: Index, vector: int) -> Val:
    """Where a term of a product's panel lies in workgroup memory."""
    shape, ix = work.shape, work.job.indexer
    start = product * shape.depth * shape.panel + vector * shape.lanes
    return ix.value(at * shape.panel + work.lane + start)


def sum_place(work: Work, product: int, row: Index, vector: int) -> Val:
    """Where a row's sum lies in workgroup memory."""
    shape, ix = work.shape, work.job.indexer
    start = product * shape.strip * shape.panel + vector * shape.lanes
    return ix.value(row * shape.panel + work.lane + start)


Sums = list[list[list[Val]]]


def sum_strip(
    work: Work, segment: Segment, p: int, product: Eqn, panel: Index, strip: Index
) -> None:
    """Product p's sums of one strip by one panel, left in workgroup memory."""
    k, shape = work.job.k, work.shape
    scaled = _by_runs(work, segment, product, panel)
    if scaled is not None:
        sums = _scaled_sums(work, segment, product, panel, strip, scaled)
    else:
        sums = _plain_sums(work, segment, p, product, panel, strip)
    for i in range(shape.strip):
        for v in range(shape.vectors):
            k.store("sums", sum_place(work, p, ZERO + i, v), _joined(sums, i, v))


def _by_runs(work: Work, segment: Segment, product: Eqn, panel: Index) -> Scaled | None:
    """How the product's right operand is scaled, where a run's codes are summed first."""
    if work.stages_right:
        return None
    scaled = scaled_of(work.job.request.body, product.ins[1])
    if scaled is None or not scaled.is_run(work.job, _run_places(work, segment, product, panel)):
        return None
    return scaled


def _joined(sums: Sums, row: int, vector: int) -> Val:
    """The interleaved parts of one sum, added."""
    total = sums[0][row][vector]
    for more in sums[1:]:
        total = total + more[row][vector]
    return total


def _parts(shape: Shape, run: int) -> int:
    parts = 1
    while parts < min(_STAGED_RUN, run) and parts * shape.strip * shape.vectors < _SUMS:
        parts *= 2
    return parts


def _fresh(work: Work, parts: int) -> Sums:
    k, shape = work.job.k, work.shape
    return [
        [[k.var(k.lit(0.0), name="s") for _ in range(shape.vectors)] for _ in range(shape.strip)]
        for _ in range(parts)
    ]


def _copied(work: Work, sums: Sums) -> Sums:
    return [[[work.job.k.copy(v) for v in row] for row in part] for part in sums]


def _plain_sums(
    work: Work, segment: Segment, p: int, product: Eqn, panel: Index, strip: Index
) -> Sums:
    shape, k = work.shape, work.job.k
    run = math.gcd(shape.run, _STAGED_RUN) if work.stages_right else shape.run
    parts = _parts(shape, run)
    sums = _fresh(work, parts)
    blocks = shape.depth // run
    with k.for_(0, blocks, name="q") as q:
        block = work.job.indexer.atom(q, blocks)
        for u in range(run):
            at = block * run + u
            rights: list[Val] = []
            for v in range(shape.vectors):
                if work.stages_right:
                    rights.append(k.load("right", staged_place(work, p, at, v)))
                else:
                    place = right_place(work, segment, product, panel, v, at)
                    rights.append(work.job.pull.value(product.ins[1], place))
            _add(work, sums[u % parts], [work.left_at(strip, at, i) for i in range(shape.strip)],
                 rights)  # fmt: skip
    return _copied(work, sums)


def _add(work: Work, sums: list[list[Val]], lefts: list[Val], rights: list[Val]) -> None:
    k = work.job.k
    for left, mine in zip(lefts, sums, strict=True):
        for total, right in zip(mine, rights, strict=True):
            k.set(total, k.fma(left, right, total))


def _run_places(work: Work, segment: Segment, product: Eqn, panel: Index) -> list[Coords]:
    """The terms of one run, some run, in the first vector."""
    run = work.shape.run
    block = work.job.indexer.atom(work.job.k.group_id(0), work.shape.depth // run)
    return [right_place(work, segment, product, panel, 0, block * run + u) for u in range(run)]


def _scaled_sums(
    work: Work, segment: Segment, product: Eqn, panel: Index, strip: Index, scaled: Scaled
) -> Sums:
    """A run's codes summed, then scaled; the run's left terms summed for the minimum."""
    job, shape, k = work.job, work.shape, work.job.k
    totals = _fresh(work, 1)[0]
    blocks, parts = shape.depth // shape.run, _parts(shape, shape.run)
    with k.for_(0, blocks, name="q") as q:
        block = job.indexer.atom(q, blocks)
        inner: Sums = []
        for u in range(shape.run):
            at = block * shape.run + u
            places = [
                right_place(work, segment, product, panel, v, at) for v in range(shape.vectors)
            ]
            codes = [scaled.code(job, place) for place in places]
            lefts = [work.left_at(strip, at, i) for i in range(shape.strip)]
            if u < parts:
                inner.append([[left * code for code in codes] for left in lefts])
            else:
                own = inner[u % parts]
                inner[u % parts] = [
                    [k.fma(left, code, total) for code, total in zip(codes, mine, strict=True)]
                    for left, mine in zip(lefts, own, strict=True)
                ]
        for v in range(shape.vectors):
            place = right_place(work, segment, product, panel, v, block * shape.run)
            scale, minimum = scaled.factors(job, place)
            for i in range(shape.strip):
                total = totals[i][v]
                k.set(total, k.fma(scale, _joined(inner, i, v), total))
                if minimum is not None:
                    k.set(total, k.fma(minimum, work.run_sum(strip, block, i), total))
    return _copied(work, [totals])
