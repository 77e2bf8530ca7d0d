"""Tests mirror the source: tests/a/test_b.py is for src/poot/a/b.py; each source file has one."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from tests.support.sources import ROOT, Source, sources

FREE = ("tests/house/", "tests/support/", "tests/cases/", "tests/suites/")


def source_of(test: str) -> tuple[str, str]:
    """The file or package that a test file is for, as paths from the root."""
    path = PurePosixPath(test)
    base = f"src/poot/{'/'.join((*path.parts[1:-1], path.stem.removeprefix('test_')))}"
    return f"{base}.py", f"{base}/__init__.py"


def has_code(source: Source) -> bool:
    """Whether a file holds a function: what only declares data is tested by what reads it."""
    return any(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(source.tree))


def test_every_test_file_mirrors_a_source_file():
    lost = [
        s.path
        for s in sources("tests")
        if PurePosixPath(s.path).name.startswith("test_") and not s.path.startswith(FREE)
        if not any((ROOT / p).is_file() for p in source_of(s.path))
    ]
    assert lost == [], "these test files stand for no file of src/poot"


def test_every_source_file_has_a_test_file():
    own = [s.path for s in sources("tests") if not s.path.startswith(FREE)]
    mirrored = {path for test in own for path in source_of(test)}
    bare = [s.path for s in sources("src") if has_code(s) and s.path not in mirrored]
    assert bare == [], "these source files have no test file"


def test_every_test_is_collected():
    stray = [
        f"{s.path}: {node.name}"
        for s in sources("tests")
        if not PurePosixPath(s.path).name.startswith("test_")
        for node in s.tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert stray == [], "pytest collects tests from files named test_*.py alone"


def test_no_test_file_holds_two_tests_of_one_name():
    bad: list[str] = []
    for s in sources("tests"):
        names = [n.name for n in s.tree.body if isinstance(n, ast.FunctionDef)]
        bad += [f"{s.path}: {n}" for n in sorted({n for n in names if names.count(n) > 1})]
    assert bad == []
