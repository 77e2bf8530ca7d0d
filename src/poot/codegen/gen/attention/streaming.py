"""Schedule "streaming": one workgroup of `lanes` lanes a query row, keys dealt to lanes in turn.

Each lane keeps its own running (maximum, sum) in registers and its weighted values in workgroup
memory, channel by channel with lanes adjacent (no private array is indexed at run time). One
barrier,
then every lane folds the lanes' partials over its share of the output channels. `stage_q` says that
the query
row lies in workgroup memory too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.attention.keys import Keys, key_range
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.codegen.gen.attention.score import dot, each_block, score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_of
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.math import is_neg_inf, log, nan
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.limits import DeviceLimits
from poot.planner.request import Request

Where = tuple[Index, Index, Index]


@dataclass(frozen=True, slots=True)
class Row:
    """One query row at work: its place, and its element d."""

    where: Where
    keys: Keys
    query: Callable[[Index], Val]


def lower_streaming(request: Request, limits: DeviceLimits) -> Lowered:
    """The attention in one launch, and one more for each output that is packed into words."""
    parts = parts_of(attention_eqn(request.body))
    lanes = request.schedule.get("lanes")
    job = open_job(request, limits, "attention_streaming", lanes)
    job.bind_inputs(skip=(i for _, i in request.updates), vector=4)
    store = _sink_store(job, parts)
    k = job.k
    k.shared("acc", "f32", parts.value_width * lanes)
    k.shared("peaks", "f32", lanes)
    k.shared("sums", "f32", lanes)
    rows = parts.batch * parts.heads * parts.rows
    with each_group(k, rows, limits) as group:
        index = job.indexer.atom(group, rows)
        b, h, r = job.indexer.split(index, (parts.batch, parts.heads, parts.rows))
        head, _ = job.indexer.divmod(h, parts.repeat)
        row = Row((b, h, r), Keys(job, parts, b, head), _query(job, parts, (b, h, r), lanes))
        _lane_pass(job, parts, row, lanes)
        k.barrier()
        _combine(job, parts, row, lanes, store)
    return Lowered((job.call(rows), *lower_spilled(request, limits)))


def _query(job: Job, parts: Parts, where: Where, lanes: int) -> Callable[[Index], Val]:
    """Element d of the query row: from workgroup memory where the schedule stages it."""
    q = parts.at["q"]
    if not job.request.schedule.get("stage_q"):
        return lambda d: job.pull.value(q, (*where, d))
    k = job.k
    k.shared("query", "f32", parts.width)
    with k.for_(k.lane(), parts.width, lanes, name="d") as d:
        at = job.indexer.atom(d, parts.width)
        k.store("query", d, job.pull.value(q, (*where, at)))
    k.barrier()
    return lambda d: k.load("query", job.indexer.value(d))


def _lane_pass(job: Job, parts: Parts, row: Row, lanes: int) -> None:
    """A lane's own keys: its running maximum, sum and weighted values."""
    k, lane = job.k, job.k.lane()
    peak = k.var(k.lit(NEG_INF), name="peak")
    total = k.var(k.lit(0.0), name="total")
    with k.for_(0, parts.value_width, name="c") as c:
        k.store("acc", c * lanes + lane, 0.0)
    first, end = key_range(job, parts, row.where[0], row.where[2])
    with k.for_(first + lane, end, lanes, name="t") as t:
        key = job.indexer.atom(t, parts.keys)
        product = dot(job, parts, row.query, row.keys, key)
        s = score(job, parts, product, row.where, key)
        got = step(k, k.copy(peak), s)
        k.set(total, k.fma(total, got.shrink, got.weight))
        k.set(peak, got.peak)

        def add(channels: list[Index]) -> None:
            for c in channels:
                at = job.indexer.value(c * lanes) + lane
                v = row.keys.value(key, c)
                k.store("acc", at, k.fma(k.load("acc", at), got.shrink, got.weight * v))

        each_block(job, parts.value_width, add)
    k.store("peaks", lane, peak)
    k.store("sums", lane, total)


Store = Callable[[Where, Index, Val, "Val | None"], None]


def _combine(job: Job, parts: Parts, row: Row, lanes: int, store: Store) -> None:
    """The lanes' partials as one row: every lane folds its share of the channels."""
    k = job.k
    peaks = [k.load("peaks", i) for i in range(lanes)]
    most = peaks[0]
    for p in peaks[1:]:
        most = k.op("nanmax", most, p)
    weights = [weight_of(k, p, most) for p in peaks]
    total = k.load("sums", 0) * weights[0]
    for i in range(1, lanes):
        total = k.fma(k.load("sums", i), weights[i], total)
    lse: Val | None = None
    if parts.lse is not None:
        lse = k.select(is_neg_inf(k, most), k.lit(NEG_INF), most + log(k, total))
    shrink = k.lit(1.0)
    if "sink" in parts.at:
        logit = job.pull.value(parts.at["sink"], (row.where[1],))
        got = step(k, most, logit)
        shrink = k.select(is_neg_inf(k, most), k.lit(0.0), got.shrink)
        total = k.fma(total, shrink, got.weight)
    with k.for_(k.lane(), parts.value_width, lanes, name="c") as c:
        value = k.load("acc", c * lanes) * weights[0]
        for i in range(1, lanes):
            value = k.fma(k.load("acc", c * lanes + i), weights[i], value)
        value = k.select(total.eq(0.0), nan(k), value * shrink / total)
        store(row.where, job.indexer.atom(c, parts.value_width), value, lse)


def _rounded(job: Job, parts: Parts, value: Val) -> Val:
    return job.numbers.rounded(value, parts.out.type.dtype)


def _sink_store(job: Job, parts: Parts) -> Store:
    """Stores through the epilogue, at the outputs' own elements."""
    sinks = open_sinks(job)

    def store(where: Where, c: Index, value: Val, lse: Val | None) -> None:
        rounded = _rounded(job, parts, value)
        job.pull.leaves[parts.out.id] = lambda coords: rounded
        for sink in sinks:
            if parts.lse is not None and lse is not None and _is_lse(job, parts, sink):
                _store_lse(job, parts, sink, where, c, lse)
                continue
            coords = forward(job, parts.out, sink.source, (*where, c))
            sink.store(job, coords, job.pull.value(sink.source, coords))

    return store


def _is_lse(job: Job, parts: Parts, sink: Sink) -> bool:
    return parts.lse is not None and sink.source.id == parts.lse.id


def _store_lse(job: Job, parts: Parts, sink: Sink, where: Where, c: Index, lse: Val) -> None:
    """One lane stores the row's log-sum-exp: the one that has channel 0."""
    if c.literal is not None:
        sink.store(job, where, lse)
        return
    with job.k.if_(job.indexer.value(c).eq(0)):
        sink.store(job, where, lse)
