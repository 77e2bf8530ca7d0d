"""Rows folded one or more times, and what is made of them: softmax, norms, sums over any axes.

Schedule "reduce": `threads` lanes a group, `lanes` of them a row. Where the folded axes are the
last, a row's lanes are neighbours; else neighbouring lanes have neighbouring rows. Each fold
asks for its operand anew, so nothing of a row's size is kept. Outputs are one element a row, or
a whole row.
"""

from __future__ import annotations

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.row_reduce import Rows, Team, fold_rows, rows_of
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.errors import CapabilityError
from poot.limits import DeviceLimits
from poot.planner.request import Request


def lower_reduce(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch, and one more for each narrow output that is packed into words."""
    schedule = request.schedule
    call = reduce_call(request, limits, schedule.get("threads"), schedule.get("lanes"))
    return Lowered((call, *lower_spilled(request, limits)))


def reduce_call(
    request: Request,
    limits: DeviceLimits,
    threads: int,
    lanes: int,
    only: tuple[int, ...] | None = None,
) -> KernelCall:
    """The launch that folds and stores every output, or those in `only`."""
    job = open_job(request, limits, "reduce", threads)
    k = job.k
    job.bind_inputs(skip=(i for _, i in request.updates))
    sinks = open_sinks(job, only)
    reduces = [e for e in request.body.eqns if e.op == "reduce"]
    space = rows_of(reduces[0])
    together = threads // lanes
    groups = -(-space.rows // together)
    with each_group(k, groups, limits) as group:
        team = Team.of(k.lane(), lanes, together, space.is_trailing)
        number = group * together + team.row
        row = job.indexer.within(number, space.rows, groups * together)
        fold_rows(job, reduces, row, team)
        if space.rows % together:
            with k.if_(number < space.rows):
                _store_row(job, sinks, space, row, team)
        else:
            _store_row(job, sinks, space, row, team)
    return job.call(groups)


def _store_row(job: Job, sinks: list[Sink], space: Rows, row: Index, team: Team) -> None:
    k, ix = job.k, job.indexer
    for sink in sinks:
        if sink.source.type.elems == space.rows:
            with k.if_(team.col.eq(0)):
                coords = ix.split(row, sink.source.type.shape)
                sink.store(job, coords, job.pull.value(sink.source, coords))
    wide: dict[int, list[Sink]] = {}
    for sink in sinks:
        elems = sink.source.type.elems
        if elems != space.rows:
            if elems % space.rows or not (space.is_trailing or elems == space.rows * space.cols):
                raise CapabilityError(
                    f"an output of {elems} elements is no whole number of rows of {space.rows}"
                )
            wide.setdefault(elems // space.rows, []).append(sink)
    for cols, group in wide.items():
        with k.for_(team.col, cols, team.lanes) as c:
            col = ix.atom(c, cols)
            for sink in group:
                shape = sink.source.type.shape
                if space.is_trailing:
                    coords = ix.split(row * cols + col, shape)
                else:
                    coords = ix.reshape(space.coords(job, row, col), space.shape, shape)
                sink.store(job, coords, job.pull.value(sink.source, coords))
