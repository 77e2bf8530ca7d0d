"""Operands of a step as the plan lays them: which a kernel needs, and Weights in panels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.codegen.gen.index import Coords, Index, flat
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.parts import Products
from poot.codegen.gen.pull import Leaf
from poot.codegen.kir.build import Val
from poot.ir.dtypes import is_integer
from poot.ir.graph import TensorType, Var
from poot.planner.layouts import panel_elems
from poot.planner.request import Request
from poot.planner.spills import new_part


def needed(
    request: Request, roots: Sequence[Var], outputs: Sequence[int], products: Products
) -> set[int]:
    """Ids of the values that make `roots`, and these outputs from their products' results on."""
    body = request.body
    stops = {p.out.id for s in products.segments for p in s.products}
    need = {v.id for v in roots}
    updates = dict(request.updates)
    for n in outputs:
        need.add(new_part(body, request.updates, n).id)
        if n in updates:
            need |= {v.id for e in body.eqns if body.outputs[n] in e.outs for v in e.ins[1:]}
    for eqn in reversed(body.eqns):
        made = {v.id for v in eqn.outs}
        if made & need and not made & stops:
            need |= {v.id for v in eqn.ins}
    return need


def bind_operands(job: Job, need: set[int]) -> None:
    """A parameter for each input among the needed values, as its layout says it lies. Inputs that
    are updated in place are the sinks'."""
    request = job.request
    updated = {at for _, at in request.updates}
    packed = [n for n, layout in enumerate(request.layouts) if layout.kind == "panels"]
    job.bind_inputs(skip=(*packed, *updated), only=need)
    for n in packed:
        i = request.body.inputs[n]
        if i.var.id in need and i.var.type.elems:
            job.pull.leaves[i.var.id] = _panel_leaf(job, n, i.var.type)


def _panel_leaf(job: Job, n: int, type: TensorType) -> Leaf:
    axis, width = job.request.layouts[n].params
    elems = panel_elems(type, (axis, width))
    memory = job.memory(f"in{n}", TensorType(type.dtype, (elems,)), "r", ("in", n))
    if is_integer(type.dtype):  # codes: so much is computed for each that caches fall behind
        memory.cache = "stream"
    others = tuple(extent for at, extent in enumerate(type.shape) if at != axis)

    def leaf(coords: Coords) -> Val:
        panel, place = job.indexer.divmod(coords[axis], width)
        rest = flat(tuple(c for at, c in enumerate(coords) if at != axis), others)
        where: Index = (panel * math.prod(others) + rest) * width + place
        return memory.load(where)

    return leaf
