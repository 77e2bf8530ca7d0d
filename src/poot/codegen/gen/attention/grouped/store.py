"""Results of a grouped decode: two neighbouring channels of a query head at a time, and one lane's
log-sum-exp of a head."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.merge import Pair, State
from poot.codegen.gen.attention.grouped.scores import Scores
from poot.codegen.gen.attention.grouped.shares import Segment
from poot.codegen.gen.attention.grouped.team import Team
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import needed_by
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import Val


@dataclass(frozen=True, slots=True)
class Results:
    """Every output of the step. A unit without a visible key is 0/0, NaN; with a sink it is 0."""

    team: Team
    sinks: tuple[Sink, ...]

    def store(self, segment: Segment, pair: Pair, state: State) -> None:
        """Divides, and writes a lane's pair; the lane of a head's first pair, its log-sum-exp."""
        team, k = self.team, self.team.k
        parts = team.form.parts
        if parts.lse is not None:
            with k.if_(pair.channel.eq(0)):
                self._store_lse(segment, pair, self._scores().log_sum(state.most, state.total))
        shrink = self._shrink(segment, pair, state)
        values = (state.x * shrink, state.y * shrink)
        for sink in self.sinks:
            if self._is_of_lse(sink):
                continue
            is_plain = sink.source.id == parts.out.id and sink.update is None and sink.ok is None
            if is_plain and sink.memory.cell.per == 1:
                unit = segment.row * team.form.sets + segment.head
                at = unit * (team.form.repeat * team.form.width) + pair.number * 2
                k.store(sink.memory.name, at, k.cast(k.vec(*values), sink.memory.cell.param))
            else:
                self._store_elements(sink, segment, pair, values)

    def _scores(self) -> Scores:
        form = self.team.form
        return Scores.of(self.team.job, form.parts, form.repeat)

    def _where(self, segment: Segment, pair: Pair) -> tuple[Index, Index, Index]:
        """(batch row, query head, query row)."""
        ix, k, parts = self.team.job.indexer, self.team.k, self.team.form.parts
        head = k.copy(segment.head * self.team.form.repeat) + pair.head
        row = ix.atom(k.copy(segment.row), parts.batch)
        return row, ix.atom(head, parts.heads), ZERO

    def _shrink(self, segment: Segment, pair: Pair, state: State) -> Val:
        """What channels are multiplied by: 1 / sum, with the sink's weight in the sum."""
        team, k = self.team, self.team.k
        parts, scores = team.form.parts, self._scores()
        if "sink" not in parts.at:
            return k.op("rcp", state.total)
        _, head, _ = self._where(segment, pair)
        logit = scores.own_unit(team.job.pull.value(parts.at["sink"], (head,)))
        top = k.op("nanmax", state.most, logit)
        shrink = scores.power(state.most - top)
        return shrink / k.fma(state.total, shrink, scores.power(logit - top))

    def _is_of_lse(self, sink: Sink) -> bool:
        """Whether an output is made of the log-sum-exp, not of the weighted values."""
        parts = self.team.form.parts
        if parts.lse is None:
            return False
        return parts.out.id not in needed_by(self.team.job.request.body, [sink.source])

    def _store_lse(self, segment: Segment, pair: Pair, lse: Val) -> None:
        job, parts = self.team.job, self.team.form.parts
        assert parts.lse is not None
        job.pull.leaves[parts.lse.id] = lambda coords: lse
        where = self._where(segment, pair)
        for sink in self.sinks:
            if self._is_of_lse(sink):
                coords = forward(job, parts.lse, sink.source, where)
                sink.store(job, coords, job.pull.value(sink.source, coords))

    def _store_elements(
        self, sink: Sink, segment: Segment, pair: Pair, values: tuple[Val, Val]
    ) -> None:
        job, parts = self.team.job, self.team.form.parts
        half = job.indexer.atom(pair.channel >> 1, self.team.form.width // 2)
        where = self._where(segment, pair)
        for e, value in enumerate(values):
            rounded = job.numbers.rounded(value, parts.out.type.dtype)
            job.pull.leaves[parts.out.id] = lambda coords, rounded=rounded: rounded
            coords = forward(job, parts.out, sink.source, (*where, half * 2 + e))
            sink.store(job, coords, job.pull.value(sink.source, coords))
