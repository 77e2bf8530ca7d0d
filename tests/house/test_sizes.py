"""No file over 500 lines, no function over 80: the style asks for 40."""

from __future__ import annotations

import ast

import pytest

from tests.support.sources import ROOT, code_lines, long_functions, sources

FILE_LINES = 500
FUNCTION_LINES = 80


def test_no_file_is_over_500_lines():
    texts = {s.path: s.text for s in sources()}
    for pattern in ("src/poot/**/*.[chw]*", "scripts/*.sh", "docs/**/*.md"):
        made = ("docs/ops.md",)
        found = (p for p in ROOT.glob(pattern) if p.suffix != ".py")
        texts |= {n: p.read_text() for p in found if (n := str(p.relative_to(ROOT))) not in made}
    long = {path: n for path, text in texts.items() if (n := len(text.splitlines())) > FILE_LINES}
    assert long == {}


def test_no_function_is_over_80_lines():
    assert long_functions(FUNCTION_LINES) == []


@pytest.mark.parametrize(
    "text, lines",
    [
        ("def f():\n    return 1", 2),
        ('def f():\n    """One.\n\n    Two."""\n    return 1', 2),
        ("async def f(\n    x,\n):\n    return x", 4),
    ],
)
def test_a_docstring_does_not_count(text, lines):
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert code_lines(node) == lines
