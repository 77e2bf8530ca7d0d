"""A tile on matrix units: 16 keys times up to 8 query heads, in 16 bits with f32 sums.

S^T = K Q^T: keys are rows, heads columns (heads past the last repeat it: computed, never stored).
O^T = V^T P^T: channels are rows, and columns are heads again, so that a lane's maxima, sums and
channels are of the same two heads. P^T comes to the other operand's lane map by transposes of 8x8
blocks. Scale multiplies S, and queries stay exact.
"""

from __future__ import annotations

import math

from poot.codegen.gen.attention.grouped.ring import RING, Hidden, Stage, Turned
from poot.codegen.gen.attention.grouped.scores import LEAST, Scores
from poot.codegen.gen.attention.grouped.shares import Segment
from poot.codegen.gen.attention.grouped.team import Team, input_name
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.kir.build import F32, Val
from poot.codegen.kir.nodes import Frag

HEADS = 8
# Channels of values that one load of fragments covers.
REACH = 128
_ACROSS_KEYS = (4, 8, 16)


class MatrixTile:
    """One subgroup's queries and state: maxima, sums and channels of two heads a lane."""

    turned = Turned("rows")

    def __init__(self, team: Team) -> None:
        self.team, self.form, self.k = team, team.form, team.k
        self.scores = Scores.of(team.job, team.form.parts, team.form.repeat)
        form, k = team.form, team.k
        self.queries = [
            k.var(self._filled(Frag("mma", "b", 16, HEADS, form.fragments)))
            for _ in range(form.width // 16)
        ]
        reach = min(form.width, REACH)
        self.sums_type = Frag("mma", "acc", 16, HEADS, "f32")
        acc = Frag("mma", "acc", reach, HEADS, "f32")
        self.acc = [k.var(self._filled(acc)) for _ in range(form.width // reach)]
        self.most = [k.var(k.lit(LEAST), F32) for _ in range(2)]
        self.total = [k.var(k.lit(0.0), F32) for _ in range(2)]
        self.column, self.pair = team.lane >> 2, (team.lane & 3) * 2

    def _filled(self, frag: Frag) -> Val:
        k = self.k
        zero = k.lit(0.0) if frag.dtype == "f32" else k.cast(k.lit(0.0), frag.dtype)
        return k.op("frag_fill", zero, type=frag)

    def load_queries(self, segment: Segment) -> None:
        """The queries of the segment's unit, one head a column."""
        k, form = self.k, self.form
        head = k.op("min", self.column, form.repeat - 1)
        row, own = k.copy(segment.row), k.copy(segment.head)
        for n, register in enumerate(self.queries):
            elements: list[Val] = []
            for beyond in (0, 8):
                elements += self._query_pair(row, own, head, 16 * n + beyond)
            k.set(register, k.op("frag_pack", *elements, type=register.type))

    def _query_pair(self, row: Val, own: Val, head: Val, first: int) -> list[Val]:
        """Channels first + pair and the next, of a query head."""
        k, form, parts = self.k, self.form, self.form.parts
        q = parts.at["q"]
        name = input_name(self.team.job, q)
        if name is not None:
            line = (row * form.sets + own) * form.repeat + head
            both = k.load(name, line * form.width + self.pair + first, 2)
            return [k.extract(both, 0), k.extract(both, 1)]
        ix = self.team.job.indexer
        where = (
            ix.atom(row, parts.batch),
            ix.atom(own * form.repeat + head, parts.heads),
            ZERO,
        )
        base: Index = ix.atom(self.pair, HEADS)
        return [
            k.cast(self.team.job.pull.value(q, (*where, base + (first + e))), form.fragments)
            for e in (0, 1)
        ]

    def begin(self) -> None:
        """An empty state."""
        k = self.k
        for acc in self.acc:
            assert isinstance(acc.type, Frag)
            k.set(acc, self._filled(acc.type))
        for most, total in zip(self.most, self.total, strict=True):
            k.set(most, LEAST)
            k.set(total, 0.0)

    def run(self, segment: Segment, first: Val, stage: Stage, hidden: Hidden) -> None:
        """Takes in a stage's tile: the segment's keys from `first` on, but the hidden ones."""
        keys = stage.tile
        products = self._products(keys)
        scores = [
            self.scores.value(
                product,
                segment.row,
                segment.head,
                self.pair + n % 2,
                first + self.column + 8 * (n // 2),
            )
            for n, product in enumerate(products)
        ]
        weights = self._softmax(scores, hidden)
        k, form = self.k, self.form
        reach = min(form.width, REACH)
        a = Frag("mma", "a", reach, 16, form.fragments)
        for n, acc in enumerate(self.acc):
            at = keys + (form.tile_elems + n * reach)
            values = k.op("frag_load", at, form.width, type=a, mem=RING, trans=True, swizzle="row")
            k.set(acc, k.op("mma", values, weights, acc, type=acc.type))

    def _products(self, keys: Val) -> list[Val]:
        """The lane's four products: keys g, g + 8 of two heads; g is its column."""
        k, form = self.k, self.form
        sums = [self._filled(self.sums_type) for _ in range(2)]
        reach = min(form.width, REACH)
        whole, part = (
            Frag("mma", "a", 16, reach, form.fragments),
            Frag("mma", "a", 16, 16, form.fragments),
        )
        for first in range(0, form.width, reach):
            rows = k.op("frag_load", keys + first, form.width, type=whole, mem=RING, swizzle="row")
            for n in range(reach // 16):
                a = k.op("frag_slice", rows, type=part, at=16 * n)
                query = self.queries[first // 16 + n]
                sums[n % 2] = k.op("mma", a, query, sums[n % 2], type=self.sums_type)
        both = k.op("add", *sums, type=self.sums_type)
        return [k.extract(both, n) for n in range(4)]

    def _softmax(self, scores: list[Val], hidden: Hidden) -> Val:
        """The weights of the tile, as the second product's operand; the state follows."""
        k, form, team = self.k, self.form, self.team
        x = scores
        if not form.is_even:
            held = [k.var(s, F32) for s in scores]
            with k.if_(hidden.is_any):
                for n, s in enumerate(held):
                    is_hidden = hidden.of(self.column + 8 * (n // 2))
                    k.set(s, k.select(is_hidden, k.lit(-math.inf), s))
                hidden.clear()
            x = [k.copy(s) for s in held]
        top = [k.op("max", x[e], x[2 + e]) for e in (0, 1)]
        slack = self.scores.slack
        is_over = (top[0] > self.most[0] + slack) | (top[1] > self.most[1] + slack)
        with k.if_(k.op("vote_any", is_over)):
            shrinks: list[Val] = []
            for e in (0, 1):
                new = k.op("max", team.max_xor(top[e], *_ACROSS_KEYS), self.most[e])
                shrinks.append(self.scores.power(self.most[e] - new))
                k.set(self.most[e], new)
                k.set(self.total[e], self.total[e] * shrinks[e])
            line = k.vec(*shrinks)
            for acc in self.acc:
                k.set(acc, k.op("frag_apply", acc, line, axis=0, kind="mul"))
        p = [self.scores.power(x[n] - self.most[n % 2]) for n in range(4)]
        for e in (0, 1):
            k.set(self.total[e], self.total[e] + (p[e] + p[2 + e]))
        wide = k.op("frag_pack", *p, type=self.sums_type)
        narrow = k.op("frag_cast", wide, type=Frag("mma", "acc", 16, HEADS, form.fragments))
        return k.op("frag_move", narrow, type=Frag("mma", "b", 16, HEADS, form.fragments))

    def publish(self, outs: str, sums: str) -> None:
        """Channels to `outs` [subgroup, head, width + 4], (maximum, sum) to `sums`
        [subgroup, head, 2]."""
        k, form, team = self.k, self.form, self.team
        totals = [team.sum_xor(k.copy(t), *_ACROSS_KEYS) for t in self.total]
        for e in (0, 1):
            with k.if_(self.pair + e < form.repeat):
                row = team.warp * form.repeat + self.pair + e
                at = row * (form.width + 4) + self.column
                for n, acc in enumerate(self.acc):
                    held = k.copy(acc)
                    for i in range(min(form.width, REACH) // 16):
                        for half in (0, 1):
                            value = k.extract(held, 4 * i + 2 * half + e)
                            k.store(outs, at + (REACH * n + 16 * i + 8 * half), value)
                with k.if_(self.column.eq(0)):
                    k.store(sums, row * 2, self.most[e])
                    k.store(sums, row * 2 + 1, totals[e])
