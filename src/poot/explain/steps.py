"""The steps of an entry point as rows: what runs by which schedule and why, what reads what, and
how long it took."""

from __future__ import annotations

from pathlib import PurePath

from poot.explain.markup import row, size, table, tag, text
from poot.explain.memory import kind_of
from poot.planner.plan import EntryPlan
from poot.profile import Profile
from poot.program import Compiled

_ROW, _RAIL = 28, 96  # pixels of a row (page.css says the same) and of the column of arcs
_BAR = 120


def step_times(program: Compiled, entry: EntryPlan, profile: Profile) -> list[float]:
    """Microseconds of each step: the sum of its launches, which a profile holds in order."""
    counts = [len(program.lowered[s.request].calls) for s in entry.steps]
    times = [us for _, _, us in profile.launches]
    if len(times) != sum(counts):  # another program's, or the oracle's
        return []
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    return [sum(times[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def arcs(entry: EntryPlan) -> list[tuple[int, int]]:
    """(writer, reader) pairs of steps: the last step before that wrote a place of that name."""
    writer: dict[tuple[str, str], int] = {}
    found: dict[tuple[int, int], None] = {}
    for n, step in enumerate(entry.steps):
        for place in step.ins:
            made = writer.get((place.space, place.name))
            if made is not None:
                found[made, n] = None
        for place in step.outs:
            writer[place.space, place.name] = n
    return list(found)


def _arcs(entry: EntryPlan) -> str:
    drawn: list[str] = []
    for made, read in arcs(entry):
        y0, y1 = (made + 0.5) * _ROW, (read + 0.5) * _ROW
        out = _RAIL - min(_RAIL - 6, 8 * (read - made) ** 0.7 + 4)
        curve = f"M{_RAIL} {y0:.0f}C{out:.0f} {y0:.0f} {out:.0f} {y1:.0f} {_RAIL} {y1:.0f}"
        kind = kind_of(entry.steps[made])
        title = tag("title", text(f"step {read} reads step {made}"))
        drawn.append(tag("path", title, d=curve, class_=f"arc {kind}"))
    high = len(entry.steps) * _ROW
    return tag("svg", *drawn, width=_RAIL, height=high, viewBox=f"0 0 {_RAIL} {high}")


def _bar(us: float, most: float) -> str:
    wide = max(1, round(_BAR * us / most)) if us == us and most else 0
    shown = f"{us:.1f}" if us == us else "not told"
    return tag("i", style=f"width:{wide}px", class_="time") + text(shown)


def _kernels(program: Compiled, numbers: dict[str, int], keys: tuple[str, ...]) -> str:
    links = [
        tag("a", text(f"{program.codes[numbers[key]].name}"), href=f"#kernel{numbers[key]}")
        for key in keys
    ]
    return ", ".join(links)


def steps(program: Compiled, entry: EntryPlan, profile: Profile | None) -> str:
    """The section of an entry point's steps. Times stand where `profile` measured this program."""
    times = step_times(program, entry, profile) if profile is not None else []
    numbers = program.kernel_index()
    most = max((t for t in times if t == t), default=0.0)
    rows: list[str] = []
    for n, step in enumerate(entry.steps):
        schedule = step.request.schedule
        params = " ".join(f"{k}={v}" for k, v in schedule.params)
        outs = ", ".join(str(v.type) for v in step.request.body.outputs)
        cells = [
            text(n),
            tag("i", class_=f"dot {kind_of(step)}") + text(step.op),
            tag("code", text(PurePath(step.loc).name), title=step.loc),
            text(outs),
            text(f"{schedule.name} {params}".rstrip()),
            _kernels(program, numbers, program.call_keys[step.request]),
            text(size(sum(p.nbytes for p in step.ins))),
            text(step.reason),
        ]
        if times:
            cells.insert(1, _bar(times[n], most))
        rows.append(row(*cells))
    head = ["", "step", "source line", "makes", "schedule", "kernels", "reads", "why"]
    if times:
        head.insert(1, "µs")
    body = table(tuple(head), rows, class_="steps")
    return tag("div", tag("div", _arcs(entry), class_="rail"), body, class_="flow")
