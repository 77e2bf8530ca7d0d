"""Schedule "split_kv": a decode's keys cut into `splits` chunks, a workgroup each, and a launch
that merges them.

Partials: one workgroup per (row, split) runs the streaming pass over its own chunk of the live
range and
writes its unnormalised state to the last scratch at [(row * splits + split) * (dv + 2)]: dv values,
the maximum, the
sum. A split that sees no key writes (0, -inf, 0) by the same arithmetic, so the scratch needs no
initial value.
Combine: one workgroup a row folds the row's partials and stores the results.
"""

from __future__ import annotations

from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import Folded, fold, fold_lanes
from poot.codegen.gen.attention.keys import key_range
from poot.codegen.gen.attention.parts import Parts, parts_in
from poot.codegen.gen.attention.rows import declare_state, lane_pass, open_row
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.sinks import open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits
from poot.planner.request import Request


def lower_split_kv(request: Request, limits: DeviceLimits) -> Lowered:
    """Two launches, and one more for each output that is packed into words."""
    parts = parts_in(request.body)
    calls = (_partials(request, limits, parts), combine(request, limits, parts))
    return Lowered((*calls, *lower_spilled(request, limits)))


def state_type(request: Request) -> tuple[int, TensorType]:
    """(number, type) of the scratch that holds the partial states: the last."""
    last = len(request.scratch) - 1
    return last, TensorType(request.scratch[last].dtype, (request.scratch[last].elems,))


def chunk(job: Job, keys: tuple[Val, Val], split: Index, splits: int) -> tuple[Val, Val]:
    """The split's part of first .. end - 1: equal chunks, the last ones shorter or empty."""
    k = job.k
    first, end = keys
    count = k.op("max", end - first, 0)
    size = (count + (splits - 1)) // splits
    begin = first + size * job.indexer.value(split)
    return begin, k.op("min", begin + size, end)


def _partials(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    lanes, splits = request.schedule.get("lanes"), request.schedule.get("splits")
    job = open_job(request, limits, "attention_partials", lanes)
    job.bind_inputs(vector=4, only=needed_by(request.body, parts.eqn.ins))
    number, type = state_type(request)
    memory = job.memory("states", type, "w", ("scratch", number))
    declare_state(job, parts, lanes)
    k, rows = job.k, parts.batch * parts.heads * parts.rows
    with each_group(k, rows * splits, limits) as group:
        index, split = job.indexer.divmod(job.indexer.atom(group, rows * splits), splits)
        row = open_row(job, parts, index, lanes)
        keys = key_range(job, parts, row.where[0], row.where[2])
        lane_pass(job, parts, row, lanes, chunk(job, keys, split, splits))
        state = fold_lanes(job, lanes)
        base = job.indexer.atom(group, rows * splits) * (parts.value_width + 2)
        with k.for_(k.lane(), parts.value_width, lanes, name="c") as c:
            channel = job.indexer.atom(c, parts.value_width)
            memory.store(base + channel, state.channel(channel))
        with k.if_(k.lane().eq(0)):
            memory.store(base + parts.value_width, state.peak)
            memory.store(base + (parts.value_width + 1), state.total)
    return job.call(rows * splits)


def combine(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    """The launch that merges a row's partial states, a workgroup a row."""
    lanes, splits = request.schedule.get("lanes"), request.schedule.get("splits")
    job = open_job(request, limits, "attention_combine", lanes)
    stop = {v.id for v in parts.eqn.outs}
    sink = [parts.at["sink"]] if "sink" in parts.at else []
    needed = needed_by(request.body, [*request.body.outputs, *sink], stop)
    job.bind_inputs(skip=(i for _, i in request.updates), only=needed)
    number, type = state_type(request)
    memory = job.memory("states", type, "r", ("scratch", number))
    sinks = open_sinks(job)
    job.k.shared("peaks", "f32", splits)
    rows, width = parts.batch * parts.heads * parts.rows, parts.value_width
    with each_group(job.k, rows, limits) as group:
        index = job.indexer.atom(group, rows)
        where = job.indexer.split(index, (parts.batch, parts.heads, parts.rows))
        base = index * (splits * (width + 2))

        def at(i: Index, place: Index | int) -> Val:
            return memory.load(base + i * (width + 2) + place)

        state: Folded = fold(
            job, splits, lanes, lambda i: at(i, width), lambda i: at(i, width + 1), at
        )
        finish(job, parts, (where[0], where[1], where[2]), state, lanes, sinks)
    return job.call(rows)
