"""Schedule "block_topk": a group of `lanes` lanes finds the k best candidate blocks of a row.

Scores become whole numbers that order as the op does. Four rounds of eight bits each count how many
candidates share the digits found so far (a histogram in workgroup memory) and find the next digit
of the k-th best: the threshold, and how many equal to it are still taken. Then every lane counts
what it takes of its own run of blocks, the counts are summed over the lanes before it, and it
writes its blocks in order: ascending ids, the lower block first on ties. `stage` says that a row's
numbers lie in workgroup memory, so that scores are read once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Coords
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.rank import order_key
from poot.codegen.gen.selection.scan import RUN, scan, summed
from poot.codegen.gen.selection.visits import candidates
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import I32, U32, Val
from poot.errors import CapabilityError
from poot.ir.graph import Eqn
from poot.limits import DeviceLimits
from poot.planner.request import Request

DIGIT = 8
BINS = 1 << DIGIT


@dataclass(frozen=True, slots=True)
class Ranked:
    """One row at work: its coordinates, how many candidates it has, how many of them it takes."""

    job: Job
    eqn: Eqn
    lanes: int
    lead: Coords
    count: Val
    wanted: Val
    staged: bool

    @property
    def blocks(self) -> int:
        return self.eqn.ins[0].type.shape[3]

    def order(self, block: Val) -> Val:
        """i32 that orders as the score of a candidate does."""
        if self.staged:
            return self.job.k.load("keys", block)
        return self.computed(block)

    def computed(self, block: Val) -> Val:
        scores = self.eqn.ins[0]
        at = self.job.indexer.atom(block, self.blocks)
        value = self.job.pull.value(scores, (*self.lead, at))
        return order_key(self.job, value, scores.type.dtype)


def lower_best_blocks(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch, a group a row."""
    (eqn,) = (e for e in request.body.eqns if e.op == "block_topk")
    if [v.id for v in request.body.outputs] != [eqn.out.id]:
        raise CapabilityError("a step of block_topk gives its ids alone")
    get = request.schedule.get
    lanes, staged = get("lanes"), bool(get("stage"))
    job = open_job(request, limits, "block_topk", lanes)
    job.bind_inputs()
    (sink,) = open_sinks(job)
    k = job.k
    _declare(job, eqn.ins[0].type.shape[3] if staged else 0)
    batch, heads, rows, most = eqn.out.type.shape
    with each_group(k, batch * heads * rows, limits) as group:
        flat = job.indexer.atom(group, batch * heads * rows)
        b, h, r = job.indexer.split(flat, (batch, heads, rows))
        count = k.op("min", candidates(job, eqn, eqn.ins[1], (b, r)), eqn.ins[0].type.shape[3])
        row = Ranked(job, eqn, lanes, (b, h, r), count, k.op("min", count, most), staged)
        if staged:
            with k.for_(k.lane(), count, lanes, name="b") as block:
                k.store("keys", block, row.computed(block))
        threshold, equals = threshold_of(job, lanes, count, row.wanted, row.order)
        _write(row, sink, threshold, equals)
        with k.for_(k.lane(), most, lanes, name="i") as i, k.if_(i >= row.wanted):
            sink.store(job, (b, h, r, job.indexer.atom(i, most)), k.lit(-1, I32))
    return Lowered((job.call(batch * heads * rows),))


def _declare(job: Job, staged: int) -> None:
    if staged:
        job.k.shared("keys", "i32", staged)


def threshold_of(
    job: Job, lanes: int, count: Val, wanted: Val, order: Callable[[Val], Val]
) -> tuple[Val, Val]:
    """(the order of the last of the `wanted` first of 0 .. count - 1, how many equal to it are
    taken). The group's lanes work together: control is uniform, and what `order` reads is there."""
    k = job.k
    k.shared("bins", "i32", BINS)
    k.shared("runs", "i32", RUN)
    digits = k.var(k.lit(0, U32), name="digits")
    left = k.var(wanted, name="left")
    for shift in range(32 - DIGIT, -1, -DIGIT):
        with k.for_(k.lane(), BINS, lanes, name="i") as i:
            k.store("bins", i, 0)
        k.barrier()
        found = k.copy(digits)
        with k.for_(k.lane(), count, lanes, name="b") as block:
            word = k.bitcast(order(block), U32) ^ 0x80000000
            digit = k.bitcast((word >> shift) & (BINS - 1), I32)
            if shift + DIGIT == 32:
                _count(job, digit)
            else:
                with k.if_((word >> (shift + DIGIT)).eq(found)):
                    _count(job, digit)
        k.barrier()
        with k.for_(k.lane(), RUN, lanes, name="i") as i:
            k.store("runs", i, summed(job, "bins", i * RUN, RUN))
        k.barrier()
        run, after = _descend(job, "runs", k.lit(0, I32), k.copy(left))
        bin_, after = _descend(job, "bins", run * RUN, after)
        k.set(digits, (found << DIGIT) | k.bitcast(run * RUN + bin_, U32))
        k.set(left, after)
        k.barrier()
    return k.bitcast(k.copy(digits) ^ 0x80000000, I32), k.copy(left)


def _count(job: Job, digit: Val) -> None:
    job.k.op("atomic", digit, 1, type=I32, mem="bins", kind="add")


def _descend(job: Job, name: str, first: Val, left: Val) -> tuple[Val, Val]:
    """(the place, from the highest of RUN counts down, where `left` of them are reached; how many
    are left of those in it). There are as many as that in all."""
    k = job.k
    place = k.var(k.lit(-1, I32), name="place")
    rest = k.var(left, name="rest")
    with k.for_(0, RUN, name="j") as j:
        here = k.lit(RUN - 1, I32) - j
        many = k.load(name, first + here)
        is_open = place < 0
        is_here = is_open & (rest <= many)
        k.set(rest, k.select(is_open & ~is_here, rest - many, rest))
        k.set(place, k.select(is_here, here, place))
    return k.op("max", k.copy(place), 0), k.copy(rest)


def _write(row: Ranked, sink: Sink, threshold: Val, equals: Val) -> None:
    """Each lane's share of the blocks that are taken, at its own place among them."""
    job, k, lanes = row.job, row.job.k, row.lanes
    lane, most = k.lane(), row.eqn.out.type.shape[3]
    size = (row.count + (lanes - 1)) // lanes
    first = lane * size
    end = k.op("min", first + size, row.count)
    more, same = k.var(k.lit(0, I32), name="more"), k.var(k.lit(0, I32), name="same")

    def look(block: Val) -> tuple[Val, Val]:
        order = row.order(block)
        return order > threshold, order.eq(threshold)

    with k.for_(first, end, name="b") as block:
        is_more, is_same = look(block)
        k.set(more, more + k.cast(is_more, "i32"))
        k.set(same, same + k.cast(is_same, "i32"))
    before = (scan(job, "more", k.copy(more), lanes), scan(job, "same", k.copy(same), lanes))
    at, equal = (k.var(v.before, name="at") for v in before)
    with k.for_(first, end, name="b") as block:
        is_more, is_same = look(block)
        place = at + k.op("min", equal, equals)
        with k.if_(is_more | (is_same & (equal < equals))):
            sink.store(job, (*row.lead, job.indexer.atom(k.copy(place), most)), block)
        k.set(at, at + k.cast(is_more, "i32"))
        k.set(equal, equal + k.cast(is_same, "i32"))
