"""The end of a unit: subgroups become one state, groups become one result.

The subgroups leave their states in workgroup memory; each lane then owns two neighbouring channels
of a head. A group that has only a part of a unit leaves its state in the words between groups,
which rest at all ones (no f32 result is). The group that ends the unit reads the others' words,
many at once, polls where one is still at rest, adds them in the order of the groups (the same bits
on every run), and sets the words back to rest. Of a short list groups beyond those that work do
this instead, a round of channels each, so that no group adds up all of a unit's. No fence, no
atomic: each word is written and read whole. A group waits only for groups of lower number, and no
more groups are launched than are resident at once, so that no order of dispatch can hang it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.scores import LEAST, Scores
from poot.codegen.gen.attention.grouped.shape import WARP
from poot.codegen.gen.attention.grouped.shares import Segment, Shares
from poot.codegen.gen.attention.grouped.team import Team, quotient, remainder
from poot.codegen.kir.build import F32, I32, U32, Val

OUTS, SUMS, WORDS = "outs", "sums", "words"
REST = (1 << 32) - 1
# Partials that are read at once; fewer where a lane has 128 registers.
_BATCH, _SMALL_BATCH, _WHOLE_BATCH = 16, 8, 24
# Rounds of channels that are written out, where code counts: each is read once from far away.
_WRITTEN_ROUNDS = 2
_MANY_WARPS = 8


@dataclass(frozen=True, slots=True)
class Pair:
    """A lane's pair of channels of a unit: its number, head of the unit and first channel, and
    where its group keeps it."""

    number: Val
    head: Val
    channel: Val
    values_at: Val
    sums_at: Val


@dataclass(frozen=True, slots=True)
class State:
    """A head's maximum and sum, and two channels of it, not yet divided."""

    most: Val
    total: Val
    x: Val
    y: Val


Store = Callable[[Segment, Pair, State], None]


