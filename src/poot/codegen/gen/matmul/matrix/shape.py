"""The numbers of products on matrix units: tiles, operands, and which tile a group has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, needed_by
from poot.codegen.gen.matmul.parts import Products, Segment
from poot.ir.contiguity import is_summed_axis_in_a_row
from poot.ir.graph import Eqn, Graph, Var
from poot.planner.matrix import (
    CHUNK,
    PANEL,
    SLICE,
    Precision,
    exact_dtype,
    is_turned,
    left_pitch,
    parts_of,
    precision_of,
    source_of,
)
from poot.planner.request import Request

# The parameter of a left operand in parts.
PARTS = "parts"
CHUNKS = PANEL // CHUNK


@dataclass(frozen=True, slots=True)
class Side:
    """One operand. Its tile in workgroup memory has `extent` rows (columns of the product, for a
    right one) by PANEL terms, terms in a row; `is_turned`: terms by columns, in panels of PANEL
    columns. It is `parts` such tiles one after the other. `source` is the parameter that holds it
    as units take it, an input or PARTS, or None where it is computed."""

    var: Var
    product: Eqn
    is_left: bool
    is_turned: bool
    parts: int
    extent: int
    source: str | None

    @property
    def memory(self) -> tuple[int, int, int]:
        """Of `source`: batches, rows and the elements from one to the next."""
        shape = self.var.type.shape
        rows, row = shape[-2:] if self.is_left or self.is_turned else (shape[-1], shape[-2])
        return math.prod(shape[:-2]), rows, left_pitch(self.var) if self.source == PARTS else row

    @property
    def lines(self) -> int:
        """Rows of 128 bytes in a panel."""
        return PANEL if self.is_turned else self.extent

    @property
    def panels(self) -> int:
        return self.extent // PANEL if self.is_turned else 1

    @property
    def elems(self) -> int:
        """Elements of one part."""
        return self.extent * PANEL


@dataclass(frozen=True, slots=True)
class Tile:
    """A segment in tiles of m rows by n columns of each of its products. Tiles of rows go in
    sections of `section`; within one, all of them for a tile of columns, then the next.
    `is_swapped`: columns are the rows of the units' products."""

    segment: Segment
    m: int
    n: int
    section: int
    left: Side
    rights: tuple[Side, ...]
    is_swapped: bool = False

    @property
    def steps(self) -> int:
        """Steps of PANEL terms."""
        return -(-self.segment.depth // PANEL)

    @property
    def grid(self) -> tuple[int, int, int, int]:
        """Batches, sections, tiles of columns, tiles of rows in a section."""
        s = self.segment
        tiles = -(-s.rows // self.m)
        return s.batches, tiles // self.section, -(-s.cols // self.n), self.section

    @property
    def count(self) -> int:
        a, b, c, d = self.grid
        return a * b * c * d

    @property
    def right_elems(self) -> int:
        return sum(side.elems * side.parts for side in self.rights)

    @property
    def left_elems(self) -> int:
        return self.left.elems * self.left.parts


@dataclass(frozen=True, slots=True)
class Form:
    """All tiles of a request, and its precision."""

    tiles: tuple[Tile, ...]
    precision: Precision

    @staticmethod
    def of(request: Request, products: Products) -> Form:
        """The form that a request's schedule names."""
        body, get = request.body, request.schedule.get
        makers = {v.id: e for e in body.eqns for v in e.outs}
        every = [p for s in products.segments for p in s.products]
        precision = precision_of(makers, every)
        unit = PANEL if is_turned(makers, every) else min(SLICE, get("tile_n"))
        is_swapped = bool(dict(request.schedule.params).get("swapped"))
        tiles: list[Tile] = []
        for segment in products.segments:
            m, n = get("tile_m"), max(get("tile_n") // len(segment.products) // unit, 1) * unit
            m, n = (get("tile_n"), m) if is_swapped else (m, n)
            first = segment.products[0]
            left = _side(body, makers, first, precision.dtype, m, is_left=True)
            rights = tuple(
                _side(body, makers, p, precision.dtype, n, is_left=False) for p in segment.products
            )
            tiles.append(Tile(segment, m, n, get("section"), left, rights, is_swapped))
        return Form(tuple(tiles), precision)

    @property
    def count(self) -> int:
        return sum(t.count for t in self.tiles)

    @property
    def left_elems(self) -> int:
        """A step's left operand."""
        return max(t.left_elems for t in self.tiles)

    @property
    def right_elems(self) -> int:
        """A step's right operands."""
        return max(t.right_elems for t in self.tiles)

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(side for t in self.tiles for side in (t.left, *t.rights))

    def words(self, body: Graph) -> set[int]:
        """Ids of the inputs that are read to compute operands: by words, where they are narrow."""
        computed = [side.var for side in self.sides if side.source is None]
        names = {s.source for s in self.sides}
        copied = {i.var.id for n, i in enumerate(body.inputs) if f"in{n}" in names}
        return needed_by(body, computed) - copied


def _side(
    body: Graph, makers: dict[int, Eqn], product: Eqn, dtype: str, extent: int, *, is_left: bool
) -> Side:
    var = product.ins[0 if is_left else 1]
    turned = not is_left and not is_summed_axis_in_a_row(makers, product)
    parts = 1 if dtype == "f16" else parts_of(exact_dtype(makers, var))
    found = source_of(body, makers, var, dtype, is_swapped=not is_left and not turned)
    source = PARTS if is_left and found is None else None if found is None else f"in{found}"
    return Side(var, product, is_left, turned, parts, extent, source)


@dataclass(frozen=True, slots=True)
class Place:
    """Which tile of a segment: batch, and its first row and column."""

    batch: Index
    row: Index
    col: Index


def place_of(job: Job, tile: Tile, number: Index) -> Place:
    """The tile of that number in its segment."""
    batch, section, col, row = job.indexer.split(number, tile.grid)
    return Place(batch, (section * tile.section + row) * tile.m, col * tile.n)
