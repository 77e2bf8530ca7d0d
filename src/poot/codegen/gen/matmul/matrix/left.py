"""The left operand of products on matrix units, made once by a launch of its own where no input
holds it as units take it: prologue and all, cut into parts, rows of whole 16 bytes, zero past the
depth."""

from __future__ import annotations

import math

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.gen.matmul.matrix.fill import split
from poot.codegen.gen.matmul.matrix.shape import PARTS, Form
from poot.limits import DeviceLimits
from poot.planner.matrix import CHUNK, left_pitch
from poot.planner.request import Request

_THREADS = 128


def left_param(job: Job, form: Form, access: str) -> None:
    """The parameter of the left operand in parts, where it is one."""
    if form.tiles[0].left.source == PARTS:
        number = len(job.request.scratch) - 1
        job.k.param(PARTS, form.precision.dtype, job.request.scratch[number].elems, access)
        job.args.append(("scratch", number))


def left_calls(request: Request, limits: DeviceLimits, form: Form) -> tuple[KernelCall, ...]:
    """The launch that makes it: a lane for each eight neighbours of a row."""
    side = form.tiles[0].left
    if side.source != PARTS:
        return ()
    shape, pitch = side.var.type.shape, left_pitch(side.var)
    rows, depth = math.prod(shape[:-1]), shape[-1]
    total = rows * pitch // CHUNK
    job = open_job(request, limits, "matrix_left", _THREADS)
    k, ix = job.k, job.indexer
    only = needed_by(request.body, [side.var])
    job.bind_inputs(skip=(i for _, i in request.updates), vector=4, only=only, words=only)
    left_param(job, form, "w")
    groups = -(-total // _THREADS)
    with each_group(k, groups, limits) as group:
        number = ix.atom(group, groups) * _THREADS + ix.atom(k.lane(), _THREADS)
        with job.when(ix.below(number, total)):
            row, chunk = ix.divmod(ix.bounded(number, total), pitch // CHUNK)
            own = ix.split(row, shape[:-1])
            values = [
                k.select(
                    ix.below(chunk * CHUNK + e, depth),
                    job.pull.value(side.var, (*own, ix.bounded(chunk * CHUNK + e, depth))),
                    k.lit(0.0),
                )
                for e in range(CHUNK)
            ]
            at = ix.value(row * pitch + chunk * CHUNK)
            for n, part in enumerate(split(k, values, side.parts, form.precision.dtype)):
                k.store(PARTS, at + n * (rows * pitch), part)
    return (job.call(groups),)
