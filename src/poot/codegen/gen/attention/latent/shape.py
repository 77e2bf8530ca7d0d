"""The numbers of a latent decode: its units and splits, and where its rows lie."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.team import quotient
from poot.codegen.gen.attention.keys import key_range
from poot.codegen.gen.attention.parts import Parts, parts_in
from poot.codegen.gen.index import ZERO
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import I32, Val
from poot.planner.latent import HEADS, PANEL, SIDES, TILE, Rows, rows_of
from poot.planner.request import Request

WARP, WARPGROUP = 32, 128
THREADS = SIDES * WARPGROUP


@dataclass(frozen=True, slots=True)
class Form:
    """A unit is a batch row and one of `sets` sets of query heads, and a group takes one of
    `splits` parts of its keys. `own` are the rows that are keys and values, `shared` the ones that
    only keys have, after them."""

    parts: Parts
    sets: int
    splits: int
    own: Rows
    shared: Rows | None

    @staticmethod
    def of(request: Request) -> Form:
        """The form that a request's schedule names."""
        parts, get = parts_in(request.body), request.schedule.get
        own = rows_of(request.body, parts.at["k"], parts.at.get("read"))
        assert own is not None
        shared = rows_of(request.body, parts.at["k_shared"], None) if parts.shared else None
        return Form(parts, get("sets"), get("splits"), own, shared)

    @property
    def dtype(self) -> str:
        return self.parts.at["k"].type.dtype

    @property
    def panels(self) -> int:
        """Panels of a key."""
        return self.parts.width // PANEL

    @property
    def own_panels(self) -> int:
        """Those of them that every row of `own` has."""
        return (self.parts.width - self.parts.shared) // PANEL

    @property
    def side_width(self) -> int:
        """Channels of a side."""
        return self.parts.value_width // SIDES

    @property
    def tile_elems(self) -> int:
        return TILE * self.parts.width

    @property
    def query_elems(self) -> int:
        return HEADS * self.parts.width

    @property
    def groups(self) -> int:
        return self.parts.batch * self.sets * self.splits


@dataclass(frozen=True, slots=True)
class Part:
    """One group's part: batch row, first query head, split, and its keys first .. end - 1."""

    row: Val
    head: Val
    split: Val
    first: Val
    end: Val


def part_of(job: Job, form: Form) -> Part:
    """The group's part: whole tiles from the first live key on, the last splits shorter or
    empty."""
    k, group = job.k, job.k.group_id(0)
    unit = quotient(k, group, form.splits)
    split = group - unit * form.splits
    row = quotient(k, unit, form.sets)
    head = (unit - row * form.sets) * HEADS
    first, end = key_range(job, form.parts, job.indexer.atom(row, form.parts.batch), ZERO)
    tiles = (k.op("max", end - first, 0) + k.lit(TILE - 1, I32)) >> (TILE.bit_length() - 1)
    size = quotient(k, tiles + (form.splits - 1), form.splits) * TILE
    begin = first + size * split
    return Part(row, head, split, k.copy(begin), k.copy(k.op("min", begin + size, end)))
