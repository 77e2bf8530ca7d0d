"""What pyright can't see: Any in a signature, a silenced line without a reason, a loose class."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from tests.support.sources import ROOT, Source, functions, sources

IGNORE = re.compile(r"#\s*(type:\s*ignore|pyright:)")
WITH_REASON = re.compile(r"#\s*pyright:\s*ignore\[[A-Za-z, ]+\] - \S")
# Types that say no more of a value than isinstance does: containers of objects.
CLAIMS_NOTHING = re.compile(r"^(object|np\.ndarray|\w+\[object(, (object|\.\.\.))*\])$")
LOOSE = "# pyright: basic"
# Files that cast many times for one reason.
CASTS = {
    "src/poot/codegen/stored.py": "JSON is typed as it is read",
}
# Dataclasses, or modules of such, that are not frozen, each with its reason. They have slots.
MUTABLE = {
    "poot.codegen.gen": "a kernel in the making",
    "poot.passes.regions": "a grouping in the making",
    "poot.ir.build.Builder": "collects a graph before it is frozen",
    "poot.ops.record.Recorder": "one trace in progress",
    "poot.planner.entry.Homes": "collects where each value lives before a plan is frozen",
    "poot.planner.residents.Spaces": "grows as places are handed out",
    "poot.bound_slots.Bound": "what a slot holds now",
    "poot.frontends.jax.read.Calls": "collects the calls of a jaxpr that is read",
    "poot.frontends.torch.read.Nodes": "collects the calls of a graph that is read",
    "poot.codegen.kir.trips._Counter": "a walk in progress",
    "poot.codegen.llvm.homes._Life": "a walk in progress",
    "poot.oracle.fold.Folded": "values folded so far, shared by entry points",
    "poot.llm.metrics.Tally": "counters of an engine that runs",
    "poot.llm.prefix.Entry": "a cached block: when it was used, and what stands behind it",
    "poot.llm.scheduler.Sequence": "a request's tokens as they come",
    "poot.planner.make.Planner": "a plan in the making",
    "poot.planner.transaction.Transaction": "an entry point's work in the making",
}


def untyped() -> tuple[str, ...]:
    """The wrappers of untyped libraries, as pyproject names them."""
    return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["poot"]["untyped"])


def says_any(source: Source) -> list[str]:
    """Functions with Any in an argument or the result."""
    bad: list[str] = []
    for node in functions(source.tree):
        a = node.args
        args = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
        for hint in (*(arg.annotation for arg in args), node.returns):
            parts = ast.walk(hint) if hint is not None else ()
            if any(getattr(p, "id", getattr(p, "attr", "")) == "Any" for p in parts):
                bad.append(f"{source.path}:{node.lineno} {node.name}")
    return bad


def silenced(source: Source) -> list[str]:
    """Lines that silence a checker without naming the rule and the reason."""
    rows = enumerate(source.lines, 1)
    return [f"{source.path}:{n}" for n, x in rows if IGNORE.search(x) and not WITH_REASON.search(x)]


def bare_casts(source: Source) -> list[str]:
    """Calls of typing.cast that give no reason on their lines, where they claim more than
    isinstance can see."""
    bad: list[str] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cast":
            claim = node.args[0]
            if isinstance(claim, ast.Constant) and CLAIMS_NOTHING.match(str(claim.value)):
                continue
            lines = source.lines[node.lineno - 1 : node.end_lineno]
            if not any("#" in line for line in lines):
                bad.append(f"{source.path}:{node.lineno}")
    return bad


def loose_dataclasses(source: Source) -> list[str]:
    """Dataclasses that lack slots, or aren't frozen and not in MUTABLE."""
    bad: list[str] = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for mark in node.decorator_list:
            call = mark.func if isinstance(mark, ast.Call) else mark
            if getattr(call, "id", getattr(call, "attr", "")) != "dataclass":
                continue
            given = {k.arg for k in mark.keywords} if isinstance(mark, ast.Call) else set[str]()
            name = f"{source.module}.{node.name}."
            may_change = any(name.startswith(f"{known}.") for known in MUTABLE)
            if "slots" not in given or ("frozen" not in given and not may_change):
                bad.append(f"{source.path}:{node.lineno} {node.name}")
    return bad


def test_no_signature_says_any():
    files = [s for s in sources("src") if s.path not in untyped()]
    assert [row for s in files for row in says_any(s)] == []


def test_only_the_named_wrappers_loosen_pyright():
    loosened = {s.path for s in sources("src") if LOOSE in s.lines}
    assert loosened == set(untyped())


def test_a_silenced_line_names_the_rule_and_the_reason():
    files = [s for s in sources("src") if s.path not in untyped()]
    assert [row for s in files for row in silenced(s)] == []


def test_a_cast_gives_its_reason_on_its_line():
    files = [s for s in sources("src") if s.path not in CASTS]
    assert [row for s in files for row in bare_casts(s)] == []


def test_dataclasses_are_frozen_and_have_slots():
    assert [row for s in sources("src") for row in loose_dataclasses(s)] == []


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "src/poot/py.typed").is_file()


@pytest.mark.parametrize(
    "check, text",
    [
        (says_any, "def f(x: dict[str, Any]): ..."),
        (says_any, "def f(*, x: int) -> typing.Any: ..."),
        (silenced, "x = f()  # type: ignore"),
        (silenced, "x = f()  # pyright: ignore"),
        (silenced, "x = f()  # pyright: ignore[reportAttributeAccessIssue]"),
        (bare_casts, "x = cast('int', f())"),
        (bare_casts, "x = cast(int, f())"),
        (bare_casts, "x = cast('dict[str, object]', f())"),
        (loose_dataclasses, "@dataclass\nclass A: ..."),
        (loose_dataclasses, "@dataclass(slots=True)\nclass A: ..."),
        (loose_dataclasses, "@dataclasses.dataclass(frozen=True)\nclass A: ..."),
    ],
)
def test_each_check_finds_what_it_is_for(check, text):
    assert len(check(Source("x.py", "poot.x", text, ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "check, text",
    [
        (says_any, "def f(x: object) -> int: ..."),
        (silenced, "x = f()  # pyright: ignore[reportCallIssue] - the stub lacks it"),
        (bare_casts, "x = cast('int', f())  # f says so"),
        (bare_casts, "x = cast('tuple[object, ...]', f())"),
        (loose_dataclasses, "@dataclass(frozen=True, slots=True)\nclass A: ..."),
    ],
)
def test_no_check_finds_what_is_allowed(check, text):
    assert check(Source("x.py", "poot.x", text, ast.parse(text))) == []
