"""Sums over the lanes of a workgroup that come before each one."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.job import Job
from poot.codegen.kir.build import I32, Val

# Lanes that are summed together before all are.
RUN = 16


@dataclass(frozen=True, slots=True)
class Scanned:
    """Of one number a lane: the sum over the lanes before this one, and over all."""

    before: Val
    all: Val


def scan(job: Job, name: str, mine: Val, lanes: int) -> Scanned:
    """The sums of an i32 a lane. Uses the workgroup arrays `name` and `name`_runs, and has two
    barriers: control is uniform. A later use of the same arrays stands behind another barrier."""
    k, lane = job.k, job.k.lane()
    runs = -(-lanes // RUN)
    k.need_shared(name, "i32", lanes)
    k.need_shared(f"{name}_runs", "i32", runs)
    k.store(name, lane, mine)
    k.barrier()
    with k.for_(lane, runs, lanes, name="i") as i:
        k.store(f"{name}_runs", i, summed(job, name, i * RUN, min(RUN, lanes)))
    k.barrier()
    own = lane // RUN
    before, total = (k.var(k.lit(0, I32), name=n) for n in ("before", "all"))
    with k.for_(0, runs, name="j") as j:
        run = k.load(f"{name}_runs", j)
        k.set(before, before + k.select(j < own, run, k.lit(0, I32)))
        k.set(total, total + run)
    with k.for_(0, min(RUN, lanes), name="j") as j:
        at = own * RUN + j
        k.set(before, before + k.select(at < lane, k.load(name, at), k.lit(0, I32)))
    return Scanned(k.copy(before), k.copy(total))


def summed(job: Job, name: str, first: Val, count: int) -> Val:
    """The sum of `count` numbers of a workgroup array from `first` on."""
    k = job.k
    total = k.var(k.lit(0, I32), name="sum")
    with k.for_(0, count, name="j") as j:
        k.set(total, total + k.load(name, first + j))
    return k.copy(total)
