"""Imports point down the layers, wherever in a file they stand, and never round in a circle."""

from __future__ import annotations

import ast
import graphlib

import pytest

from tests.support.sources import Source, functions, sources

LAYERS = (
    "errors knobs limits cache collector extras",
    "ir slots device_bytes dlpack codegen.kir",
    "oracle trace ops",
    "passes",
    "planner",
    "codegen",
    "backends",
    "program device_array failures staged_slots step_slots carried quick_step runner oracle_runner"
    " tagged binding foreign_array bound_slots locks profile session report launch_lists bundle"
    " lowering compiled kept later making api jit caller_runner",
    "explain cli llm frontends torch",
)
RANK = {f"poot.{name}": rank for rank, row in enumerate(LAYERS) for name in row.split()}
# Rooms side by side: none of a row imports another of its row.
APART = (
    "poot.codegen.gen poot.codegen.spirv poot.codegen.ptx poot.codegen.hip poot.codegen.llvm",
    "poot.backends.vulkan poot.backends.wgpu poot.backends.cuda poot.backends.hip"
    " poot.backends.cpu poot.backends.oracle",
)
# Imports that stand inside a function, each with its reason.
INSIDE = {
    ("poot.ir.graph", "poot.ir.text"): "a graph prints by its text, and the text is made of graphs",
}
ROOT_MODULES = ("poot", "poot.__main__")  # what users import: above every layer


def rank(module: str) -> int | None:
    """The layer of a module, by the longest name in RANK that it lies under; None for the root."""
    parts = module.split(".")
    names = [".".join(parts[:n]) for n in range(len(parts), 1, -1)]
    return next((RANK[name] for name in names if name in RANK), None)


def imports(tree: ast.AST, modules: frozenset[str]) -> set[str]:
    """The modules of poot that a tree imports; `from a import b` is a.b where that is a module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import at line {node.lineno}"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in modules else base)
    return {name for name in found if name == "poot" or name.startswith("poot.")}


def inner_imports(file: Source, modules: frozenset[str]) -> set[tuple[str, str]]:
    """(module, what it imports inside a function), other libraries by their names."""
    found: set[tuple[str, str]] = set()
    for function in functions(file.tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                base = getattr(node, "module", None)
                others = {base} if base else {alias.name for alias in node.names}
                found |= {(file.module, name) for name in imports(node, modules) or others}
    return found


def upward(files: tuple[Source, ...]) -> list[str]:
    """One line for each import that doesn't point down."""
    modules = frozenset(f.module for f in files)
    bad: list[str] = []
    for file in files:
        here = rank(file.module)
        for needed in sorted(imports(file.tree, modules)):
            there = rank(needed)
            if file.module in ROOT_MODULES:
                continue
            if here is None:
                bad.append(f"{file.module} has no layer: add it to LAYERS")
            elif there is None or there > here:
                bad.append(f"{file.module} imports {needed}, which lies above it")
    return bad


def test_imports_point_down():
    assert upward(sources("src")) == []


def test_rooms_side_by_side_stay_apart():
    files = sources("src")
    modules = frozenset(f.module for f in files)
    bad: list[str] = []
    for row in APART:
        rooms = row.split()
        for file in files:
            own = [r for r in rooms if f"{file.module}.".startswith(f"{r}.")]
            others = tuple(f"{r}." for r in rooms if r not in own)
            if own:
                needed = imports(file.tree, modules)
                bad += [f"{file.module} imports {m}" for m in needed if f"{m}.".startswith(others)]
    assert bad == []


def test_no_imports_go_round():
    files = sources("src")
    modules = frozenset(f.module for f in files)
    needs = {
        f.module: {m for m in imports(f.tree, modules) if (f.module, m) not in INSIDE}
        for f in files
        if f.module not in ROOT_MODULES
    }
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError, naming the cycle


def test_imports_stand_at_the_top_but_for_the_named_exceptions():
    files = sources("src")
    modules = frozenset(f.module for f in files)
    found = {pair for file in files for pair in inner_imports(file, modules)}
    assert found == set(INSIDE)


@pytest.mark.parametrize(
    "module, text, found",
    [
        ("poot.ir.x", "from poot.passes.engine import run", "poot.passes.engine"),
        ("poot.ir.x", "def f():\n    import poot.api", "poot.api"),
        ("poot.planner.x", "from poot import trace", "poot, which"),
        ("poot.oracle.x", "import poot.codegen.spirv", "poot.codegen.spirv"),
        ("poot.newroom", "import poot.errors", "no layer"),
    ],
)
def test_an_import_that_points_up_is_found(module, text, found):
    (line,) = upward((Source("x.py", module, text, ast.parse(text)),))
    assert found in line
