"""A tile on matrix units whose keys and values are codes of 8 bits with a scale a row.

Codes become f16 in registers, exactly. A product's inner index may run in any order that both
operands agree on, and so may its rows: a lane reads 16 neighbouring codes of a key where S wants
pairs of four products, and of four keys where O wants pairs of channels; queries are loaded, and
channels stored, in that order.

S^T = (K Q^T) * scale of the key. A query head is brought below 2^15 by a power of two, and one that
16 bits don't hold is two parts. O^T = V^T P^T, where P holds the weight times the value's scale,
in two parts: it is measured by a reference of its own, so that it stays in f16's range whatever the
scales are, and the state moves to the other reference at the end of the unit.
"""

from __future__ import annotations

import math

from poot.codegen.gen.attention.grouped.mma import HEADS, REACH, MatrixTile
from poot.codegen.gen.attention.grouped.ring import RING, SCALES, Hidden, Stage, Turned
from poot.codegen.gen.attention.grouped.scores import LEAST
from poot.codegen.gen.attention.grouped.shares import Segment
from poot.codegen.gen.attention.grouped.team import Team, input_name
from poot.codegen.gen.index import ZERO
from poot.codegen.kir.build import F32, I32, Val
from poot.codegen.kir.nodes import Frag, Ty
from poot.planner.codes import is_of_16_bits

_ACROSS_KEYS, _ACROSS_CHANNELS = (4, 8, 16), (1, 2)
_HALVES = Ty("f16", 4)
_CODES, _CHUNK = 4, 16  # of a word, and of a load
# A query's largest element becomes 2^14 or more, below 2^15.
_QUERY_POWER = 14
# Weights may reach 2^SLACK by their reference; this much more of f16's range is used.
_ROOM = 7
# A scale below this raises no reference: its rows' weights are the smaller for it.
_LEAST_SCALE = 2.0**-100
_EXPONENT = 23


