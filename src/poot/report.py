"""What a compile did, as text: passes and declines, steps and schedules, kernels, memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast
from urllib.parse import quote

from poot.errors import BindError
from poot.ir.text import show
from poot.planner.plan import EntryPlan
from poot.program import Compiled


def _steps(entry: EntryPlan) -> list[str]:
    rows = Counter(
        (s.op, s.request.schedule.name, s.request.schedule.params, s.reason) for s in entry.steps
    )
    out: list[str] = []
    for (op, schedule, params, reason), n in rows.items():
        numbers = " ".join(f"{k}={v}" for k, v in params)
        out.append(
            f"  {n:>4} x {op}: {schedule} {numbers}".rstrip() + (f" ({reason})" if reason else "")
        )
    return out


def _transaction(entry: EntryPlan) -> list[str]:
    """How State is written: under which guards, what is kept to be put back, what is copied
    whole."""
    out: list[str] = []
    late = sum(entry.late)
    early = len(entry.late) - late
    writes = [s for s in entry.steps if any(p.space.startswith("states") for p in s.outs)]
    if entry.late:
        out.append(f"  guards: {early} before all State writes, {late} behind one")
    if entry.fed:
        out.append(f"  slots checked where they come from the device: {', '.join(entry.fed)}")
    verdict = entry.verdict
    if verdict is not None:
        held = sum(s.request.condition is not None for s in writes) - len(verdict.undo)
        out.append(f"  State: {held} steps write it under the guards' word")
        for undo in verdict.undo:
            kept = entry.steps[undo.save]
            nbytes = sum(p.nbytes for p in kept.outs)
            at = f"  at {kept.loc}" if kept.loc else ""
            out.append(f"  State: {nbytes} bytes kept, to be put back if a guard fails{at}")
    for step in writes:
        if not step.request.updates:
            p = step.outs[0]
            out.append(
                f"  State: {p.nbytes} bytes of {p.space}+{p.offset} written whole, by a copy"
            )
    return out


def explain(program: Compiled) -> str:
    """Every entry point: what the passes did and declined, with source lines; then steps, kernels
    and memory."""
    lines = [f"target {program.target} ({program.limits.name}), plan {program.key[:16]}"]
    for name, entry in program.entries.items():
        lines.append(
            f"entry point {name!r}: {len(entry.source.eqns)} eqns, {len(entry.plan.steps)} steps"
        )
        for report in entry.reports:
            lines += [f"  {line}" for line in report.lines()]
        lines += _steps(entry.plan)
        lines += _transaction(entry.plan)
    lines.append(f"{len(program.codes)} kernels")
    lines += [f"  {line}" for line in str(program.memory()).split("\n")]
    return "\n".join(lines)


def _plan_text(entry: EntryPlan) -> str:
    lines: list[str] = []
    for n, s in enumerate(entry.steps):
        places = ", ".join(f"{p.name}@{p.space}+{p.offset}" for p in s.ins)
        outs = ", ".join(f"{p.name}@{p.space}+{p.offset}" for p in s.outs)
        lines.append(
            f"{n:>4} {s.op}: {outs} <- {places} [{s.request.schedule.name}] {s.loc}".rstrip()
        )
    return "\n".join(lines)


def stage_text(program: Compiled, stage: str, entry: str | None) -> str:
    """One stage of one entry point (or all), as text. Raises BindError with the list of stages, or
    of entry points."""
    if not isinstance(cast("object", stage), str):  # it comes from the user
        raise BindError(f"a stage is named by a text: got {stage!r}")
    if entry is not None and not isinstance(cast("object", entry), str):
        raise BindError(f"an entry point is named by a text: got {entry!r}")
    if stage == "kernels":
        return "\n\n".join(c.text for c in program.codes)
    if entry is not None and entry not in program.entries:
        known = ", ".join(sorted(program.entries))
        raise BindError(f"there is no entry point {entry!r}; entry points: {known}")
    chosen = {n: e for n, e in program.entries.items() if entry in (None, n)}
    out: list[str] = []
    for name, e in chosen.items():
        texts = {"trace": show(e.source), "final": show(e.final), "plan": _plan_text(e.plan)}
        texts |= {r.name: show(r.graph) for r in e.reports}
        if stage not in texts:
            raise BindError(
                f"there is no stage {stage!r}; stages: {', '.join([*texts, 'kernels'])}"
            )
        out.append(f"# {name}\n{texts[stage]}")
    return "\n".join(out)


def dump(program: Compiled, folder: Path) -> None:
    """Every stage of a compile as text files in a folder of the plan's name below `folder`:
    `main.00-trace.txt`, ..., `kernel0.txt`, `explain.txt`. What of an entry
    point's name can't stand in a file's is written %xx."""
    place = folder / program.key[:16]
    place.mkdir(parents=True, exist_ok=True)
    for name, entry in program.entries.items():
        stages = ["trace", *(r.name for r in entry.reports), "final", "plan"]
        for n, stage in enumerate(stages):
            text = stage_text(program, stage, name)
            (place / f"{quote(name, safe='')[:200]}.{n:02}-{stage}.txt").write_text(text + "\n")
    for n, code in enumerate(program.codes):
        (place / f"kernel{n}.txt").write_text(code.text + "\n")
    (place / "explain.txt").write_text(explain(program) + "\n")
