"""Schedule "panels": the CPU's products. A lane is a column; a row's element is the same for all.

    a few rows     a group takes a run of panels; it stages the rows in workgroup memory first
    many rows      the rows are packed strip by strip by a launch of their own; a group takes one
                   panel and a run of strips

A strip's sums of one panel are held in registers over all terms, then go through workgroup memory
to the epilogue, row by row. Sums are f32, in the order of the terms or in a few interleaved parts.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import ZERO, Index, Indexer
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lanes import once, part
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.matmul.packed import bind_operands, needed
from poot.codegen.gen.matmul.parts import (
    Products,
    Segment,
    left_coords,
    products_of,
    row_number,
)
from poot.codegen.gen.matmul.store import product_sinks, side_calls, store_element
from poot.codegen.gen.matmul.strip import (
    Shape,
    Work,
    column_of,
    right_place,
    staged_place,
    sum_place,
    sum_strip,
)
from poot.codegen.gen.row_reduce import Team, fold_rows
from poot.codegen.kir.build import Val
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits
from poot.planner.request import Request

Place = Callable[[Index], Index]


def lower_panels(request: Request, limits: DeviceLimits) -> Lowered:
    """The packing of the rows where there are many, the products, and what stands beside them."""
    products = products_of(request)
    shape = Shape.of(request, products)
    get = request.schedule.get
    stages_left, stages_right = bool(get("stage_left")), bool(get("stage_right"))
    calls: list[KernelCall] = []
    if not stages_left:
        calls.append(_pack_call(request, limits, products, shape))
    job = open_job(request, limits, "panels", shape.lanes)
    job.k.subgroup = shape.lanes
    roots = [p.ins[1] for s in products.segments for p in s.products]
    roots += [products.segments[0].products[0].ins[0]] if stages_left else []
    ends = [n for s in products.segments for n in s.outputs]
    bind_operands(job, needed(request, roots, ends, products))
    sinks = product_sinks(job, products)
    lane = job.indexer.atom(job.k.lane(), shape.lanes)
    work = Work(job, products, shape, sinks, lane, stages_left, stages_right)
    most = max(len(s.products) for s in products.segments)
    if stages_left:
        job.k.shared("left", "f32", shape.depth * shape.strip)
        if work.needs_runs:
            job.k.shared("runs", "f32", shape.depth // shape.run * shape.strip)
    else:
        scratch = TensorType("f32", (shape.strips * shape.strip * shape.depth,))
        job.memory("left", scratch, "r", ("scratch", 0))
    if stages_right:
        job.k.shared("right", "f32", most * shape.depth * shape.panel)
    job.k.shared("sums", "f32", most * shape.strip * shape.panel)
    calls.append(_few_rows(work, get("groups")) if shape.strips == 1 else _many_rows(work))
    return Lowered((*calls, *side_calls(request, limits, products)))


def _few_rows(work: Work, asked: int) -> KernelCall:
    """Each group stages the strip, then takes its run of all segments' panels."""
    job, shape = work.job, work.shape
    total = sum(shape.panels(s) for s in work.products.segments)
    each = -(-total // min(asked, total))
    groups = -(-total // each)
    k = job.k
    with each_group(k, groups, job.limits) as group:
        if work.stages_left:
            _stage_rows(work)
        low, before = group * each, 0
        for segment in work.products.segments:
            count = shape.panels(segment)
            first = k.op("max", low - before, 0)
            last = k.op("min", low + (each - before), count)
            with k.for_(first, last, name="p") as p:
                _strip(work, segment, job.indexer.atom(p, count), ZERO)
            before += count
    return job.call(groups)


def _many_rows(work: Work) -> KernelCall:
    """Each group takes one panel and a run of strips."""
    job, shape, k = work.job, work.shape, work.job.k
    total = sum(shape.panels(s) for s in work.products.segments)
    wanted = work.job.request.schedule.get("groups")
    blocks = min(shape.strips, -(-wanted // total))
    each = -(-shape.strips // blocks)
    blocks = -(-shape.strips // each)
    groups = total * blocks
    with each_group(k, groups, job.limits) as group:
        block, unit = job.indexer.split(job.indexer.atom(group, groups), (blocks, total))
        before = 0
        for segment in work.products.segments:
            count = shape.panels(segment)
            if len(work.products.segments) == 1:
                _panel(work, segment, unit, block * each, each)
            else:
                number = job.indexer.value(unit)
                is_mine = (number >= before) & (number < before + count)
                with k.if_(is_mine):
                    panel = job.indexer.atom(number - before, count)
                    _panel(work, segment, panel, block * each, each)
            before += count
    return job.call(groups)


def _panel(work: Work, segment: Segment, panel: Index, first: Index, each: int) -> None:
    """Strips first .. first + each - 1 of one panel."""
    job, shape, k = work.job, work.shape, work.job.k
    if work.stages_right:
        _stage_panel(work, segment, panel)
    start = job.indexer.value(first)
    stop = k.op("min", start + each, shape.strips)
    with k.for_(start, stop, name="s") as s:
        _strip(work, segment, panel, job.indexer.atom(s, shape.strips))


def _stage_rows(work: Work) -> None:
    """The strip's rows, with their prologue, in workgroup memory: [term, row]."""
    job, shape, k = work.job, work.shape, work.job.k
    with k.for_(0, shape.rows, name="r") as r:
        row = job.indexer.atom(r, shape.rows)
        _left_row(work.job, work.products, row, shape, lambda at: at * shape.strip + row)
    k.barrier()
    _sum_runs(work)
    k.barrier()


def _sum_runs(work: Work) -> None:
    """The sums of each run's terms, which the minima of coded weights are times."""
    shape, k, ix = work.shape, work.job.k, work.job.indexer
    if not work.needs_runs:
        return
    runs, lane = shape.depth // shape.run, ix.atom(k.lane(), shape.lanes)
    with k.for_(0, runs, name="q") as q:
        for i in range(shape.strip):
            base = ix.atom(q, runs) * shape.run
            total: Val | None = None
            for first in range(0, shape.run, shape.lanes):
                own = ix.value((base + lane + first) * shape.strip + i)
                value = part(k, min(shape.lanes, shape.run - first), shape.lanes,
                             lambda own=own: k.load("left", own))  # fmt: skip
                total = value if total is None else total + value
            assert total is not None
            whole = k.op("subgroup_reduce", total, kind="add", width=shape.lanes)
            with once(k):
                k.store("runs", ix.value(ix.atom(q, runs) * shape.strip + i), whole)


def _left_row(job: Job, products: Products, row: Index, shape: Shape, place: Place) -> None:
    """One row of the left operand, its folds first, stored to `left` by all lanes."""
    k, ix, segment = job.k, job.indexer, products.segments[0]
    left = segment.products[0].ins[0]
    own = (*ix.split(row, (*segment.batch, segment.rows)), ZERO)
    number = row_number(left.type.shape, left_coords(segment, own, ZERO))
    team = Team.of(k.lane(), k.threads, 1, True)
    fold_rows(job, list(products.folds), number, team)

    def put(at: Index) -> None:
        value = job.pull.value(left, left_coords(segment, own, at))
        k.store("left", ix.value(place(at)), value)

    whole = shape.depth // shape.lanes
    lane = ix.atom(k.lane(), shape.lanes)
    if whole:
        with k.for_(0, whole, name="t") as t:
            put(ix.atom(t, whole) * shape.lanes + lane)
    if shape.depth % shape.lanes:
        with k.if_(k.lane() < shape.depth % shape.lanes):
            put(ix.atom(k.lane(), shape.depth % shape.lanes) + whole * shape.lanes)


def _pack_call(
    request: Request, limits: DeviceLimits, products: Products, shape: Shape
) -> KernelCall:
    """A group a row: the row with its prologue, at its place in its strip; the rows that fill the
    last strip are zeros."""
    job = open_job(request, limits, "pack_rows", shape.lanes)
    bind_operands(job, needed(request, [products.segments[0].products[0].ins[0]], [], products))
    k, ix = job.k, job.indexer
    rows = shape.strips * shape.strip
    job.memory("left", TensorType("f32", (rows * shape.depth,)), "w", ("scratch", 0))
    with each_group(k, rows, limits) as group:
        strip, within = ix.split(ix.atom(group, rows), (shape.strips, shape.strip))

        def place(at: Index) -> Index:
            return (strip * shape.depth + at) * shape.strip + within

        with job.when(ix.below(ix.atom(group, rows), shape.rows)):
            _left_row(job, products, ix.atom(group, shape.rows), shape, place)
        if rows > shape.rows:
            with k.if_(group >= shape.rows), k.for_(k.lane(), shape.depth, shape.lanes) as t:
                k.store("left", ix.value(place(ix.atom(t, shape.depth))), 0.0)
    return job.call(rows)


def _stage_panel(work: Work, segment: Segment, panel: Index) -> None:
    """The panel's terms, made once, in workgroup memory: [product, term, column]."""
    job, shape, k = work.job, work.shape, work.job.k
    blocks = shape.depth // shape.run
    for p, product in enumerate(segment.products):
        with k.for_(0, blocks, name="q") as q:
            block = job.indexer.atom(q, blocks)
            for u in range(shape.run):
                at = block * shape.run + u
                for v in range(shape.vectors):
                    place = staged_place(work, p, at, v)
                    where = right_place(work, segment, product, panel, v, at)
                    k.store("right", place, job.pull.value(product.ins[1], where))
    k.barrier()


def _strip(work: Work, segment: Segment, panel: Index, strip: Index) -> None:
    """One strip by one panel: sums, then the epilogue row by row."""
    k = work.job.k
    for p, product in enumerate(segment.products):
        sum_strip(work, segment, p, product, panel, strip)
    k.barrier()
    _epilogue(work, segment, panel, strip)
    k.barrier()


def _epilogue(work: Work, segment: Segment, panel: Index, strip: Index) -> None:
    job, shape, k, ix = work.job, work.shape, work.job.k, work.job.indexer
    first = strip * shape.strip
    if shape.rows % shape.strip:
        stop = k.op("min", ix.value(first * -1 + shape.rows), shape.strip)
    else:
        stop = k.lit(shape.strip, k.lane().ty)
    with k.for_(0, stop, name="r") as r:
        within = ix.atom(r, shape.strip)
        row = ix.bounded(first + within, shape.rows) if shape.strips == 1 else first + within
        row = _known_below(ix, row, shape.rows)
        for v in range(shape.vectors):
            col = column_of(work, segment, panel, v)
            is_there = ix.below(col, segment.cols)
            if is_there.literal is False:
                continue
            mine = [
                k.load("sums", sum_place(work, p, within, v)) for p in range(len(segment.products))
            ]
            with job.when(is_there):
                own = work.row_coords(segment, row, _known_below(ix, col, segment.cols))
                store_element(job, segment, work.sinks, own, mine)


def _known_below(ix: Indexer, index: Index, extent: int) -> Index:
    """The index as one that lies below the extent, which control around has seen to."""
    return index if index.high < extent else ix.atom(ix.value(index), extent)
