"""One compile as one HTML page that needs nothing else: graphs before and after each pass, steps,
memory over time, kernels' text, and times where they were measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.resources import files

from poot.compiled import CompiledEntry
from poot.errors import BindError
from poot.explain.markup import row, table, tag, text
from poot.explain.memory import arena, spaces
from poot.explain.passes import passes
from poot.explain.steps import steps
from poot.profile import Profile
from poot.program import Compiled


def page(program: Compiled, profiles: Mapping[str, Profile] | None = None) -> str:
    """The page's text, UTF-8 when it is written. `profiles` by entry point, of sessions of this
    program (`session.profile`), put times beside its steps.

    Raises BindError on a profile of an entry point that the program hasn't."""
    given = dict(profiles or {})
    unknown = sorted(given.keys() - program.entries.keys())
    if unknown:
        known = ", ".join(sorted(program.entries))
        raise BindError(f"explain has no entry point {unknown[0]!r}; entry points: {known}")
    room = files("poot.explain")
    style = room.joinpath("page.css").read_text("utf-8")
    script = room.joinpath("page.js").read_text("utf-8")
    entries = [
        _entry(program, name, entry, given.get(name)) for name, entry in program.entries.items()
    ]
    body = tag("body", _head(program, given), *entries, _kernels(program), tag("script", script))
    top = tag(
        "head",
        '<meta charset="utf-8"/><meta name="viewport" content="width=device-width"/>',
        tag("title", text(f"poot explain: {program.target}")),
        tag("style", style),
    )
    return f"<!doctype html>\n{tag('html', top, body, lang='en')}\n"


def _head(program: Compiled, profiles: Mapping[str, Profile]) -> str:
    rows = [_summary(name, e, profiles.get(name)) for name, e in program.entries.items()]
    timed = [f"{name} {s:.2f} s" for name, s in program.seconds.items()]
    where = program.limits.name if program.device is None else program.device.description
    return tag(
        "header",
        tag("h1", text(f"{program.target}: {where}")),
        tag("p", text(f"plan {program.key[:16]}; {len(program.codes)} kernels; compiled in "),
            text(", ".join(timed))),
        table(("entry point", "eqns traced", "eqns left", "steps", "attention", "declined", "µs"),
              rows),
        tag("h2", "Memory of a session"),
        spaces(program.memory()),
    )  # fmt: skip


def _summary(name: str, entry: CompiledEntry, profile: Profile | None) -> str:
    ops = Counter(e.op for e in entry.final.eqns)
    ops.update(
        inner.op
        for e in entry.final.eqns
        for _, value in e.attrs
        for inner in getattr(value, "eqns", ())
    )
    fused = ops["attention"] + ops["selected_attention"]
    declined = sum(len(r.declined) for r in entry.reports)
    return row(
        tag("a", text(name), href=f"#{_anchor(name)}"),
        text(len(entry.source.eqns)),
        text(len(entry.final.eqns)),
        text(len(entry.plan.steps)),
        text(fused),
        text(declined),
        text(f"{profile.us:.1f}" if profile is not None else "not measured"),
    )


def _anchor(name: str) -> str:
    return f"entry-{name.encode().hex()}"


def _entry(program: Compiled, name: str, entry: CompiledEntry, profile: Profile | None) -> str:
    nbytes = dict(program.plan.spaces).get("arena", 0)
    return tag(
        "section",
        tag("h2", text(name)),
        tag("h3", "Passes"),
        passes(entry),
        tag("h3", "Arena over time"),
        arena(entry.plan, nbytes),
        tag("h3", "Steps"),
        steps(program, entry.plan, profile),
        id=_anchor(name),
    )


def _kernels(program: Compiled) -> str:
    uses: Counter[str] = Counter()
    for plan in program.plan.lists:
        for step in plan.steps:
            uses.update(program.call_keys[step.request])
    parts = [
        tag(
            "details",
            tag(
                "summary",
                tag("b", text(code.name)),
                tag("span", text(f"{uses[code.key]} launches"), class_="count"),
                tag("span", text(f"{len(code.text.splitlines())} lines"), class_="fired"),
            ),
            tag("pre", text(code.text)),
            id=f"kernel{n}",
            class_="kernel",
        )
        for n, code in enumerate(program.codes)
    ]
    return tag("section", tag("h2", "Kernels"), *parts)
