"""Narrow results of kernels whose lanes can't own whole words: made wide in scratch, then packed
by a second launch.

The planner gives such an output a scratch of its held type (`planner.schedules.spilled`): the
first launch stores there what the output, or the new part of a State update, is made of; the
second packs and places it.
"""

from __future__ import annotations

from poot.codegen.gen.elementwise import store_items
from poot.codegen.gen.job import maker_of, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.gen.sinks import open_sinks, source_of
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits
from poot.planner.request import Request
from poot.planner.spills import spilled, wide_dtype

THREADS = 64


def lower_spilled(request: Request, limits: DeviceLimits) -> tuple[KernelCall, ...]:
    """The packing launches: one a spilled output."""
    calls: list[KernelCall] = []
    for at, n in enumerate(spilled(request.body, request.anchor, request.updates, limits)):
        job = open_job(request, limits, "pack", min(THREADS, limits.threads))
        source = source_of(request, n)
        wide = TensorType(wide_dtype(source.type.dtype), source.type.shape)
        memory = job.memory("wide", wide, "r", ("scratch", at))
        job.bind_inputs(skip=(i for _, i in request.updates), only=_needed(request, n))
        job.pull.bind(source, memory)
        sinks = open_sinks(job, only=(n,), packed=True)
        calls.append(store_items(job, sinks, 1))
    return tuple(calls)


def _needed(request: Request, n: int) -> set[int]:
    """Ids of the values that place output n: an update's start or rows, and what makes them."""
    update = maker_of(request.body, request.body.outputs[n])
    if n not in dict(request.updates) or update is None:
        return set()
    return needed_by(request.body, update.ins[2:3])
