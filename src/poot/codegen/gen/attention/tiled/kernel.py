"""The kernel of a tiled attention: groups split into roles, each of which goes from block to
block of query rows by itself."""

from __future__ import annotations

from poot.codegen.attributes import TensorView
from poot.codegen.gen.attention.quad_rows import store
from poot.codegen.gen.attention.tiled.consumer import Consumer
from poot.codegen.gen.attention.tiled.copies import (
    KEYS,
    QUERY_MAP,
    SHARED_KEY_MAP,
    VALUES,
    declare,
    produce,
    start,
)
from poot.codegen.gen.attention.tiled.paged import produce_paged
from poot.codegen.gen.attention.tiled.shape import WARP, Form
from poot.codegen.gen.attention.tiled.turns import Turns
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.sinks import open_sinks
from poot.codegen.kir.build import Val
from poot.codegen.kir.nodes import Role
from poot.ir.graph import Var
from poot.limits import DeviceLimits
from poot.planner.request import Request


def lower_tiled(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch: as many groups as compute units, each with a block of query rows at a time."""
    form = Form.of(request)
    job = open_job(request, limits, "attention_tiled", form.threads, follows=False)
    job.k.subgroup = WARP
    job.bind_inputs(skip=(i for _, i in request.updates))
    sinks = open_sinks(job)
    turns = Turns(job, form)
    turns.declare()
    declare(job, form)
    start(job, form, turns)
    k = job.k
    with k.block_() as producing:
        make = produce_paged if form.is_paged else produce
        make(job, form, turns)
    with k.block_() as consuming:
        consumer = Consumer(job, form)

        def block(number: Val, turn: Val) -> None:
            consumer.begin(number, turn)
            consumer.run()
            store(consumer.rows(), sinks)

        turns.follow(block, leads=consumer.leads)
    least, most = form.registers
    k.roles(
        Role("producer", 0, 4, least, tuple(producing)),
        Role("consumer", 4, 4 * form.consumers, most, tuple(consuming)),
    )
    mapped = [(QUERY_MAP, "q")]
    if not form.is_paged:
        shared = [(SHARED_KEY_MAP, "k_shared")] if form.parts.shared else []
        mapped = [(KEYS.map, "k"), (VALUES.map, "v"), *shared, *mapped]
    maps = tuple(_view(job, form.parts.at[operand]) for _, operand in mapped)
    return Lowered((KernelCall(k.kernel(), (form.launched, 1, 1), tuple(job.args), maps=maps),))


def _view(job: Job, var: Var) -> tuple[tuple[str, int], TensorView]:
    """An operand [batch, heads, length, width] as a tensor of three axes."""
    batch, heads, length, width = var.type.shape
    (number,) = (n for n, i in enumerate(job.request.body.inputs) if i.var.id == var.id)
    return ("in", number), TensorView((width, length, batch * heads), (1, width, length * width))
