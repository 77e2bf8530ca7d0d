"""The largest of a row: argmax, and topk one by one.

Every element becomes a whole number that orders as the op does (a float's bits, its sign folded
in, NaN last, -0 beside 0), so ties and NaN are decided by integers: the larger key first, then
the lower index. Schedule "argmax" and "topk": a group of `lanes` lanes a row. topk finds the k
largest in k rounds, each over what comes after the last found; `ranked.py` is for more than a few.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.row_reduce import RADIX, Rows
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import I32, Val
from poot.errors import CapabilityError
from poot.ir.attrs import int_attr
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Eqn
from poot.limits import DeviceLimits
from poot.planner.request import Request

LEAST = -(1 << 31)


def order_key(job: Job, x: Val, dtype: str) -> Val:
    """i32 that orders as the values do: NaN least, and no number least."""
    k = job.k
    kind = DTYPES[dtype].kind
    if kind == "float":
        word = k.bitcast(k.select(x.eq(0.0), k.lit(0.0), x), I32)
        key = word ^ ((word >> 31) & 0x7FFFFFFF)
        return k.select(k.op("isnan", x), k.lit(LEAST, I32), key)
    if kind == "bool":
        return k.cast(x, "i32")
    return k.bitcast(x ^ 0x80000000, I32) if kind == "uint" else x


@dataclass(frozen=True, slots=True)
class Best:
    """A key and where it stands. An index of -1 stands for nothing found yet."""

    key: Val
    at: Val


def _is_before(job: Job, a: Best, b: Best) -> Val:
    """a comes before b: a larger key, or the same and a lower index; what is found, before
    nothing."""
    ahead = (a.key > b.key) | (a.key.eq(b.key) & (a.at < b.at))
    return (a.at >= 0) & ((b.at < 0) | ahead)


def _across(job: Job, lanes: int, mine: Best) -> Best:
    """Every lane gets the group's first."""
    k, lane = job.k, job.k.lane()
    if lanes == 1:
        return mine
    k.need_shared("keys", "i32", lanes)
    k.need_shared("places", "i32", lanes)
    k.store("keys", lane, mine.key)
    k.store("places", lane, mine.at)
    k.barrier()
    left = lanes
    while left > 1:
        ways = min(RADIX, left)
        left //= ways
        with k.if_(lane < left):
            best = Best(k.load("keys", lane), k.load("places", lane))
            for i in range(1, ways):
                other = Best(k.load("keys", lane + i * left), k.load("places", lane + i * left))
                is_first = _is_before(job, other, best)
                best = Best(
                    k.select(is_first, other.key, best.key), k.select(is_first, other.at, best.at)
                )
            k.store("keys", lane, best.key)
            k.store("places", lane, best.at)
        k.barrier()
    result = Best(k.load("keys", 0), k.load("places", 0))
    k.barrier()
    return result


@dataclass(frozen=True, slots=True)
class Search:
    """The rows of a rank op's operand, and one row at work."""

    job: Job
    eqn: Eqn
    space: Rows
    row: Index
    lanes: int

    def coords(self, col: Index) -> Coords:
        return self.space.coords(self.job, self.row, col)

    def first_after(self, last: Best | None) -> Best:
        """The row's first element, or the first of those that come after `last`."""
        job, k, cols = self.job, self.job.k, self.space.cols
        x = self.eqn.ins[0]
        key, at = k.var(k.lit(LEAST, I32), name="key"), k.var(k.lit(-1, I32), name="at")
        with k.for_(k.lane(), cols, self.lanes, name="c") as c:
            value = job.pull.value(x, self.coords(job.indexer.atom(c, cols)))
            here = Best(order_key(job, value, x.type.dtype), c)
            is_better = _is_before(job, here, Best(key, at))
            if last is not None:
                is_better = is_better & _is_before(job, last, here)
            k.set(key, k.select(is_better, here.key, key))
            k.set(at, k.select(is_better, here.at, at))
        return _across(job, self.lanes, Best(k.copy(key), k.copy(at)))


def rank_eqn(request: Request, op: str) -> Eqn:
    """The request's eqn of a rank op. Raises CapabilityError where it holds more than that."""
    found = [e for e in request.body.eqns if e.op == op]
    outs = {v.id for e in found for v in e.outs}
    if len(found) != 1 or not all(v.id in outs for v in request.body.outputs):
        raise CapabilityError(f"a step of {op} holds one, whose results are its outputs")
    return found[0]


def lower_argmax(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch."""
    eqn, lanes = rank_eqn(request, "argmax"), request.schedule.get("lanes")
    job = open_job(request, limits, "argmax", lanes)
    job.bind_inputs()
    (sink,) = open_sinks(job)
    space = Rows(eqn.ins[0].type.shape, (int_attr(eqn, "axis"),))
    with each_group(job.k, space.rows, limits) as group:
        row = job.indexer.atom(group, space.rows)
        best = Search(job, eqn, space, row, lanes).first_after(None)
        with job.k.if_(job.k.lane().eq(0)):
            sink.store(job, job.indexer.split(row, eqn.out.type.shape), best.at)
    return Lowered((job.call(space.rows),))


def lower_topk(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch, and one more where narrow values are packed into words."""
    eqn, lanes = rank_eqn(request, "topk"), request.schedule.get("lanes")
    job = open_job(request, limits, "topk", lanes)
    job.bind_inputs()
    sinks = open_sinks(job)
    k, x = job.k, eqn.ins[0]
    space = Rows(x.type.shape, (len(x.type.shape) - 1,))
    with each_group(k, space.rows, limits) as group:
        row = job.indexer.atom(group, space.rows)
        search = Search(job, eqn, space, row, lanes)
        first = search.first_after(None)
        last_key, last_at = k.var(first.key, name="last"), k.var(first.at, name="last")
        _store_found(search, sinks, Index(), first)
        with k.for_(1, int_attr(eqn, "k"), name="n") as n:
            found = search.first_after(Best(k.copy(last_key), k.copy(last_at)))
            k.set(last_key, found.key)
            k.set(last_at, found.at)
            _store_found(search, sinks, job.indexer.atom(n, int_attr(eqn, "k")), found)
    return Lowered((job.call(space.rows), *lower_spilled(request, limits)))


def _store_found(search: Search, sinks: list[Sink], place: Index, found: Best) -> None:
    """Lane 0 stores one of a row's values and indices."""
    job, eqn = search.job, search.eqn
    _, indices = eqn.outs
    with job.k.if_(job.k.lane().eq(0)):
        kept = job.indexer.split(search.row, search.space.kept)
        for sink in sinks:
            if sink.source.id == indices.id:
                sink.store(job, (*kept, place), found.at)
            else:
                col = job.indexer.clamp(found.at, search.space.cols)
                value = job.pull.value(eqn.ins[0], search.coords(col))
                sink.store(job, (*kept, place), value)
