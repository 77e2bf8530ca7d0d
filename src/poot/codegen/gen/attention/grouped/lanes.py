"""A tile on plain lanes, with f32 sums: a row of keys is 16 bytes a lane.

`across` lanes hold a row, so that a subgroup reads `sets` rows at once, and each set of lanes takes
`turns` keys of a tile. The turns * heads products of a lane are reduced together by a halving
butterfly: a lane reads key row u ^ own and holds its queries in an order of its own, so that no
step selects, and it ends with one key and `kept` heads. A weight is made once and goes through
workgroup memory to the lanes that add up values. Where scores are plain, queries hold the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from poot.codegen.gen.attention.grouped.ring import RING, Hidden, Stage, Turned
from poot.codegen.gen.attention.grouped.scores import LEAST, Scores
from poot.codegen.gen.attention.grouped.shape import WARP
from poot.codegen.gen.attention.grouped.shares import Segment
from poot.codegen.gen.attention.grouped.team import Team, input_name, quotient, remainder
from poot.codegen.gen.index import ZERO
from poot.codegen.kir.build import F32, Val

WEIGHTS = "weights"


def _powers(first: int, stop: int) -> Iterator[int]:
    """first, 2 * first, 4 * first .. below stop."""
    while first < stop:
        yield first
        first *= 2


def _log2(n: int) -> int:
    return n.bit_length() - 1


class LaneTile:
    """One subgroup's queries and state."""

    turned = Turned("plain")

    def __init__(self, team: Team) -> None:
        self.team, self.form, self.k = team, team.form, team.k
        self.scores = Scores.of(team.job, team.form.parts, team.form.repeat)
        form, k = team.form, team.k
        self.across = form.chunks
        self.sets = WARP // self.across
        self.turns = form.tile // self.sets
        self.heads = 1 << (form.repeat - 1).bit_length()
        # Bits of the head's number that the butterfly moves to the lane's, and heads that stay.
        self.moved = min(_log2(self.across // self.turns), _log2(self.heads))
        self.kept = self.heads >> self.moved
        k.shared(WEIGHTS, "f32", form.warps * form.tile * self.heads)
        self.place = remainder(k, team.lane, self.across)
        self.set = quotient(k, team.lane, self.across)
        self.turn = self.place & (self.turns - 1)
        block = quotient(k, self.place, self.turns) & ((1 << self.moved) - 1)
        self.first_head = block * self.kept
        self.is_first = self.place < (self.turns << self.moved)
        self.own_weights = team.warp * (form.tile * self.heads)
        zero = k.lit(0.0)
        each = form.chunk
        self.queries = [[k.var(zero, F32) for _ in range(each)] for _ in range(self.heads)]
        self.acc = [[k.var(zero, F32) for _ in range(each)] for _ in range(self.heads)]
        self.most = [k.var(k.lit(LEAST), F32) for _ in range(self.kept)]
        self.total = [k.var(zero, F32) for _ in range(self.kept)]

    def load_queries(self, segment: Segment) -> None:
        """The queries of the segment's unit, scaled, in the lane's order of heads."""
        k, form = self.k, self.form
        scale = self.scores.factor if self.scores.is_plain else 1.0
        row, own = k.copy(segment.row), k.copy(segment.head)
        for n, registers in enumerate(self.queries):
            head = self.first_head ^ n
            there = k.op("min", head, form.repeat - 1)
            values = self._query(row, own, there)
            for register, value in zip(registers, values, strict=True):
                if form.repeat < self.heads:
                    value = k.select(head < form.repeat, value, k.lit(0.0))
                k.set(register, value * scale)

    def _query(self, row: Val, own: Val, head: Val) -> list[Val]:
        """The lane's channels of a query head."""
        k, form, parts = self.k, self.form, self.form.parts
        q = parts.at["q"]
        name = input_name(self.team.job, q)
        if name is not None:
            line = (row * form.sets + own) * form.repeat + head
            got = k.load(name, line * form.width + self.place * form.chunk, form.chunk)
            return self._floats(got)
        ix, pull = self.team.job.indexer, self.team.job.pull
        where = (ix.atom(row, parts.batch), ix.atom(own * form.repeat + head, parts.heads), ZERO)
        base = ix.atom(self.place, self.across) * form.chunk
        return [pull.value(q, (*where, base + e)) for e in range(form.chunk)]

    def _floats(self, vector: Val) -> list[Val]:
        k = self.k
        return [k.cast(k.extract(vector, e), "f32") for e in range(self.form.chunk)]

    def begin(self) -> None:
        """An empty state."""
        k = self.k
        for registers in self.acc:
            for register in registers:
                k.set(register, 0.0)
        for most, total in zip(self.most, self.total, strict=True):
            k.set(most, LEAST)
            k.set(total, 0.0)

    def run(self, segment: Segment, first: Val, stage: Stage, hidden: Hidden) -> None:
        """Takes in a stage's tile: the segment's keys from `first` on, but the hidden ones."""
        keys = stage.tile
        k, form = self.k, self.form
        scores = self._products(keys)
        if not self.scores.is_plain:
            key = first + self.set * self.turns + self.turn
            scores = [
                self.scores.value(x, segment.row, segment.head, self.first_head + n, key)
                for n, x in enumerate(scores)
            ]
        if not form.is_even:
            held = [k.var(s, F32) for s in scores]
            with k.if_(hidden.is_any):
                is_hidden = hidden.of(self.set * self.turns + self.turn)
                for s in held:
                    k.set(s, k.select(is_hidden, k.lit(-math.inf), s))
                hidden.clear()
            scores = [k.copy(s) for s in held]
        self._softmax(scores)
        k.barrier("subgroup")
        for u in range(self.turns):
            row = self.set * self.turns + u
            at = keys + (form.tile_elems + u * form.width)
            at = at + self.set * (self.turns * form.width) + self.place * form.chunk
            values = self._floats(k.load(RING, at, form.chunk))
            for head, weight in enumerate(self._weights(row)):
                for register, value in zip(self.acc[head], values, strict=True):
                    k.set(register, k.fma(weight, value, register))

    def _weights(self, row: Val) -> list[Val]:
        """Every head's weight of a key."""
        k = self.k
        out: list[Val] = []
        step = min(self.heads, 4)
        for first in range(0, self.heads, step):
            at = self.own_weights + row * self.heads + first
            got = k.load(WEIGHTS, at, step)
            out += [got] if step == 1 else [k.extract(got, n) for n in range(step)]
        return out

    def _dots(self, keys: Val, u: int) -> list[Val]:
        """Products of the lane's chunk of a key row with every query head's."""
        k, form = self.k, self.form
        row = (self.turn ^ u) + self.set * self.turns
        at = keys + (row * form.width + self.place * form.chunk)
        chunk = self._floats(k.load(RING, at, form.chunk))
        out: list[Val] = []
        for registers in self.queries:
            total = registers[0] * chunk[0]
            for query, element in zip(registers[1:], chunk[1:], strict=True):
                total = k.fma(query, element, total)
            out.append(total)
        return out

    def _products(self, keys: Val) -> list[Val]:
        """The lane's products: its key, its `kept` heads."""
        s = [self._dots(keys, u) for u in range(self.turns)]
        half = self.turns // 2
        while half:
            for u in range(half):
                s[u] = [a + self._other(b, half) for a, b in zip(s[u], s[u + half], strict=True)]
            half //= 2
        mine = s[0]
        for bit in range(self.moved - 1, -1, -1):
            n = self.heads >> (self.moved - bit)
            mask = self.turns << bit
            mine = [mine[g] + self._other(mine[g + n], mask) for g in range(n)]
        return [self.team.sum_xor(x, *_powers(self.turns << self.moved, self.across)) for x in mine]

    def _other(self, value: Val, mask: int) -> Val:
        return self.k.op("shuffle_xor", value, mask=mask)

    def _softmax(self, scores: list[Val]) -> None:
        """The weights of the lane's key, to workgroup memory; the state follows."""
        k, team = self.k, self.team
        key = self.set * self.turns + self.turn
        slack = self.scores.slack
        is_over = scores[0] > self.most[0] + slack
        for s, most in zip(scores[1:], self.most[1:], strict=True):
            is_over = is_over | (s > most + slack)
        with k.if_(k.op("vote_any", is_over)):
            self._raise(scores)
        weights = [self.scores.power(s - m) for s, m in zip(scores, self.most, strict=True)]
        for total, weight in zip(self.total, weights, strict=True):
            k.set(total, total + weight)
        at = self.own_weights + key * self.heads + self.first_head
        with team.job.when(self._one_of_copies()):
            for n, weight in enumerate(weights):
                k.store(WEIGHTS, at + n, weight)

    def _one_of_copies(self) -> Val:
        """Whether this lane stores what several may hold alike."""
        is_alone = self.turns << self.moved == self.across
        return self.team.truth(True) if is_alone else self.is_first

    def _raise(self, scores: list[Val]) -> None:
        k, team = self.k, self.team
        masks = (*_powers(1, self.turns), *_powers(self.across, WARP))
        shrinks: list[Val] = []
        for s, most, total in zip(scores, self.most, self.total, strict=True):
            new = k.op("max", team.max_xor(s, *masks), most)
            shrinks.append(self.scores.power(most - new))
            k.set(most, new)
            k.set(total, total * shrinks[-1])
        for head, registers in enumerate(self.acc):
            block, n = divmod(head, self.kept)
            holder = self.set * self.across + block * self.turns
            shrink = k.op("shuffle", shrinks[n], holder)
            for register in registers:
                k.set(register, register * shrink)

    def publish(self, outs: str, sums: str) -> None:
        """Channels to `outs` [subgroup, head, width + 4], (maximum, sum) to `sums`
        [subgroup, head, 2]."""
        k, form, team = self.k, self.form, self.team
        masks = (*_powers(1, self.turns), *_powers(self.across, WARP))
        is_teller = self.set.eq(0) & self.turn.eq(0) & self._one_of_copies()
        for n, (most, total) in enumerate(zip(self.most, self.total, strict=True)):
            whole = team.sum_xor(k.copy(total), *masks)
            head = self.first_head + n
            with k.if_(is_teller & (head < form.repeat)):
                at = (team.warp * form.repeat + head) * 2
                k.store(sums, at, most)
                k.store(sums, at + 1, whole)
        for head in range(form.repeat):
            held = [k.copy(r) for r in self.acc[head]]
            own = [team.sum_xor(v, *_powers(self.across, WARP)) for v in held]
            at = (team.warp * form.repeat + head) * (form.width + 4) + self.place * form.chunk
            with k.if_(self.set.eq(0)):
                for first in range(0, form.chunk, 4):
                    k.store(outs, at + first, k.vec(*own[first : first + 4]))
