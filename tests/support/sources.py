"""The repository's Python files, parsed once, for the house tests."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "scripts", "benchmarks")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path from the root, its module's dotted name, text and tree."""

    path: str
    module: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every .py file under the folders (all of FOLDERS if none is given), sorted by path."""
    found: list[Source] = []
    for folder in folders or FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT)
            parts = path.with_suffix("").parts[1 if folder == "src" else 0 :]
            module = ".".join(parts).removesuffix(".__init__")
            text = file.read_text()
            found.append(Source(path.as_posix(), module, text, ast.parse(text, path.as_posix())))
    return tuple(found)


def functions(tree: ast.Module) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def code_lines(node: Function) -> int:
    """Lines of a function from `def` to its end, less its docstring."""
    first = node.body[0]
    end = node.end_lineno or node.lineno
    doc = 0
    if ast.get_docstring(node) is not None:
        doc = (first.end_lineno or first.lineno) - first.lineno + 1
    return end - node.lineno + 1 - doc


def long_functions(limit: int) -> list[str]:
    """Functions of more than `limit` lines without the docstring, longest first."""
    rows = [
        (code_lines(node), f"{source.path}:{node.lineno} {node.name}")
        for source in sources()
        for node in functions(source.tree)
    ]
    return [f"{n} lines: {where}" for n, where in sorted(rows, reverse=True) if n > limit]
