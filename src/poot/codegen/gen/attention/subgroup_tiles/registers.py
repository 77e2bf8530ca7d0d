"""A subgroup's state in the registers of fragments whose elements it can name: `mma`.

Scores are an accumulator [queries, keys] whose lane map is that of the second product's left
operand, so weights are a change of type. The maximum moves only past 2^8 of what it was.
"""

from __future__ import annotations

import math

from poot.codegen.gen.attention.blocks import Block
from poot.codegen.gen.attention.grouped.scores import LEAST, SLACK
from poot.codegen.gen.attention.quad_rows import Rows, store
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.subgroup_tiles.shape import Form
from poot.codegen.gen.attention.subgroup_tiles.stage import KEYS, QUERIES, VALUES, Stage
from poot.codegen.gen.job import Job
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import F32, I32, Val
from poot.codegen.kir.frags import coords
from poot.codegen.kir.nodes import Frag, Ty
from poot.planner.subgroup_tiles import SIDE

_LOG2E = math.log2(math.e)
# Below every product, and small enough that its own scaling stays finite.
_LEAST_PRODUCT = -1.0e30
_ACROSS = (1, 2)  # lanes that share a row


class Registers:
    """One subgroup's maxima, sums and channels: two query rows a lane of each 16."""

    def __init__(self, job: Job, form: Form, block: Block) -> None:
        self.job, self.form, self.k, self.block = job, form, job.k, block
        k, parts = job.k, form.parts
        is_bare = parts.softcap is None and not {"bias", "mask"} & set(parts.at)
        self.is_plain = is_bare and parts.scale > 0
        self.unit = (parts.scale if self.is_plain else 1.0) * _LOG2E
        rows, dtype = form.own_rows, form.dtype
        self.sums = Frag(form.family, "acc", rows, form.tile, "f32")
        self.outs = Frag(form.family, "acc", rows, parts.value_width, "f32")
        self.weights = Frag(form.family, "a", rows, form.tile, dtype)
        self.beyond = tuple(SIDE * down + half for down in range(form.deep) for half in (0, 8))
        lane = k.op("subgroup_lane", type=I32)
        self.start = k.op("subgroup_id", type=I32) * rows
        self.first = block.first_query + self.start + (lane >> 2)
        self.column = (lane & 3) * 2
        self.acc = k.var(k.op("frag_fill", k.lit(0.0), type=self.outs))
        least = _LEAST_PRODUCT if self.is_plain else LEAST
        self.most = [k.var(k.lit(least), F32) for _ in self.beyond]
        self.total = [k.var(k.lit(0.0), F32) for _ in self.beyond]
        down, across = coords(self.sums)
        self.corners = [
            (self.beyond.index(int(r)), int(c))
            for r, c in zip(down[:, 0], across[:, 0], strict=True)
        ]

    def take_queries(self, stage: Stage) -> None:
        """Queries stay where the stage put them."""

    def products(self) -> Val:
        """Queries times the staged tile of keys."""
        k, form = self.k, self.form
        a = Frag(form.family, "a", form.own_rows, SIDE, form.dtype)
        b = Frag(form.family, "b", SIDE, form.tile, form.dtype)
        s = k.op("frag_fill", k.lit(0.0), type=self.sums)
        own = self.start * form.key_pitch
        for at in range(0, form.parts.width, SIDE):
            queries = k.op("frag_load", own + at, form.key_pitch, type=a, mem=QUERIES)
            keys = k.op("frag_load", k.lit(at, I32), form.key_pitch, type=b, mem=KEYS, trans=True)
            s = k.op("mma", queries, keys, s, type=self.sums)
        return s

    def weigh(self, s: Val, first: Val, *, is_masked: bool) -> Val:
        """The weights of the tile that begins at key `first`; the state follows."""
        k, unit = self.k, self.unit
        if not self.is_plain:
            s = self._scores(s, first)
        if is_masked:
            s = self._hidden(s, first)
        top = k.op("frag_reduce", s, axis=1, kind="max", type=Ty("f32", len(self.beyond)))
        tops = [k.extract(top, n) for n in range(len(self.beyond))]
        is_over = [(t - m) * unit > SLACK for t, m in zip(tops, self.most, strict=True)]
        any_over = is_over[0]
        for one in is_over[1:]:
            any_over = any_over | one
        with k.if_(k.op("vote_any", any_over)):
            self._move(tops)
        minus = self._each_row([m * -unit for m in self.most])
        factor = k.op("frag_fill", k.lit(unit), type=self.sums)
        if self.is_plain:
            p = k.op("exp2", k.op("fma", s, factor, minus))
        else:
            most = self._each_row([k.copy(m) for m in self.most])
            p = k.op("exp2", k.op("mul", k.op("sub", s, most), factor))
        sums = k.op("frag_reduce", p, axis=1, kind="add", type=Ty("f32", len(self.beyond)))
        for n, total in enumerate(self.total):
            k.set(total, total + k.extract(sums, n))
        return k.op("frag_cast", p, type=self.weights)

    def _move(self, tops: list[Val]) -> None:
        """Maxima are these from now on, and the state is measured by them."""
        k = self.k
        shrinks: list[Val] = []
        for n, new in enumerate(tops):
            for mask in _ACROSS:
                new = k.op("max", new, k.op("shuffle_xor", new, mask=mask))
            new = k.op("max", new, self.most[n])
            shrink = k.op("exp2", (self.most[n] - new) * self.unit)
            shrinks.append(shrink)
            k.set(self.total[n], self.total[n] * shrink)
            k.set(self.most[n], new)
        line = k.vec(*shrinks)
        k.set(self.acc, k.op("frag_apply", self.acc, line, axis=1, kind="mul"))

    def _each_row(self, values: list[Val]) -> Val:
        """A fragment with a value for each of the lane's rows."""
        return self.k.op("frag_pack", *(values[line] for line, _ in self.corners), type=self.sums)

    def _scores(self, s: Val, first: Val) -> Val:
        """Products as scores: scaled, capped, masked."""
        k, job, parts, block = self.k, self.job, self.form.parts, self.block
        ix = job.indexer
        out: list[Val] = []
        for n, (line, column) in enumerate(self.corners):
            row = k.op("min", self.first + self.beyond[line], parts.rows - 1)
            key = k.op("min", first + self.column + column, parts.keys - 1)
            where = (
                ix.atom(block.row, parts.batch), ix.atom(block.head, parts.heads),
                ix.atom(row, parts.rows),
            )  # fmt: skip
            out.append(score(job, parts, k.extract(s, n), where, ix.atom(key, parts.keys)))
        return k.op("frag_pack", *out, type=self.sums)

    def _hidden(self, s: Val, first: Val) -> Val:
        """-inf where a key lies past a row's end or before its window."""
        k, parts = self.k, self.form.parts
        own = first + self.column
        ends: list[Val] = []
        begins: list[Val] = []
        for more in self.beyond:
            row, end = self.first + more, self.block.length
            if parts.causal is not None:
                end = k.op("min", row + (parts.causal + 1), end)
            ends.append(end - own)
            if parts.window is not None:
                begins.append(row + ((parts.causal or 0) + 1 - parts.window) - own)
        out: list[Val] = []
        for n, (line, column) in enumerate(self.corners):
            visible = ends[line] > column
            if begins:
                visible = visible & (begins[line] <= column)
            out.append(k.select(visible, k.extract(s, n), k.lit(-math.inf)))
        return k.op("frag_pack", *out, type=self.sums)

    def add(self, weights: Val) -> None:
        """The staged tile of values, weighted, onto the channels."""
        k, form, acc = self.k, self.form, self.acc
        a = Frag(form.family, "a", form.own_rows, SIDE, form.dtype)
        b = Frag(form.family, "b", SIDE, form.parts.value_width, form.dtype)
        for at in range(0, form.tile, SIDE):
            own = k.op("frag_slice", weights, type=a, at=at)
            start = k.lit(at * form.value_pitch, I32)
            values = k.op("frag_load", start, form.value_pitch, type=b, mem=VALUES)
            acc = k.op("mma", own, values, acc, type=self.outs)
        k.set(self.acc, acc)

    def finish(self, sinks: list[Sink]) -> None:
        """Stores the rows."""
        rows = Rows(
            self.job, self.form.parts, self.block, self.first, self.beyond, self.column,
            self.k.copy(self.acc), tuple(self.most), tuple(self.total), self.is_plain,
        )  # fmt: skip
        store(rows, sinks)