class Merge:
    """`store` finishes and writes a pair of channels."""

    def __init__(self, team: Team, shares: Shares, store: Store) -> None:
        self.team, self.form, self.k, self.shares = team, team.form, team.k, shares
        self.store = store
        self.scores = Scores.of(team.job, team.form.parts, team.form.repeat)
        is_full = team.form.warps * team.form.residents > _MANY_WARPS
        self.batch = _SMALL_BATCH if is_full else _BATCH
        form = team.form
        if form.mergers and form.spread <= _WHOLE_BATCH:
            self.batch = form.spread
        rows = form.warps * form.repeat
        team.k.shared(OUTS, "f32", rows * (form.width + 4))
        team.k.shared(SUMS, "f32", rows * 2)

    def run(self, segment: Segment) -> None:
        """All subgroups have published; all leave together."""
        k, team, form = self.k, self.team, self.form
        low, high = self.shares.owners(segment)
        k.barrier()
        if form.is_listed and form.rounds > _WRITTEN_ROUNDS:
            with k.for_(0, form.rounds, unroll=1, name="n") as n, self._has_round(n):
                self._pair(segment, self._owned(self._number(n), n), low, high)
            if self.shares.may_go_on:
                k.barrier()
            return
        for n in range(form.rounds):
            number = self._number(n)
            if (n + 1) * form.warps * WARP > form.pairs:
                with k.if_(team.warp * WARP + n * form.warps * WARP < form.pairs):
                    self._pair(segment, self._owned(number, n), low, high)
            else:
                self._pair(segment, self._owned(number, n), low, high)
        if self.shares.may_go_on:
            k.barrier()

    def collect(self, segment: Segment) -> None:
        """One merger: adds up the parts of a unit's groups, of one round of channels, or of some in
        turn."""
        k, team, form = self.k, self.team, self.form
        own = k.copy(team.group - form.groups)
        unit, first = quotient(k, own, form.mergers), remainder(k, own, form.mergers)
        k.set(segment.row, quotient(k, unit, form.sets))
        k.set(segment.head, remainder(k, unit, form.sets))
        low = k.copy(unit * form.spread)
        with k.for_(first, form.rounds, form.mergers, unroll=1, name="n") as n, self._has_round(n):
            pair = self._owned(self._number(n), n)
            start = (k.lit(LEAST), *(k.lit(0.0) for _ in range(3)))
            state = tuple(k.var(v, F32) for v in start)
            high = k.copy(low + form.spread)
            with k.for_(low, high, self.batch, unroll=1) as group:
                self._add(pair, group, high, state)
            self.store(segment, pair, State(*(k.copy(v) for v in state)))

    @contextmanager
    def _has_round(self, n: Val) -> Generator[None]:
        """Runs the body where the subgroup has pairs in round n."""
        team, form = self.team, self.form
        each = form.warps * WARP
        if form.pairs % each:
            with self.k.if_(team.warp * WARP + n * each < form.pairs):
                yield
        else:
            yield

    def _number(self, n: int | Val) -> Val:
        """The lane's pair of round n."""
        team, each = self.team, self.form.warps * WARP
        if isinstance(n, int):
            return team.lane + (team.warp * WARP + n * self.form.warps * WARP)
        return n * each + (team.lane + team.warp * WARP)

    def _owned(self, number: Val, n: int | Val) -> Pair:
        form, half = self.form, self.form.width // 2
        slot = self.team.warp + (n * form.warps)
        head, channel = quotient(self.k, number, half), remainder(self.k, number, half) * 2
        return Pair(number, head, channel, number * 2, slot * 2 + form.sums_at)

    def _pair(self, segment: Segment, pair: Pair, low: Val, high: Val) -> None:
        k, team, form = self.k, self.team, self.form
        most, total, x, y = self._own_state(pair)
        if not form.is_split:
            self.store(segment, pair, State(most, total, x, y))
            return
        if form.mergers:
            self._leave(pair, most, total, x, y)
            return
        with k.if_(team.group.ne(high)):
            self._leave(pair, most, total, x, y)
        with k.else_():
            state = tuple(k.var(v, F32) for v in (most, total, x, y))
            with k.for_(low, high, self.batch, unroll=1) as first:
                self._add(pair, first, high, state)
            self.store(segment, pair, State(*(k.copy(v) for v in state)))

    def _across(self, value: Val, kind: str) -> Val:
        return self.k.op("subgroup_reduce", value, kind=kind, width=WARP)

    def largest(self, value: Val) -> Val:
        """The largest f32 of the subgroup: as integers in the same order."""
        k = self.k
        word = k.bitcast(value, I32)
        word = word ^ ((word >> 31) & 0x7FFFFFFF)
        top = self._across(word, "max")
        return k.bitcast(top ^ ((top >> 31) & 0x7FFFFFFF), F32)

    def _own_state(self, pair: Pair) -> tuple[Val, Val, Val, Val]:
        """(maximum, sum, two channels) over the group's subgroups; lane j has subgroup j's."""
        k, team, form = self.k, self.team, self.form
        most, total = k.var(k.lit(LEAST), F32), k.var(k.lit(0.0), F32)
        with k.if_(team.lane < form.warps):
            both = k.load(SUMS, (team.lane * form.repeat + pair.head) * 2, 2)
            k.set(most, k.extract(both, 0))
            k.set(total, k.extract(both, 1))
        top = self.largest(k.copy(most))
        weight = self.scores.power(most - top)
        x, y = k.lit(0.0), k.lit(0.0)
        for j in range(form.warps):
            at = (pair.head + j * form.repeat) * (form.width + 4) + pair.channel
            both = k.load(OUTS, at, 2)
            own = k.op("subgroup_broadcast", weight, lane=j)
            x = k.fma(own, k.extract(both, 0), x)
            y = k.fma(own, k.extract(both, 1), y)
        return top, self._across(weight * total, "add"), x, y

    def _put(self, at: Val, x: Val, y: Val) -> None:
        k = self.k
        k.store(WORDS, at, k.vec(k.bitcast(x, U32), k.bitcast(y, U32)), cache="relaxed")

    def _leave(self, pair: Pair, most: Val, total: Val, x: Val, y: Val) -> None:
        """This group's part, for the group that ends the unit."""
        k, team, form = self.k, self.team, self.form
        self._put(pair.values_at + team.group * (form.pairs * 2), x, y)
        with k.if_(team.lane.eq(0)):
            self._put(pair.sums_at + team.group * (form.rounds * form.warps * 2), most, total)

    def _add(self, pair: Pair, first: Val, high: Val, state: tuple[Val, ...]) -> None:
        """Up to `batch` groups' parts from group `first` on; lane j has the j-th's maximum and
        sum."""
        k, team, form = self.k, self.team, self.form
        count = k.op("min", high - first, self.batch)
        own = (first + team.lane) * (form.rounds * form.warps * 2) + pair.sums_at
        is_mine = team.lane < count
        last = count - 1
        places = [
            (first + k.op("min", last, j)) * (form.pairs * 2) + pair.values_at
            for j in range(self.batch)
        ]
        most, total = k.var(k.lit(LEAST), F32), k.var(k.lit(0.0), F32)
        missing = team.flag(False)
        with k.block_() as head:
            self._read_sums(own, is_mine, most, total, missing)
            words = [k.load(WORDS, at, 2, cache="relaxed") for at in places]
            for pair_words in words:
                for e in (0, 1):
                    k.set(missing, missing | k.extract(pair_words, e).eq(REST))
            is_short = k.op("vote_any", k.copy(missing))
        with k.while_(head, is_short):
            with k.block_() as poll:
                self._read_sums(own, is_mine, most, total, missing)
                is_waiting = k.op("vote_any", k.copy(missing))
            with k.while_(poll, is_waiting):
                pass
        self._fold(
            state,
            most,
            total,
            [(k.bitcast(k.extract(w, 0), F32), k.bitcast(k.extract(w, 1), F32)) for w in words],
        )
        rest = k.lit(REST, U32)
        with k.if_(is_mine):
            k.store(WORDS, own, k.vec(rest, rest), cache="relaxed")
        for at in places:
            k.store(WORDS, at, k.vec(rest, rest), cache="relaxed")

    def _read_sums(self, own: Val, is_mine: Val, most: Val, total: Val, missing: Val) -> None:
        k = self.k
        k.set(missing, False)
        with k.if_(is_mine):
            both = k.load(WORDS, own, 2, cache="relaxed")
            a, b = k.extract(both, 0), k.extract(both, 1)
            k.set(most, k.bitcast(a, F32))
            k.set(total, k.bitcast(b, F32))
            k.set(missing, a.eq(REST) | b.eq(REST))

    def _fold(
        self, state: tuple[Val, ...], most: Val, total: Val, channels: list[tuple[Val, Val]]
    ) -> None:
        k = self.k
        old_most, old_total, old_x, old_y = state
        top = k.op("max", old_most, self.largest(k.copy(most)))
        shrink = self.scores.power(old_most - top)
        weight = self.scores.power(most - top)
        x, y = old_x * shrink, old_y * shrink
        for j, (a, b) in enumerate(channels):
            own = k.op("subgroup_broadcast", weight, lane=j)
            x, y = k.fma(own, a, x), k.fma(own, b, y)
        sum_ = k.fma(old_total, shrink, self._across(weight * total, "add"))
        for register, value in zip(state, (top, sum_, x, y), strict=True):
            k.set(register, value)
