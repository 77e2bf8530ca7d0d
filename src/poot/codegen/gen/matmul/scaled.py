"""Right operands that are codes * scale (+ minimum), scale and minimum the same for runs of terms.

The sum of a run is scale * sum(left * code) + minimum * sum(left): one scale a run in place of one
a term. That is another order of the same f32 sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.index import Coords
from poot.codegen.gen.job import Job
from poot.codegen.gen.pull import stretched
from poot.codegen.kir.build import Val
from poot.ir.attrs import ints_attr
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn, Graph, Var


@dataclass(frozen=True, slots=True)
class Scaled:
    """`path` leads back from the operand to the eqn that adds or scales; the operands of its sum
    and product by role."""

    path: tuple[Eqn, ...]
    codes: Var
    scale: Var
    minimum: Var | None
    add: Eqn | None
    mul: Eqn

    def coords(self, job: Job, coords: Coords) -> Coords:
        """The product's coordinates from the operand's."""
        for eqn in self.path:
            if eqn.op == "transpose":
                own = list(coords)
                for axis, source in enumerate(ints_attr(eqn, "perm")):
                    own[source] = coords[axis]
                coords = tuple(own)
            else:
                coords = job.indexer.reshape(coords, eqn.out.type.shape, eqn.ins[0].type.shape)
        return coords

    def code(self, job: Job, coords: Coords) -> Val:
        """A term's code, from the operand's coordinates."""
        own = stretched(self.codes.type, self.coords(job, coords))
        return job.pull.value(self.codes, own)

    def factors(self, job: Job, coords: Coords) -> tuple[Val, Val | None]:
        """(scale, minimum) of the run that a term is of."""
        own = self.coords(job, coords)
        scale = job.pull.value(self.scale, stretched(self.scale.type, own))
        if self.minimum is None:
            return scale, None
        return scale, job.pull.value(self.minimum, stretched(self.minimum.type, own))

    def is_run(self, job: Job, places: list[Coords]) -> bool:
        """Whether all these terms share scale and minimum."""
        small = [v for v in (self.scale, self.minimum) if v is not None]
        first = self.coords(job, places[0])
        return all(
            stretched(v.type, self.coords(job, c)) == stretched(v.type, first)
            for c in places[1:]
            for v in small
        )


def scaled_of(body: Graph, right: Var) -> Scaled | None:
    """How the operand is scaled, or None where it has no such form in f32."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    path: list[Eqn] = []
    eqn = makers.get(right.id)
    while eqn is not None and eqn.op in ("transpose", "reshape"):
        path.append(eqn)
        eqn = makers.get(eqn.ins[0].id)
    if eqn is None or eqn.out.type.dtype != "f32":
        return None
    if eqn.op == "mul":
        parts = _parts(makers, eqn)
        return parts and Scaled(tuple(path), *parts, None, None, eqn)
    if eqn.op != "add":
        return None
    for scaled, minimum in (eqn.ins, eqn.ins[::-1]):
        inner = makers.get(scaled.id)
        is_small = minimum.type.elems < scaled.type.elems
        if inner is not None and inner.op == "mul" and is_small:
            parts = _parts(makers, inner)
            if parts is not None and inner.out.type.shape == eqn.out.type.shape:
                return Scaled(tuple(path), *parts, minimum, eqn, inner)
    return None


def _parts(makers: dict[int, Eqn], mul: Eqn) -> tuple[Var, Var] | None:
    """(codes, scale) of a product: codes cast from integers, a smaller scale."""
    for codes, scale in (mul.ins, mul.ins[::-1]):
        made = makers.get(codes.id)
        while made is not None and made.op in ("reshape", "transpose"):
            made = makers.get(made.ins[0].id)
        is_cast = made is not None and made.op == "cast" and not is_float(made.ins[0].type.dtype)
        if is_cast and scale.type.elems < codes.type.elems:
            return codes, scale
    return None
