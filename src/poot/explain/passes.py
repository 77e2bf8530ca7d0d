"""What each pass did to a graph: eqns gone and come, side by side, with notes and source lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath

from poot.compiled import CompiledEntry
from poot.explain.markup import row, table, tag, text
from poot.ir.graph import Eqn, Graph
from poot.ir.text import show, show_eqn
from poot.passes.pipeline import PassReport

_CONTEXT = 2  # unchanged eqns shown before and after a change
_WIDTH, _HEIGHT, _SHOWN_OPS = 760, 26, 9


@dataclass(frozen=True, slots=True)
class Hunk:
    """A run of eqns: the same in both graphs, or gone on the left and come on the right."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    is_same: bool


def hunks(before: tuple[str, ...], after: tuple[str, ...]) -> list[Hunk]:
    """The two lists of distinct texts as runs, in linear time. A text that stands in both but
    moved forward counts as gone and come."""
    place = {line: n for n, line in enumerate(after)}
    out: list[Hunk] = []
    same: list[str] = []
    gone: list[str] = []
    at = 0

    def changed(until: int) -> None:
        nonlocal at, same, gone
        if same and (gone or until > at):
            out.append(Hunk(tuple(same), tuple(same), True))
            same = []
        if gone or until > at:
            out.append(Hunk(tuple(gone), after[at:until], False))
        gone, at = [], until

    for line in before:
        found = place.get(line, -1)
        if found < at:
            gone.append(line)
            continue
        changed(found)
        same.append(line)
        at = found + 1
    changed(len(after))
    if same:
        out.append(Hunk(tuple(same), tuple(same), True))
    return out


def _places(graph: Graph) -> dict[str, str]:
    """The text of each eqn, and the file and line it comes from."""
    return {show_eqn(e): PurePath(e.loc).name for e in graph.eqns}


def _located(lines: tuple[str, ...], places: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{line}    # {places[line]}" if places[line] else line for line in lines)


def _lines(lines: tuple[str, ...]) -> str:
    return tag("pre", text("\n".join(lines)))


def _pair(left: str, right: str, kind: str) -> str:
    return tag("div", tag("div", left), tag("div", right), class_=f"pair {kind}")


def _same(lines: tuple[str, ...], is_first: bool, is_last: bool) -> str:
    """An unchanged run: what borders on a change, and the rest folded."""
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    if len(lines) <= head + tail + 1:
        return _pair(_lines(lines), _lines(lines), "same")
    top, middle = lines[:head], lines[head : len(lines) - tail]
    foot = lines[len(lines) - tail :]
    fold = tag(
        "details",
        tag("summary", text(f"{len(middle)} eqns unchanged")),
        _lines(middle),
        class_="fold",
    )
    parts = [
        _pair(_lines(top), _lines(top), "same") if top else "",
        fold,
        _pair(_lines(foot), _lines(foot), "same") if foot else "",
    ]
    return "".join(parts)


def difference(before: Graph, after: Graph) -> str:
    """Both graphs' eqns in two columns, changes marked and with their source lines, what is the
    same in both folded."""
    old, new = _places(before), _places(after)
    found = hunks(tuple(old), tuple(new))
    last = len(found) - 1
    return "".join(
        _same(h.before, n == 0, n == last)
        if h.is_same
        else _pair(_lines(_located(h.before, old)), _lines(_located(h.after, new)), "changed")
        for n, h in enumerate(found)
    )


def _notes(report: PassReport) -> str:
    rows = [
        row(
            text(note.kind),
            text(count),
            text(note.what),
            tag("code", text(note.loc)) if note.loc else "",
            class_=note.kind,
        )
        for note, count in Counter(report.notes).items()
    ]
    return (
        table(("", "times", "what, and why", "source line"), rows, class_="notes") if rows else ""
    )


def _one(report: PassReport, before: Graph) -> str:
    fired = ", ".join(f"{name} {n}" for name, n in report.fired) or "nothing to do"
    counts = f"{len(before.eqns)} → {len(report.graph.eqns)} eqns"
    declined = len(report.declined)
    head = tag(
        "summary",
        tag("b", text(report.name)),
        tag("span", text(counts), class_="count"),
        tag("span", text(fired), class_="fired"),
        tag("span", text(f"{declined} declined"), class_="declined") if declined else "",
    )
    changed = report.graph != before
    body = difference(before, report.graph) if changed else tag("p", "The graph is unchanged.")
    return tag("details", head, _notes(report), body, class_="pass")


def _kind(eqn: Eqn) -> str:
    """What a bar counts an eqn as: its op, or the kind of region."""
    return f"{eqn.attr('anchor')} region" if eqn.op == "region" else eqn.op


def _bars(entry: CompiledEntry) -> str:
    """How many eqns of which ops each stage left, as bars."""
    stages = [("trace", entry.source), *((r.name, r.graph) for r in entry.reports)]
    kinds = [Counter(map(_kind, graph.eqns)) for _, graph in stages]
    total = sum(kinds, Counter[str]())
    fused = [op for op in total if "attention" in op]
    common = [op for op, _ in total.most_common() if op not in fused]
    ops = [*fused, *common][:_SHOWN_OPS]
    most = max(1, *(len(g.eqns) for _, g in stages))
    drawn: list[str] = []
    for n, (name, graph) in enumerate(stages):
        counts = {op: kinds[n][op] for op in ops}
        counts["other"] = len(graph.eqns) - sum(counts.values())
        x, y = 110.0, n * _HEIGHT
        drawn.append(tag("text", text(name), x=104, y=y + 17, text_anchor="end"))
        for k, op in enumerate((*ops, "other")):
            wide = counts[op] / most * (_WIDTH - 170)
            if wide > 0:
                title = tag("title", text(f"{counts[op]} x {op} after {name}"))
                drawn.append(
                    tag("rect", title, x=f"{x:.1f}", y=y + 4, width=f"{wide:.1f}", height=18,
                        class_=f"c{k}")
                )  # fmt: skip
                x += wide
        drawn.append(tag("text", text(len(graph.eqns)), x=f"{x + 6:.1f}", y=y + 17))
    legend = "".join(
        tag("span", tag("i", class_=f"c{k}"), text(op), class_="key")
        for k, op in enumerate((*ops, "other"))
    )
    high = len(stages) * _HEIGHT + 4
    picture = tag("svg", *drawn, viewBox=f"0 0 {_WIDTH} {high}", width=_WIDTH, height=high)
    return tag("figure", picture, tag("figcaption", legend))


def passes(entry: CompiledEntry) -> str:
    """The section of an entry point's passes: a bar a stage, then each pass."""
    parts = [_bars(entry)]
    before = entry.source
    for report in entry.reports:
        parts.append(_one(report, before))
        before = report.graph
    for name, graph in (("trace", entry.source), ("final", entry.final)):
        whole = tag("pre", text(show(graph, loc=True)))
        parts.append(tag("details", tag("summary", text(f"whole graph: {name}")), whole))
    return "".join(parts)
