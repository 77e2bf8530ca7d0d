"""The order in which a segment's columns are dealt to groups: as they lie, or pairs that a rotation
turns side by side, so that both of a pair are one group's."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.parts import Segment, dependents
from poot.codegen.kir.build import I32, Val
from poot.errors import CapabilityError
from poot.ir.attrs import bool_attr
from poot.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Order:
    """`count` groups share `cols` columns, each so many or a unit fewer. `half` is how far the two
    of a pair lie apart: 0 where no pairs are turned, 1 where they are neighbours."""

    cols: int
    count: int
    half: int

    @property
    def unit(self) -> int:
        return 2 if self.half else 1

    @property
    def most(self) -> int:
        """Columns of a group at most."""
        return -(-self.cols // self.unit // self.count) * self.unit

    def share(self, job: Job, number: Index) -> tuple[Val, Val]:
        """A group's first place and the end of its places; the first groups have a unit more."""
        k = job.k
        least, more = divmod(self.cols // self.unit, self.count)
        at = job.indexer.value(number)
        first = (at * least + k.op("min", at, more)) * self.unit
        count = k.select(at < more, k.lit(least + 1, I32), k.lit(least, I32)) * self.unit
        return first, first + count

    def column(self, job: Job, place: Val) -> Index:
        """The column at a place."""
        ix = job.indexer
        at = ix.atom(place, self.cols)
        if self.half < 2:
            return at
        pair, side = ix.divmod(at, 2)
        head, own = ix.divmod(pair, self.half)
        found = head * (2 * self.half) + own + side * self.half
        return ix.atom(ix.value(found), self.cols)

    def place(self, job: Job, column: Index) -> Val:
        """Where a column comes in the order."""
        ix = job.indexer
        if self.half < 2:
            return ix.value(column)
        head, inner = ix.divmod(ix.atom(ix.value(column), self.cols), 2 * self.half)
        side, own = ix.divmod(inner, self.half)
        return ix.value((head * self.half + own) * 2 + side)


def half_of(body: Graph, segment: Segment) -> int:
    """How far the two of a pair lie apart among a segment's columns; 0 where no pairs are turned.
    Raises CapabilityError where rotations differ."""
    reached = {id for p in segment.products for id in dependents(body, p.out)}
    found = {
        1 if bool_attr(eqn, "interleaved") else eqn.ins[1].type.shape[-1]
        for eqn in body.eqns
        if eqn.op == "rope" and eqn.ins[0].id in reached
    }
    if len(found) > 1:
        raise CapabilityError("a product's columns are turned in pairs of two kinds")
    return found.pop() if found else 0
