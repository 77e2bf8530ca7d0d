"""From a folded state to results: sink, log-sum-exp, division, and the epilogue's stores."""

from __future__ import annotations

from poot.codegen.gen.attention.fold import Folded
from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.attention.rows import Where
from poot.codegen.gen.attention.softmax import NEG_INF, step
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, needed_by
from poot.codegen.gen.math import is_neg_inf, log, nan
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import Val


def finish(
    job: Job, parts: Parts, where: Where, state: Folded, lanes: int, sinks: list[Sink]
) -> None:
    """Stores a row: every lane its share of the channels, one lane the log-sum-exp.

    A row without a visible key is 0/0, NaN; with a sink it is 0. The log-sum-exp leaves the sink
    out and is -inf where no key is visible."""
    k = job.k
    is_empty = is_neg_inf(k, state.peak)
    if parts.lse is not None:
        lse = k.select(is_empty, k.lit(NEG_INF), state.peak + log(k, state.total))
        with k.if_(k.lane().eq(0)):
            store_log_sum(job, parts, where, lse, sinks)
    shrink, total = k.lit(1.0), state.total
    if "sink" in parts.at:
        logit = job.pull.value(parts.at["sink"], (where[1],))
        got = step(k, state.peak, logit)
        shrink = k.select(is_empty, k.lit(0.0), got.shrink)
        total = k.fma(total, shrink, got.weight)
    with k.for_(k.lane(), parts.value_width, lanes, name="c") as c:
        channel = job.indexer.atom(c, parts.value_width)
        value = state.channel(channel) * shrink / total
        value = k.select(total.eq(0.0), nan(k), value)
        store_channel(job, parts, where, channel, value, sinks)


def store_channel(
    job: Job, parts: Parts, where: Where, channel: Index, value: Val, sinks: list[Sink]
) -> None:
    """Stores one channel of a row, by every sink that is made of the weighted values."""
    rounded = job.numbers.rounded(value, parts.out.type.dtype)
    job.pull.leaves[parts.out.id] = lambda coords: rounded
    for sink in sinks:
        if not _is_of_lse(job, parts, sink):
            coords = forward(job, parts.out, sink.source, (*where, channel))
            sink.store(job, coords, job.pull.value(sink.source, coords))


def store_log_sum(job: Job, parts: Parts, where: Where, lse: Val, sinks: list[Sink]) -> None:
    """Stores a row's log-sum-exp, by every sink that is made of it alone; one lane asks."""
    assert parts.lse is not None
    job.pull.leaves[parts.lse.id] = lambda coords: lse
    for sink in sinks:
        if _is_of_lse(job, parts, sink):
            coords = forward(job, parts.lse, sink.source, where)
            sink.store(job, coords, job.pull.value(sink.source, coords))


def _is_of_lse(job: Job, parts: Parts, sink: Sink) -> bool:
    """Whether an output is made of the log-sum-exp, not of the weighted values."""
    if parts.lse is None:
        return False
    return parts.out.id not in needed_by(job.request.body, [sink.source])