class CodedTile(MatrixTile):
    """One subgroup's queries and state. `most` and `total` are of the weights, `over` is what the
    channels are measured by."""

    turned = Turned("codes")

    def __init__(self, team: Team) -> None:
        super().__init__(team)
        assert team.form.codes is not None
        k = self.k
        self.codes = team.form.codes[0].dtype
        self.chunks = team.form.width // (_CODES * _CHUNK)  # of a row, for a lane
        q = team.form.parts.at["q"]
        is_one = is_of_16_bits(team.job.request.body, q)
        part = Frag("mma", "b", 16, HEADS, "f16")
        self.rest = [] if is_one else [k.var(self._filled(part)) for _ in self.queries]
        self.over = [k.var(k.lit(LEAST), F32) for _ in range(2)]
        self.unscale = [k.var(k.lit(1.0), F32) for _ in range(2)]
        self.quad = team.lane & 3

    # Queries: column g has head g's; the lane has 16 neighbouring channels a chunk

    def load_queries(self, segment: Segment) -> None:
        """The queries of the segment's unit, one head a column, each times a power of two."""
        k, form = self.k, self.form
        head = k.op("min", self.column, form.repeat - 1)
        row, own = k.copy(segment.row), k.copy(segment.head)
        words = [self._query(row, own, head, n) for n in range(len(self.queries))]
        most = k.lit(0.0)
        for word in words:
            for x in word:
                most = k.op("max", most, k.op("abs", x))
        most = self.team.max_xor(most, *_ACROSS_CHANNELS)
        power = (k.bitcast(most, I32) >> _EXPONENT) & 0xFF
        power = k.op("min", k.op("max", power, _QUERY_POWER + 2), 254)
        scale = k.bitcast((254 + _QUERY_POWER - power) << _EXPONENT, F32)
        undo = k.bitcast((power - _QUERY_POWER) << _EXPONENT, F32)
        for n, word in enumerate(words):
            scaled = [x * scale for x in word]
            near = [k.cast(x, "f16") for x in scaled]
            k.set(self.queries[n], k.op("frag_pack", *near, type=self.queries[n].type))
            if self.rest:
                left = [x - k.cast(y, "f32") for x, y in zip(scaled, near, strict=True)]
                halves = [k.cast(x, "f16") for x in left]
                k.set(self.rest[n], k.op("frag_pack", *halves, type=self.rest[n].type))
        for e in (0, 1):
            k.set(self.unscale[e], k.op("shuffle", undo, (self.pair + e) * 4))

    def _query(self, row: Val, own: Val, head: Val, n: int) -> list[Val]:
        """The lane's four channels of product n, of a query head, as f32."""
        k, form, parts = self.k, self.form, self.form.parts
        chunk, word = divmod(n, _CHUNK // _CODES)
        first = self.quad * _CHUNK + (chunk * 4 * _CHUNK + word * _CODES)
        q = parts.at["q"]
        name = input_name(self.team.job, q)
        if name is not None:
            line = (row * form.sets + own) * form.repeat + head
            four = k.load(name, line * form.width + first, _CODES)
            return [k.cast(k.extract(four, e), "f32") for e in range(_CODES)]
        ix, pull = self.team.job.indexer, self.team.job.pull
        where = (ix.atom(row, parts.batch), ix.atom(own * form.repeat + head, parts.heads), ZERO)
        base = ix.atom(self.quad, 4) * _CHUNK + (chunk * 4 * _CHUNK + word * _CODES)
        return [pull.value(q, (*where, base + e)) for e in range(_CODES)]

    # Tiles

    def begin(self) -> None:
        super().begin()
        for over in self.over:
            self.k.set(over, LEAST)

    def run(self, segment: Segment, first: Val, stage: Stage, hidden: Hidden) -> None:
        """Takes in a stage's tile: the segment's keys from `first` on, but the hidden ones."""
        assert stage.scales is not None
        k = self.k
        at = [stage.scales + self.column + 8 * n for n in (0, 1)]
        of_keys = [k.load(SCALES, x) for x in at]
        of_values = [k.load(SCALES, x + self.form.tile) for x in at]
        scores = [
            self.scores.value(
                (product * of_keys[n // 2]) * self.unscale[n % 2],
                segment.row,
                segment.head,
                self.pair + n % 2,
                first + self.column + 8 * (n // 2),
            )
            for n, product in enumerate(self._products(stage.tile))
        ]
        near, rest = self._weighted(scores, of_values, hidden)
        for n, acc in enumerate(self.acc):
            values = self._values(stage.tile + self.form.tile_elems, n)
            total = k.op("mma", values, near, acc, type=acc.type)
            k.set(acc, k.op("mma", values, rest, total, type=acc.type))

    def _unpacked(self, word: Val) -> list[Val]:
        four = self.k.op("unpack", word, type=_HALVES, dtype=self.codes)
        return [self.k.extract(four, e) for e in range(_CODES)]

    def _place(self, row: Val, chunk: Val) -> Val:
        """Where a chunk of a tile's row lies, from the tile's start."""
        return self.turned.start(self.form, row) + self.turned.chunk(chunk, row) * _CODES

    def _products(self, keys: Val) -> list[Val]:
        """The lane's four products: keys g, g + 8 of two heads; g is its column."""
        k, form = self.k, self.form
        part = Frag("mma", "a", 16, 16, "f16")
        sums = [self._filled(self.sums_type) for _ in range(2)]
        for chunk in range(self.chunks):
            own = keys + self._place(self.column, self.quad + 4 * chunk)
            low, high = (k.load(RING, own + beyond, _CODES) for beyond in (0, 8 * form.line))
            for word in range(_CODES):
                x = self._unpacked(k.extract(low, word))
                y = self._unpacked(k.extract(high, word))
                a = k.op("frag_pack", *x[:2], *y[:2], *x[2:], *y[2:], type=part)
                n = chunk * _CODES + word
                for queries in (self.queries, self.rest):
                    if queries:
                        sums[n % 2] = k.op("mma", a, queries[n], sums[n % 2], type=self.sums_type)
        both = k.op("add", *sums, type=self.sums_type)
        return [k.extract(both, n) for n in range(4)]

    def _values(self, values: Val, n: int) -> Val:
        """The n-th REACH channels of the tile's values, turned: the lane has keys 2t, 2t + 1,
        2t + 8, 2t + 9 of its own channels."""
        k, form = self.k, self.form
        reach = min(form.width, REACH)
        words = reach // (HEADS * _CODES)
        rows: list[list[list[Val]]] = []
        for beyond in (0, 1, 8, 9):
            row = self.pair + beyond
            chunk = (self.column >> 1) if words < _CODES else self.column + 8 * n
            at = values + self._place(row, chunk)
            at = at + (self.column & 1) * words if words < _CODES else at
            got = k.load(RING, at, words)
            rows.append([self._unpacked(k.extract(got, w)) for w in range(words)])
        elements: list[Val] = []
        for word in range(words):
            for c in (0, 2):
                for first in (0, 2):
                    for e in (c, c + 1):
                        elements += [rows[first][word][e], rows[first + 1][word][e]]
        return k.op("frag_pack", *elements, type=Frag("mma", "a", reach, 16, "f16"))

    def _weighted(self, x: list[Val], of_values: list[Val], hidden: Hidden) -> tuple[Val, Val]:
        """The tile's weights times the values' scales, as the second product's operand, in two
        parts; the state follows."""
        k, form = self.k, self.form
        if not form.is_even:
            held = [k.var(s, F32) for s in x]
            scales = [k.var(s, F32) for s in of_values]
            with k.if_(hidden.is_any):
                for key in (0, 1):
                    is_hidden = hidden.of(self.column + 8 * key)
                    for e in (0, 1):
                        s = held[2 * key + e]
                        k.set(s, k.select(is_hidden, k.lit(-math.inf), s))
                    k.set(scales[key], k.select(is_hidden, k.lit(0.0), scales[key]))
                hidden.clear()
            x, of_values = [k.copy(s) for s in held], [k.copy(s) for s in scales]
        sizes = [k.op("log2", k.op("max", k.op("abs", s), _LEAST_SCALE)) - _ROOM for s in of_values]
        own = [self._in_own_unit(size) for size in sizes]
        self._follow([x, [s + own[n // 2] for n, s in enumerate(x)]])
        p = [self.scores.power(s - self.most[n % 2]) for n, s in enumerate(x)]
        for e in (0, 1):
            k.set(self.total[e], self.total[e] + (p[e] + p[2 + e]))
        w = [self.scores.power(s - self.over[n % 2]) * of_values[n // 2] for n, s in enumerate(x)]
        near = [k.cast(s, "f16") for s in w]
        left = [k.cast(s - k.cast(half, "f32"), "f16") for s, half in zip(w, near, strict=True)]
        return self._operand(near), self._operand(left)

    def _in_own_unit(self, binary: Val) -> Val:
        """A logarithm in base 2, in the unit of maxima."""
        return binary if self.scores.is_plain else binary * math.log(2.0)

    def _operand(self, halves: list[Val]) -> Val:
        k = self.k
        held = k.op("frag_pack", *halves, type=Frag("mma", "acc", 16, HEADS, "f16"))
        return k.op("frag_move", held, type=Frag("mma", "b", 16, HEADS, "f16"))

    def _follow(self, measured: list[list[Val]]) -> None:
        """Raises the maxima of scores, and of scores with scales, where one is passed by far."""
        k, team, slack = self.k, self.team, self.scores.slack
        kept = (self.most, self.over)
        tops = [[k.op("max", x[e], x[2 + e]) for e in (0, 1)] for x in measured]
        is_over = team.truth(False)
        for top, most in zip(tops, kept, strict=True):
            for e in (0, 1):
                is_over = is_over | (top[e] > most[e] + slack)
        with k.if_(k.op("vote_any", is_over)):
            shrinks: list[list[Val]] = []
            for top, most in zip(tops, kept, strict=True):
                shrinks.append([])
                for e in (0, 1):
                    new = k.op("max", team.max_xor(top[e], *_ACROSS_KEYS), most[e])
                    shrinks[-1].append(self.scores.power(most[e] - new))
                    k.set(most[e], new)
            for e in (0, 1):
                k.set(self.total[e], self.total[e] * shrinks[0][e])
            line = k.vec(*shrinks[1])
            for acc in self.acc:
                k.set(acc, k.op("frag_apply", acc, line, axis=0, kind="mul"))

    def publish(self, outs: str, sums: str) -> None:
        """Channels to `outs` [subgroup, head, width + 4], (maximum, sum) to `sums`
        [subgroup, head, 2]."""
        k, form, team = self.k, self.form, self.team
        totals = [team.sum_xor(k.copy(t), *_ACROSS_KEYS) for t in self.total]
        reach = min(form.width, REACH)
        words = reach // (HEADS * _CODES)
        for e in (0, 1):
            with k.if_(self.pair + e < form.repeat):
                by = self.scores.power(self.over[e] - self.most[e])
                row = team.warp * form.repeat + self.pair + e
                at = row * (form.width + 4) + self.column * (words * _CODES)
                for n, acc in enumerate(self.acc):
                    held = k.copy(acc)
                    for word in range(words):
                        four = [k.extract(held, 8 * word + 2 * c + e) * by for c in range(_CODES)]
                        k.store(outs, at + (REACH * n + _CODES * word), k.vec(*four))
                with k.if_(self.column.eq(0)):
                    k.store(sums, row * 2, self.most[e])
                    k.store(sums, row * 2 + 1, totals[e])
