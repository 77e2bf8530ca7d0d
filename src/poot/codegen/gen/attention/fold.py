"""Several partial states as one: the largest maximum, each partial's weight, the sum of the
sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.attention.softmax import NEG_INF, weight_of
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import Val

At = Callable[[Index], Val]


@dataclass(frozen=True, slots=True)
class Folded:
    """A row's state: maximum, sum of weights, and the unnormalised value of a channel."""

    peak: Val
    total: Val
    channel: Callable[[Index], Val]


def fold(
    job: Job, count: int, lanes: int, peak: At, total: At, acc: Callable[[Index, Index], Val]
) -> Folded:
    """`peak(i)`, `total(i)`, `acc(i, c)` of partial i. Weights are made once, one a lane, in the
    workgroup array "peaks" (count floats), after all have read the maxima. A partial that saw
    nothing weighs 0."""
    k = job.k
    most = k.var(k.lit(NEG_INF), name="most")
    with k.for_(0, count, name="i") as i:
        k.set(most, k.op("nanmax", most, peak(job.indexer.atom(i, count))))
    largest = k.copy(most)
    k.barrier()
    with k.for_(k.lane(), count, lanes, name="i") as i:
        k.store("peaks", i, weight_of(k, peak(job.indexer.atom(i, count)), largest))
    k.barrier()

    def weighed(element: At) -> Val:
        sum_ = k.var(k.lit(0.0), name="sum")
        with k.for_(0, count, name="i") as i:
            k.set(sum_, k.fma(element(job.indexer.atom(i, count)), k.load("peaks", i), sum_))
        return k.copy(sum_)

    return Folded(largest, weighed(total), lambda c: weighed(lambda i: acc(i, c)))


def fold_lanes(job: Job, lanes: int) -> Folded:
    """The lanes of this workgroup, from their states in workgroup memory."""
    k, ix = job.k, job.indexer
    return fold(
        job,
        lanes,
        lanes,
        lambda i: k.load("peaks", ix.value(i)),
        lambda i: k.load("sums", ix.value(i)),
        lambda i, c: k.load("acc", ix.value(c * lanes + i)),
    )
