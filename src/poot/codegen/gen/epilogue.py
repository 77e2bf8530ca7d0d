"""From an anchor's element to the outputs' elements that it makes: the way forward through an
epilogue.

An epilogue keeps elements one for one: elementwise ops, reshapes and transposes. Given the anchor's
coordinates, the output's coordinates follow; the output's element is then pulled with the anchor's
value as a leaf.
"""

from __future__ import annotations

from poot.codegen.gen.index import Coords
from poot.codegen.gen.job import Job
from poot.errors import CapabilityError
from poot.ir.attrs import ints_attr
from poot.ir.graph import Eqn, Graph, Var


def path_between(body: Graph, start: Var, end: Var) -> tuple[Eqn, ...]:
    """The eqns that lead from one value to another, in order. Raises CapabilityError without a
    way."""
    came: dict[int, tuple[Eqn, Var]] = {}
    reached = {start.id}
    for eqn in body.eqns:
        source = next((v for v in eqn.ins if v.id in reached), None)
        if source is None or any(out.id == start.id for out in eqn.outs):
            continue
        for out in eqn.outs:
            reached.add(out.id)
            came[out.id] = (eqn, source)
    if end.id not in reached:
        raise CapabilityError(f"{end} does not depend on {start}, its region's anchor")
    steps: list[Eqn] = []
    at = end
    while at.id != start.id:
        eqn, at = came[at.id]
        steps.append(eqn)
    return tuple(reversed(steps))


def forward(job: Job, start: Var, end: Var, coords: Coords) -> Coords:
    """The coordinates in `end` of what stands at `coords` in `start`."""
    shape = start.type.shape
    for eqn in path_between(job.request.body, start, end):
        new = eqn.outs[0].type.shape
        if eqn.op == "transpose":
            coords = tuple(coords[p] for p in ints_attr(eqn, "perm"))
        elif eqn.op == "reshape" or (
            eqn.op == "broadcast" and eqn.ins[0].type.elems == eqn.outs[0].type.elems
        ):
            coords = job.indexer.reshape(coords, shape, new)
        elif new != shape and tuple(n for n in new if n != 1) != tuple(n for n in shape if n != 1):
            raise CapabilityError(
                f"{eqn.op} from {shape} to {new} makes no element for element epilogue", eqn.loc
            )
        elif new != shape:
            coords = job.indexer.reshape(coords, shape, new)
        shape = new
    return coords
