"""The kernel of a tiled attention: one group a tile of query rows, split into roles."""

from __future__ import annotations

from poot.codegen.attributes import TensorView
from poot.codegen.gen.attention.tiled.consumer import Consumer
from poot.codegen.gen.attention.tiled.copies import (
    KEYS,
    QUERY_MAP,
    VALUES,
    declare,
    produce,
    start,
)
from poot.codegen.gen.attention.tiled.results import store
from poot.codegen.gen.attention.tiled.shape import WARP, Form, block_of
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.sinks import open_sinks
from poot.codegen.kir.nodes import Role
from poot.ir.graph import Var
from poot.limits import DeviceLimits
from poot.planner.request import Request


def lower_tiled(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch: a group for each tile of query rows of each head."""
    form = Form.of(request)
    job = open_job(request, limits, "attention_tiled", form.threads)
    job.k.subgroup = WARP
    job.bind_inputs(skip=(i for _, i in request.updates))
    sinks = open_sinks(job)
    declare(job, form)
    start(job, form)
    block = block_of(job, form)
    k = job.k
    with k.block_() as producing:
        produce(job, form, block)
    with k.block_() as consuming:
        consumer = Consumer(job, form, block)
        consumer.run()
        store(consumer, sinks)
    least, most = form.registers
    k.roles(
        Role("producer", 0, 4, least, tuple(producing)),
        Role("consumer", 4, 4 * form.consumers, most, tuple(consuming)),
    )
    maps = tuple(
        _view(job, form, name, form.parts.at[operand])
        for name, operand in ((KEYS.map, "k"), (VALUES.map, "v"), (QUERY_MAP, "q"))
    )
    return Lowered((KernelCall(k.kernel(), (form.groups, 1, 1), tuple(job.args), maps=maps),))


def _view(job: Job, form: Form, name: str, var: Var) -> tuple[tuple[str, int], TensorView]:
    """An operand [batch, heads, length, width] as a tensor of three axes."""
    batch, heads, length, width = var.type.shape
    (number,) = (n for n, i in enumerate(job.request.body.inputs) if i.var.id == var.id)
    return ("in", number), TensorView((width, length, batch * heads), (1, width, length * width))
