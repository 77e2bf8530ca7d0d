"""The passes in order, and what each of them did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from poot.errors import PassError, VerifyError
from poot.ir.graph import Graph
from poot.ir.verify import verify
from poot.limits import DeviceLimits
from poot.passes.attention.match import fuse_attention
from poot.passes.canonicalize import canonicalize
from poot.passes.dce import dce
from poot.passes.engine import Note, Outcome
from poot.passes.records import form_records
from poot.passes.regions.form import form_regions
from poot.passes.rope.match import fuse_rope
from poot.passes.selection.match import fuse_selection


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step from graph to graph for a device. `assuming_hidden` is what runs instead where
    finite masks are assumed to hide keys."""

    name: str
    run: Callable[[Graph, DeviceLimits], Outcome]
    assuming_hidden: Callable[[Graph, DeviceLimits], Outcome] | None = None

    def __call__(self, graph: Graph, limits: DeviceLimits) -> Graph:
        """The graph after the pass."""
        return self.run(graph, limits).graph


@dataclass(frozen=True, slots=True)
class PassReport:
    """A pass at work: the graph it left, how often each of its rules fired, what it declined and
    why."""

    name: str
    graph: Graph
    fired: tuple[tuple[str, int], ...]
    notes: tuple[Note, ...]

    @property
    def declined(self) -> tuple[Note, ...]:
        return tuple(n for n in self.notes if n.kind == "declined")

    def lines(self) -> list[str]:
        """For people: the counts, then each note with its source line, equal ones once."""
        idle = f"nothing done, {len(self.declined)} declined" if self.declined else "nothing to do"
        counts = ", ".join(f"{name} {n}" for name, n in self.fired) or idle
        shown = [f"{self.name}: {counts}"]
        for note, n in Counter(self.notes).items():
            times = f"{n} x " if n > 1 else ""
            at = f"  at {note.loc}" if note.loc else ""
            shown.append(f"  {note.kind}: {times}{note.what}{at}")
        return shown


def _dce(graph: Graph, limits: DeviceLimits) -> Outcome:
    kept = dce(graph)
    gone = len(graph.eqns) - len(kept.eqns)
    return Outcome(kept, (("removed", gone),) if gone else ())


RECORDS = Pass("records", form_records)
PIPELINE: tuple[Pass, ...] = (
    Pass("canonicalize", canonicalize),
    Pass("rope", fuse_rope),
    Pass("attention", fuse_attention, partial(fuse_attention, assume_hidden=True)),
    Pass("selection", fuse_selection),
    RECORDS,
    Pass("regions", form_regions),
    Pass("dce", _dce),
)


# What a feed, the planner's own graph of a program's slots, goes through.
FEED_PASSES: tuple[Pass, ...] = (Pass("regions", form_regions), Pass("dce", _dce))


def with_records(passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """The passes, RECORDS among them: a device reports guards by records, whatever else is done to
    a graph. It stands before regions are formed, or last."""
    if RECORDS in passes:
        return passes
    names = [p.name for p in passes]
    at = names.index("regions") if "regions" in names else len(passes)
    return (*passes[:at], RECORDS, *passes[at:])


def run_pipeline(
    graph: Graph,
    limits: DeviceLimits,
    passes: tuple[Pass, ...] = PIPELINE,
    *,
    assume_hidden: bool = False,
    check: bool = False,
) -> tuple[Graph, tuple[PassReport, ...]]:
    """The graph after every pass, and a report of each.

    With `check` the graph is verified before the first pass and after each: PassError names the
    pass that broke it. `assume_hidden` lets keys that a finite fill hides go unvisited."""
    if check:
        verify(graph)
    reports: list[PassReport] = []
    for step in passes:
        run = (assume_hidden and step.assuming_hidden) or step.run
        got = run(graph, limits)
        graph = got.graph
        if check:
            _verify_after(step.name, graph)
        reports.append(PassReport(step.name, graph, got.fired, got.notes))
    return graph, tuple(reports)


def _verify_after(name: str, graph: Graph) -> None:
    try:
        verify(graph)
    except VerifyError as e:
        raise PassError(f"{name} left a graph that is none: {e.message}", e.loc) from e
