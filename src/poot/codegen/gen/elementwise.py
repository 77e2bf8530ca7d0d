"""One lane makes a few elements of each output, or of the new part of each State update.

Schedule "elementwise": `threads` lanes a group, `per` items a lane. An item is one element, or
as many as fill one word of the narrowest output where the target stores whole words. Lanes of a
group take neighbouring items.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import MOST_ELEMS, Job, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.word_updates import store_update_word, update_words
from poot.codegen.kir.build import BOOL, Val
from poot.limits import DeviceLimits
from poot.planner.request import Request
from poot.planner.spills import new_part


@dataclass(frozen=True, slots=True)
class Section:
    """Sinks that share items: `count` items of `unit` elements each."""

    sinks: tuple[Sink, ...]
    count: int
    unit: int


def _sections(sinks: list[Sink]) -> list[Section]:
    plain: dict[int, list[Sink]] = {}
    out: list[Section] = []
    for sink in sinks:
        elems = sink.source.type.elems
        if sink.update is None:
            plain.setdefault(elems, []).append(sink)
        elif sink.memory.cell.per == 1:
            out.append(Section((sink,), elems, 1))
        else:
            out.append(Section((sink,), update_words(sink), sink.memory.cell.per))
    for elems, group in plain.items():
        unit = max(s.memory.cell.per for s in group)
        out.append(Section(tuple(group), -(-elems // unit), unit))
    return out


def _store_plain(job: Job, section: Section, item: Index) -> None:
    """One item of plain outputs: `unit` neighbouring elements, the last item's tail left out."""
    k, ix = job.k, job.indexer
    for sink in section.sinks:
        type, per = sink.source.type, sink.memory.cell.per
        whole = type.elems % section.unit == 0
        for first in range(0, section.unit, per):
            at = item * section.unit + first
            values: list[Val] = []
            for i in range(per):
                element = ix.bounded(at + i, type.elems)
                values.append(job.pull.value(sink.source, ix.split(element, type.shape)))
            word, _ = ix.divmod(at, per)
            is_there = k.lit(True, BOOL) if whole else ix.below(at, type.elems)
            if is_there.literal is False:
                continue
            with sink.when_ok(job), job.when(is_there):
                sink.memory.store_word(word, values)


def _store_section(job: Job, section: Section, item: Index) -> None:
    sink = section.sinks[0]
    if sink.update is None:
        _store_plain(job, section, item)
    elif sink.memory.cell.per == 1:
        coords = job.indexer.split(item, sink.source.type.shape)
        sink.store(job, coords, job.pull.value(sink.source, coords))
    else:
        store_update_word(job, sink, item)


def store_items(job: Job, sinks: list[Sink], per: int) -> KernelCall:
    """The launch that stores every element of every sink, `per` items a lane."""
    k = job.k
    sections = _sections(sinks)
    items = max((s.count for s in sections), default=1)
    groups = -(-items // (k.threads * per))
    with each_group(k, groups, job.limits) as group:
        base = group * (k.threads * per) + k.lane()
        for j in range(per):
            item = base + j * k.threads
            for section in sections:
                if groups * k.threads * per == section.count:
                    _store_section(job, section, job.indexer.atom(item, section.count))
                else:
                    with k.if_(item < section.count):
                        _store_section(job, section, job.indexer.atom(item, section.count))
    return job.call(groups)


def lower_elementwise(request: Request, limits: DeviceLimits) -> Lowered:
    """Every output's elements, in one launch."""
    job = open_job(request, limits, "elementwise", request.schedule.get("threads"))
    # What is stored is counted by signed words; where it goes in a State, and what it is read from,
    # is only added up.
    stored = (new_part(request.body, request.updates, n) for n in range(len(request.body.outputs)))
    job.counts_long = all(v.type.elems <= MOST_ELEMS for v in stored)
    job.bind_inputs(skip=(i for _, i in request.updates))
    return Lowered((store_items(job, open_sinks(job), request.schedule.get("per")),))
