"""Schedule "streaming": one workgroup of `lanes` lanes a query row, keys dealt to lanes in turn.

After the lanes have run over their keys, every lane folds the lanes' states over its share of the
output channels. `stage_q` says that the query row lies in workgroup memory too.
"""

from __future__ import annotations

from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import fold_lanes
from poot.codegen.gen.attention.keys import key_range
from poot.codegen.gen.attention.parts import parts_in
from poot.codegen.gen.attention.rows import declare_state, lane_pass, open_row
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.job import open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.sinks import open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.limits import DeviceLimits
from poot.planner.request import Request


def lower_streaming(request: Request, limits: DeviceLimits) -> Lowered:
    """The attention in one launch, and one more for each output that is packed into words."""
    parts = parts_in(request.body)
    lanes = request.schedule.get("lanes")
    job = open_job(request, limits, "attention_streaming", lanes)
    job.bind_inputs(skip=(i for _, i in request.updates), vector=4)
    sinks = open_sinks(job)
    declare_state(job, parts, lanes)
    rows = parts.batch * parts.heads * parts.rows
    with each_group(job.k, rows, limits) as group:
        row = open_row(job, parts, job.indexer.atom(group, rows), lanes)
        keys = key_range(job, parts, row.where[0], row.where[2])
        lane_pass(job, parts, row, lanes, keys)
        finish(job, parts, row.where, fold_lanes(job, lanes), lanes, sinks)
    return Lowered((job.call(rows), *lower_spilled(request, limits)))
