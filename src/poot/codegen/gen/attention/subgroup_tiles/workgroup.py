"""A subgroup's state where the elements of fragments can't be named, or lie otherwise in each role:
scores and weights go through workgroup memory.

A subgroup has 16 query rows, a few neighbouring lanes each. Scores are stored, weighed by the row's
lanes, and loaded as the second product's left operand. Channels stay in fragments. The maximum
moves only past 2^8 of what it was: then channels are multiplied by a matrix whose rows hold one
number each.
"""

from __future__ import annotations

import math

from poot.codegen.gen.attention.blocks import Block
from poot.codegen.gen.attention.finish import store_channel, store_log_sum
from poot.codegen.gen.attention.grouped.scores import LEAST, SLACK
from poot.codegen.gen.attention.quad_rows import log_sum, shrink_of
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.subgroup_tiles.shape import Form
from poot.codegen.gen.attention.subgroup_tiles.stage import KEYS, QUERIES, VALUES, Stage
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import F32, I32, U32, Val
from poot.codegen.kir.nodes import Frag, Ty
from poot.planner.subgroup_tiles import SIDE

_LOG2E = math.log2(math.e)
_SCORES, _WEIGHTS = "ss", "sp"


class Workgroup:
    """One subgroup's queries, maxima, sums and channels."""

    def __init__(self, job: Job, form: Form, block: Block) -> None:
        self.job, self.form, self.k, self.block = job, form, job.k, block
        k, family = job.k, form.family
        k.shared(_SCORES, "f32", form.warps * SIDE * form.score_pitch)
        k.shared(_WEIGHTS, "u32", form.warps * SIDE * form.weight_pitch // 2)
        self.left = Frag(family, "a", SIDE, SIDE, form.dtype)
        self.right = Frag(family, "b", SIDE, SIDE, form.dtype)
        self.sums = Frag(family, "acc", SIDE, SIDE, "f32")
        self.warp, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
        self.across = form.lanes // SIDE  # lanes of a row
        self.line, self.part = lane >> _log2(self.across), lane & (self.across - 1)
        self.start = self.warp * SIDE
        self.row = block.first_query + self.start + self.line
        self.scores = self.warp * (SIDE * form.score_pitch)
        self.weights = self.warp * (SIDE * form.weight_pitch)
        zero = k.op("frag_fill", k.lit(0.0), type=self.sums)
        self.acc = [k.var(zero) for _ in range(form.parts.value_width // SIDE)]
        self.most = k.var(k.lit(LEAST), F32)
        self.total = k.var(k.lit(0.0), F32)

    def take_queries(self, stage: Stage) -> None:
        """The subgroup's queries, by way of where keys will lie; nothing where they stay."""
        k, form = self.k, self.form
        if form.keeps_queries:
            return
        empty = k.op("frag_fill", k.lit(0.0, Ty(form.dtype)), type=self.left)
        self.queries = [k.var(empty) for _ in range(form.parts.width // SIDE)]
        mine = self.start >> _log2(form.tile)
        for number in range(-(-form.rows // form.tile)):
            stage.pass_queries(number)
            k.barrier()
            with k.if_(mine.eq(number)):
                own = (self.start & (form.tile - 1)) * form.key_pitch
                for n, held in enumerate(self.queries):
                    got = k.op("frag_load", own + SIDE * n, form.key_pitch, type=self.left,
                               mem=KEYS)  # fmt: skip
                    k.set(held, got)
            k.barrier()

    def products(self) -> Val:
        """Queries times the staged tile of keys, into the subgroup's scores."""
        k, form = self.k, self.form
        for column in range(0, form.tile, SIDE):
            s = k.op("frag_fill", k.lit(0.0), type=self.sums)
            for n in range(form.parts.width // SIDE):
                queries = self._query(n)
                at = k.lit(column * form.key_pitch + SIDE * n, I32)
                keys = k.op("frag_load", at, form.key_pitch, type=self.right, mem=KEYS, trans=True)
                s = k.op("mma", queries, keys, s, type=self.sums)
            k.do("frag_store", self.scores + column, form.score_pitch, s, mem=_SCORES)
        k.barrier("subgroup")
        return self.scores

    def _query(self, n: int) -> Val:
        """The n-th 16 channels of the subgroup's queries."""
        form = self.form
        if not form.keeps_queries:
            return self.queries[n]
        own = self.start * form.key_pitch + SIDE * n
        return self.k.op("frag_load", own, form.key_pitch, type=self.left, mem=QUERIES)

    def weigh(self, s: Val, first: Val, *, is_masked: bool) -> Val:
        """The weights of the tile that begins at key `first`; the state follows."""
        k, form = self.k, self.form
        count = form.tile // self.across
        own = self.line * form.score_pitch + self.part * count
        found: list[Val] = []
        for n in range(0, count, 4):
            four = k.load(_SCORES, s + own + n, 4)
            found += [k.extract(four, e) for e in range(4)]
        x = [self._score(v, first + self.part * count + n, is_masked) for n, v in enumerate(found)]
        top = x[0]
        for one in x[1:]:
            top = k.op("max", top, one)
        with k.if_(k.op("vote_any", (top - self.most) * _LOG2E > SLACK)):
            self._move(top)
        most = k.copy(self.most)
        p = [k.op("exp2", (one - most) * _LOG2E) for one in x]
        sums = list(p)
        while len(sums) > 1:
            sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
        k.set(self.total, self.total + sums[0])
        words = [self._pair(a, b) for a, b in zip(p[::2], p[1::2], strict=True)]
        at = (self.weights >> 1) + self.line * (form.weight_pitch // 2) + self.part * (count // 2)
        for n in range(0, len(words), 4):
            k.store(_WEIGHTS, at + n, k.vec(*words[n : n + 4]))
        k.barrier("subgroup")
        return self.weights

    def _pair(self, low: Val, high: Val) -> Val:
        """Two weights in a word. NaN may get lost here: the sum has it, and with it the row."""
        k, dtype = self.k, self.form.dtype
        if dtype != "bf16" or dtype in self.job.numbers.native:
            return k.bitcast(k.cast(k.vec(low, high), dtype), U32)
        bits = [k.bitcast(x, U32) + 0x8000 for x in (low, high)]
        return (bits[0] >> 16) | (bits[1] & 0xFFFF0000)

    def _score(self, product: Val, key: Val, is_masked: bool) -> Val:
        """A product as a score, -inf where the row doesn't see the key."""
        k, job, parts, block = self.k, self.job, self.form.parts, self.block
        there = job.indexer.atom(k.op("min", key, parts.keys - 1), parts.keys)
        value = score(job, parts, product, self._where(), there)
        if not is_masked:
            return value
        end = block.length
        if parts.causal is not None:
            end = k.op("min", self.row + (parts.causal + 1), end)
        visible = key < end
        if parts.window is not None:
            begin = self.row + ((parts.causal or 0) + 1 - parts.window)
            visible = visible & (key >= begin)
        return k.select(visible, value, k.lit(-math.inf))

    def _where(self) -> tuple[Index, Index, Index]:
        ix, parts, block = self.job.indexer, self.form.parts, self.block
        row = self.k.op("min", self.row, parts.rows - 1)
        return (
            ix.atom(block.row, parts.batch),
            ix.atom(block.head, parts.heads),
            ix.atom(row, parts.rows),
        )

    def _fold(self, kind: str, value: Val) -> Val:
        """A value folded over the lanes of a row."""
        for bit in range(_log2(self.across)):
            value = self.k.op(kind, value, self.k.op("shuffle_xor", value, mask=1 << bit))
        return value

    def _move(self, top: Val) -> None:
        """The row's maximum is this from now on, and the state is measured by it."""
        k, form = self.k, self.form
        new = k.op("max", self._fold("max", top), self.most)
        shrink = k.op("exp2", (self.most - new) * _LOG2E)
        k.set(self.total, self.total * shrink)
        k.set(self.most, new)
        k.barrier("subgroup")  # all of the row's lanes have read its scores
        count = SIDE // self.across
        at = self.scores + self.line * form.score_pitch + self.part * count
        for n in range(0, count, 4):
            k.store(_SCORES, at + n, k.vec(*(shrink for _ in range(min(4, count)))))
        k.barrier("subgroup")
        factor = k.op("frag_load", self.scores, form.score_pitch, type=self.sums, mem=_SCORES)
        for acc in self.acc:
            k.set(acc, k.op("mul", acc, factor, type=self.sums))

    def add(self, weights: Val) -> None:
        """The staged tile of values, weighted, onto the channels."""
        k, form = self.k, self.form
        for key in range(0, form.tile, SIDE):
            own = k.op("frag_load", weights + key, form.weight_pitch, type=self.left, mem=_WEIGHTS)
            for n, acc in enumerate(self.acc):
                at = k.lit(key * form.value_pitch + SIDE * n, I32)
                values = k.op("frag_load", at, form.value_pitch, type=self.right, mem=VALUES)
                k.set(acc, k.op("mma", own, values, acc, type=self.sums))

    def finish(self, sinks: list[Sink]) -> None:
        """Stores the rows."""
        k, job, form, parts = self.k, self.job, self.form, self.form.parts
        total, most = self._fold("add", k.copy(self.total)), k.copy(self.most)
        is_there = self.row < parts.rows
        if parts.lse is not None:
            with k.if_(is_there & self.part.eq(0)):
                store_log_sum(job, parts, self._where(), log_sum(job, most, total), sinks)
        shrink = shrink_of(job, parts, self._where(), most, total)
        count = SIDE // self.across
        own = self.scores + self.line * form.score_pitch + self.part * count
        for n, acc in enumerate(self.acc):
            k.barrier("subgroup")
            k.do("frag_store", self.scores, form.score_pitch, acc, mem=_SCORES)
            k.barrier("subgroup")
            with k.if_(is_there):
                first = job.indexer.atom(self.part, self.across) * count + SIDE * n
                for e in range(0, count, 4):
                    four = k.load(_SCORES, own + e, 4)
                    for m in range(4):
                        value = k.extract(four, m) * shrink
                        store_channel(job, parts, self._where(), first + (e + m), value, sinks)


def _log2(n: int) -> int:
    return n.bit_length() - 1
