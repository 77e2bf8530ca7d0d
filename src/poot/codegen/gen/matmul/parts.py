"""What a matmul region is made of: products that share a left operand, the folds before them, and
which products make which outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job
from poot.errors import CapabilityError
from poot.ir.graph import Eqn, Graph, Var
from poot.planner.request import Request
from poot.planner.spills import new_part


@dataclass(frozen=True, slots=True)
class Segment:
    """Products of one shape that some outputs need together, and those outputs' numbers."""

    products: tuple[Eqn, ...]
    outputs: tuple[int, ...]

    @property
    def batch(self) -> tuple[int, ...]:
        return self.products[0].out.type.shape[:-2]

    @property
    def rows(self) -> int:
        return self.products[0].out.type.shape[-2]

    @property
    def cols(self) -> int:
        return self.products[0].out.type.shape[-1]

    @property
    def depth(self) -> int:
        """How many products an element sums."""
        return self.products[0].ins[0].type.shape[-1]

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    def own(self, job: Job, batch: Index, row: Index, col: Index) -> Coords:
        """An element's coordinates in the products' results."""
        return (*job.indexer.split(batch, self.batch), row, col)


@dataclass(frozen=True, slots=True)
class Products:
    """A region's segments, the folds that its left operand needs, in order, and the outputs that
    no product reaches (they are made by a launch of their own)."""

    segments: tuple[Segment, ...]
    folds: tuple[Eqn, ...]
    aside: tuple[int, ...]


def products_of(request: Request) -> Products:
    """Takes a region apart. Raises CapabilityError where it is not of the form that regions
    promise."""
    body = request.body
    products = [e for e in body.eqns if e.op == "matmul"]
    if not products:
        raise CapabilityError("a step anchored by matmul has none")
    left = products[0].ins[0]
    for p in products:
        if p.ins[0].id != left.id:
            raise CapabilityError("products of one step that differ in their left operand", p.loc)
    reached = {p.out.id: dependents(body, p.out) for p in products}
    groups: list[tuple[list[Eqn], list[int]]] = []
    aside: list[int] = []
    for n in range(len(body.outputs)):
        part = new_part(body, request.updates, n)
        mine = [p for p in products if part.id in reached[p.out.id]]
        if mine:
            _join(groups, mine, n)
        elif part.type.elems:
            aside.append(n)
    segments = tuple(_segment(eqns, outs) for eqns, outs in groups)
    folds = tuple(e for e in body.eqns if e.op == "reduce")
    _check_folds(left, folds)
    return Products(segments, folds, tuple(aside))


def dependents(body: Graph, var: Var) -> set[int]:
    """Ids of a value and of all that follow from it."""
    reached = {var.id}
    for eqn in body.eqns:
        if any(v.id in reached for v in eqn.ins):
            reached.update(v.id for v in eqn.outs)
    return reached


def _join(groups: list[tuple[list[Eqn], list[int]]], mine: list[Eqn], output: int) -> None:
    """Adds an output and its products, merging the groups that already hold one of them."""
    ids = {p.out.id for p in mine}
    touching = [g for g in groups if ids & {p.out.id for p in g[0]}]
    eqns = {p.out.id: p for g in touching for p in g[0]} | {p.out.id: p for p in mine}
    outs = [n for g in touching for n in g[1]] + [output]
    for g in touching:
        groups.remove(g)
    groups.append(([eqns[i] for i in sorted(eqns)], sorted(outs)))


def _segment(eqns: list[Eqn], outs: list[int]) -> Segment:
    shape = eqns[0].out.type.shape
    for e in eqns:
        if e.out.type.shape != shape:
            raise CapabilityError("an output needs products of different shapes", e.loc)
    return Segment(tuple(eqns), tuple(outs))


def _check_folds(left: Var, folds: tuple[Eqn, ...]) -> None:
    rows = math.prod(left.type.shape[:-1])
    for fold in folds:
        if fold.out.type.elems != rows:
            raise CapabilityError(
                f"a fold of {fold.out.type.elems} rows before a product of {rows} rows", fold.loc
            )


def left_coords(segment: Segment, own: Coords, k: Index) -> Coords:
    """Where the left operand is asked for: the element's row at column k."""
    left = segment.products[0].ins[0].type
    return (*stretched_batch(left.shape, own), own[-2], k)


def right_coords(product: Eqn, own: Coords, k: Index) -> Coords:
    return (*stretched_batch(product.ins[1].type.shape, own), k, own[-1])


def stretched_batch(shape: tuple[int, ...], own: Coords) -> Coords:
    """The batch coordinates of an operand that may broadcast over the result's."""
    lead = len(shape) - 2
    batch = own[:-2]
    return tuple(
        c if n != 1 else c * 0
        for n, c in zip(shape[:lead], batch[len(batch) - lead :], strict=True)
    )


def row_number(shape: tuple[int, ...], coords: Coords) -> Index:
    """The row-major number of a row of a value, from the coordinates of one of its elements."""
    total, step = Index(), 1
    for n, c in zip(reversed(shape[:-1]), reversed(coords[:-1]), strict=True):
        total = total + c * step if n != 1 else total
        step *= n
    return total
