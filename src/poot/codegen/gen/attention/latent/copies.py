"""Latent rows and queries on their way to workgroup memory, by `cp.async`, 16 bytes a lane, to
where the swizzle of warpgroup products wants them: dense rows and those of a pool by a map alike.

Eight lanes copy a row's panel of 128 bytes; the group's lanes have 32 rows at once, a tile two.
Rows past the last key repeat it: their weights are zero, and what they hold is the unit's own.
"""

from __future__ import annotations

from poot.codegen.gen.attention.grouped.team import input_name
from poot.codegen.gen.attention.latent.shape import THREADS, Form, Part
from poot.codegen.gen.index import ZERO
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import I32, TOKEN, Val
from poot.planner.latent import HEADS, PANEL, STAGES, TILE, Rows

QUERIES, TILES = "queries", "tiles"
_CHUNK = 8  # elements of 16 bits in 16 bytes
_CHUNKS = PANEL // _CHUNK
_ROWS = THREADS // _CHUNKS  # at once


class Copies:
    """What a group's lanes copy. `turned` is where a lane's chunk lies in a row of a panel."""

    def __init__(self, job: Job, form: Form, part: Part) -> None:
        self.job, self.form, self.part, self.k = job, form, part, job.k
        k = self.k
        k.shared(QUERIES, form.dtype, form.query_elems, 1024)
        k.shared(TILES, form.dtype, STAGES * form.tile_elems, 1024)
        self.own_row = k.lane() >> 3
        chunk = k.lane() & (_CHUNKS - 1)
        self.inside = chunk * _CHUNK
        self.turned = (chunk ^ (self.own_row & 7)) * _CHUNK
        self.token = k.op("async_commit", type=TOKEN)
        self.lines = [self._held(rows) for rows in self._sources()]

    def _sources(self) -> list[Rows]:
        own, shared = self.form.own, self.form.shared
        return [own] if shared is None else [own, shared]

    def _held(self, rows: Rows) -> list[Val]:
        """Registers for the lane's rows of the next tile."""
        return [self.k.var(self.k.lit(0, I32), I32) for _ in range(0, TILE, _ROWS)]

    def find(self, first: Val) -> None:
        """Looks up the lane's rows of the tile that begins with key `first`: of a map, well before
        they are copied."""
        k, part = self.k, self.part
        for rows, held in zip(self._sources(), self.lines, strict=True):
            for n, register in enumerate(held):
                key = first + self.own_row + n * _ROWS
                key = k.op("max", k.op("min", key, part.end - 1), 0)
                k.set(register, self._line(rows, key))

    def _line(self, rows: Rows, key: Val) -> Val:
        parts, ix = self.form.parts, self.job.indexer
        if rows.index is None:
            return self.part.row * parts.keys + key
        where = (ix.atom(self.part.row, parts.batch), ix.atom(key, parts.keys))
        found = self.job.pull.value(rows.index, where)
        return self.k.op("min", self.k.op("max", found, 0), rows.source.type.shape[0] - 1)

    def tile(self, stage: Val) -> None:
        """Starts the copies of the tile whose rows were found, into a stage."""
        k, form = self.k, self.form
        start = stage * form.tile_elems + (self.own_row * PANEL + self.turned)
        panels = (form.own_panels, form.panels - form.own_panels)
        begin = 0
        for rows, held, count in zip(self._sources(), self.lines, panels, strict=False):
            name, width = self._name(rows), rows.source.type.shape[-1]
            for n, line in enumerate(held):
                source = line * width + (self.inside + rows.first)
                for panel in range(count):
                    to = start + ((begin + panel) * TILE * PANEL + n * _ROWS * PANEL)
                    self._copy(TILES, name, to, source + panel * PANEL)
            begin += count
        k.op("async_commit", type=TOKEN)

    def _copy(self, target: str, name: str, to: Val, source: Val) -> None:
        self.k.do("cp_async", to, source, dst=target, mem=name, nbytes=16, bypass=True)

    def _name(self, rows: Rows) -> str:
        name = input_name(self.job, rows.source)
        assert name is not None
        return name

    def queries(self) -> None:
        """The unit's queries, a row a head; rows past the last head repeat it. Those that the step
        itself makes are made here. They land with the first tile."""
        k, form, parts = self.k, self.form, self.form.parts
        q = parts.at["q"]
        name = input_name(self.job, q)
        for n in range(0, HEADS, _ROWS):
            head = k.copy(k.op("min", self.part.head + self.own_row + n, parts.heads - 1))
            to = (self.own_row + n) * PANEL + self.turned
            if name is not None:
                source = (self.part.row * parts.heads + head) * parts.width + self.inside
                for panel in range(form.panels):
                    self._copy(QUERIES, name, to + panel * HEADS * PANEL, source + panel * PANEL)
                continue
            ix = self.job.indexer
            where = (ix.atom(self.part.row, parts.batch), ix.atom(head, parts.heads), ZERO)
            with k.for_(0, form.panels, unroll=1, name="p") as panel:
                at = ix.atom(panel, form.panels) * PANEL
                at = at + ix.atom(k.lane() & (_CHUNKS - 1), _CHUNKS) * _CHUNK
                values = [self.job.pull.value(q, (*where, at + e)) for e in range(_CHUNK)]
                row = k.copy(to + panel * (HEADS * PANEL))
                for e in range(0, _CHUNK, 2):
                    pair = k.cast(k.vec(values[e], values[e + 1]), form.dtype)
                    k.store(QUERIES, row + e, pair)
