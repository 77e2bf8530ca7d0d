"""Schedule "ranked_topk": the k largest of a row where k is no few.

A group of `lanes` lanes a row. Four rounds of eight bits find the last element taken and how many
equal to it are (`selection/best_blocks.py`); every lane writes what it takes of its own run of the
row to a list in workgroup memory, in the row's order; then each element of the list counts those
that come before it, which is its place. `stage` says that the row's numbers lie in workgroup
memory. No step depends on how the row is ordered.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.rank import order_key, rank_eqn
from poot.codegen.gen.row_reduce import Rows
from poot.codegen.gen.selection.best_blocks import threshold_of
from poot.codegen.gen.selection.scan import scan
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import I32, Val
from poot.ir.attrs import int_attr
from poot.limits import DeviceLimits
from poot.planner.request import Request

Order = Callable[[Val], Val]
_KEYS, _LIST, _PLACES = "keys", "listed", "columns"


def lower_ranked_topk(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch, and one more where narrow values are packed into words."""
    eqn, lanes = rank_eqn(request, "topk"), request.schedule.get("lanes")
    job = open_job(request, limits, "ranked_topk", lanes)
    job.bind_inputs()
    sinks = open_sinks(job)
    k, x, many = job.k, eqn.ins[0], int_attr(eqn, "k")
    space, staged = Rows(x.type.shape, (len(x.type.shape) - 1,)), request.schedule.get("stage")
    k.shared(_LIST, "i32", many)
    k.shared(_PLACES, "i32", many)
    if staged:
        k.shared(_KEYS, "i32", space.cols)
    with each_group(k, space.rows, limits) as group:
        row = job.indexer.atom(group, space.rows)

        def computed(col: Val) -> Val:
            coords = space.coords(job, row, job.indexer.atom(col, space.cols))
            return order_key(job, job.pull.value(x, coords), x.type.dtype)

        def order(col: Val) -> Val:
            return k.load(_KEYS, col) if staged else computed(col)

        if staged:
            with k.for_(k.lane(), space.cols, lanes, name="c") as col:
                k.store(_KEYS, col, computed(col))
        cols = k.lit(space.cols, I32)
        last, equals = threshold_of(job, lanes, cols, k.lit(many, I32), order)
        _list(job, lanes, space.cols, order, last, equals)
        with k.for_(k.lane(), many, lanes, name="i") as i:
            place = job.indexer.atom(_place(job, i, many), many)
            coords = (*job.indexer.split(row, space.kept), place)
            col = job.indexer.clamp(k.load(_PLACES, i), space.cols)
            for sink in sinks:
                is_index = sink.source.id == eqn.outs[1].id
                _store(job, sink, coords, col, None if is_index else space.coords(job, row, col))
    return Lowered((job.call(space.rows), *lower_spilled(request, limits)))


def _store(job: Job, sink: Sink, coords: Coords, col: Index, of_value: Coords | None) -> None:
    """An element's column, or its value."""
    (eqn,) = (e for e in job.request.body.eqns if e.op == "topk")
    if of_value is None:
        sink.store(job, coords, job.indexer.value(col))
    else:
        sink.store(job, coords, job.pull.value(eqn.ins[0], of_value))


def _list(job: Job, lanes: int, cols: int, order: Order, last: Val, equals: Val) -> None:
    """What is taken, in the row's order; ends with a barrier."""
    k = job.k
    size = -(-cols // lanes)
    first = k.lane() * size
    end = k.op("min", first + size, cols)
    more, same = k.var(k.lit(0, I32), name="more"), k.var(k.lit(0, I32), name="same")
    with k.for_(first, end, name="c") as col:
        key = order(col)
        k.set(more, more + k.cast(key > last, "i32"))
        k.set(same, same + k.cast(key.eq(last), "i32"))
    before = (scan(job, "more", k.copy(more), lanes), scan(job, "same", k.copy(same), lanes))
    at, equal = (k.var(v.before, name="at") for v in before)
    with k.for_(first, end, name="c") as col:
        key = order(col)
        is_more, is_same = key > last, key.eq(last)
        with k.if_(is_more | (is_same & (equal < equals))):
            place = k.copy(at + k.op("min", equal, equals))
            k.store(_LIST, place, key)
            k.store(_PLACES, place, col)
        k.set(at, at + k.cast(is_more, "i32"))
        k.set(equal, equal + k.cast(is_same, "i32"))
    k.barrier()


def _place(job: Job, i: Val, many: int) -> Val:
    """How many of the list come before its i-th: larger ones, and equal ones before it."""
    k = job.k
    own, place = k.load(_LIST, i), k.var(k.lit(0, I32), name="place")
    with k.for_(0, many, name="j") as j:
        other = k.load(_LIST, j)
        is_before = (other > own) | (other.eq(own) & (j < i))
        k.set(place, place + k.cast(is_before, "i32"))
    return k.copy(place)
