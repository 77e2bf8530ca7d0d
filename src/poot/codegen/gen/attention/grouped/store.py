"""Results of a grouped decode: two neighbouring channels of a query head at a time."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.gen.attention.grouped.team import Team
from poot.codegen.gen.epilogue import forward
from poot.codegen.gen.index import ZERO
from poot.codegen.gen.sinks import Sink
from poot.codegen.kir.build import Val


def stores(team: Team, sinks: list[Sink]) -> Callable[[Val, Val, Val, Val], None]:
    """(unit, pair of channels of the unit, x, y) -> to every output of the step."""
    job, form = team.job, team.form
    parts, k = form.parts, team.k

    def store(unit: Val, pair: Val, x: Val, y: Val) -> None:
        for sink in sinks:
            memory = sink.memory
            is_plain = sink.source.id == parts.out.id and sink.update is None and sink.ok is None
            if is_plain and memory.cell.per == 1:
                at = unit * (parts.repeat * form.width) + pair * 2
                both = k.vec(x, y)
                k.store(memory.name, at, k.cast(both, memory.cell.param))
            else:
                _element_by_element(team, sink, unit, pair, (x, y))

    def _element_by_element(
        team: Team, sink: Sink, unit: Val, pair: Val, values: tuple[Val, Val]
    ) -> None:
        ix = job.indexer
        row, own = ix.divmod(ix.atom(unit, parts.batch * parts.kv_heads), parts.kv_heads)
        head, half = ix.divmod(ix.atom(pair, form.pairs), form.width // 2)
        for e, value in enumerate(values):
            rounded = job.numbers.rounded(value, parts.out.type.dtype)
            job.pull.leaves[parts.out.id] = lambda coords, rounded=rounded: rounded
            where = (row, own * parts.repeat + head, ZERO, half * 2 + e)
            coords = forward(job, parts.out, sink.source, where)
            sink.store(job, coords, job.pull.value(sink.source, coords))

    return store
