"""A tile of query rows at work in a workgroup: where its rows stand, and their running states.

Row n of a tile is query head n % heads of query row n // heads. Queries, scores, maxima and sums
lie in workgroup memory; the weighted values in registers, a lane's channels of every row.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.attention.rows import Where
from poot.codegen.gen.attention.softmax import NEG_INF
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.selection.visits import limit_of
from poot.codegen.kir.build import BOOL, I32, Val

# Rows whose dot products a lane holds together.
STRIP = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: batch row, key head, first query head, first query row."""

    job: Job
    parts: Parts
    b: Index
    kv: Index
    head: Index
    row: Index

    def _get(self, name: str) -> int:
        return self.job.request.schedule.get(name)

    @property
    def lanes(self) -> int:
        return self._get("lanes")

    @property
    def heads(self) -> int:
        return self._get("heads")

    @property
    def rows(self) -> int:
        return self._get("rows")

    @property
    def block(self) -> int:
        return self._get("block")

    @property
    def members(self) -> int:
        return self.heads * self.rows

    @property
    def stride(self) -> int:
        """Floats from one staged query to the next."""
        return -(-self.parts.width // 4) * 4

    @property
    def strip(self) -> int:
        return min(STRIP, self.members)

    @property
    def shares(self) -> int:
        """Into how many parts of the width a dot product is shared out."""
        return self.lanes // self.block

    def query_row(self, row: Index) -> tuple[Index, Val]:
        """(a query row of the tile, clamped; whether it is there)."""
        ix = self.job.indexer
        at = self.row + row
        if at.high < self.parts.rows:
            return at, self.job.k.lit(True, BOOL)
        value = ix.value(at)
        return ix.bounded(at, self.parts.rows), value < self.parts.rows

    def where(self, n: Index) -> tuple[Where, Val]:
        """(batch row, query head, query row) of row n, and whether it is there."""
        row, member = self.job.indexer.divmod(n, self.heads)
        at, is_there = self.query_row(row)
        return (self.b, self.head + member, at), is_there


def declare(tile: Tile, splits: int) -> None:
    """The workgroup arrays of a tile. Only a tile without splits hands its results over in one."""
    k, members = tile.job.k, tile.members
    k.shared("queries", "f32", members * tile.stride)
    k.shared("dots", "f32", tile.strip * tile.lanes)
    k.shared("weights", "f32", members * tile.block)
    k.shared("keys", "i32", tile.block)
    if tile.rows > 1:
        k.shared("marks", "i32", tile.block)
        k.shared("limits", "i32", tile.rows)
    for name in ("peaks", "sums", "shrinks"):
        k.shared(name, "f32", members)
    if splits == 1:
        k.shared("out", "f32", tile.parts.value_width)


def stage(tile: Tile) -> None:
    """Queries into workgroup memory, zeros for rows that are not there, and empty states."""
    job, k, ix = tile.job, tile.job.k, tile.job.indexer
    width, members = tile.parts.width, tile.members
    with k.for_(k.lane(), members * width, tile.lanes, name="e") as e:
        n, d = ix.divmod(ix.atom(e, members * width), width)
        where, is_there = tile.where(n)
        value = k.var(k.lit(0.0), name="q")
        with job.when(is_there):
            k.set(value, job.pull.value(tile.parts.at["q"], (*where, d)))
        k.store("queries", ix.value(n * tile.stride + d), value)
    with k.for_(k.lane(), members, tile.lanes, name="n") as n:
        k.store("peaks", n, NEG_INF)
        k.store("sums", n, 0.0)
    if tile.rows > 1:
        with k.for_(k.lane(), tile.rows, tile.lanes, name="r") as r:
            at, is_there = tile.query_row(ix.atom(r, tile.rows))
            limit = limit_of(job, tile.parts, tile.b, at)
            k.store("limits", r, k.select(is_there, limit, k.lit(0, I32)))
    k.barrier()


@dataclass(frozen=True, slots=True)
class States:
    """The weighted values of a lane's channels: sums[n][m] is row n's of channel lane + m *
    lanes."""

    tile: Tile
    sums: tuple[tuple[Val, ...], ...]

    def channel(self, m: int) -> tuple[Index, Val]:
        """(the lane's m-th channel, whether it is there)."""
        job, width = self.tile.job, self.tile.parts.value_width
        value = job.k.lane() + m * self.tile.lanes
        is_there = job.k.lit(True, BOOL) if (m + 1) * self.tile.lanes <= width else value < width
        return job.indexer.atom(value, width), is_there


def open_states(tile: Tile) -> States:
    """Sums of nothing."""
    k = tile.job.k
    many = -(-tile.parts.value_width // tile.lanes)
    rows = range(tile.members)
    return States(
        tile, tuple(tuple(k.var(k.lit(0.0), name="o") for _ in range(many)) for _ in rows)
    )
