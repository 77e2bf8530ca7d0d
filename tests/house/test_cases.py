"""tests/cases.md has one row for each hard case, and each row is true."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import pytest

from poot import errors
from tests.support.sources import ROOT, sources

NUMBERS = """
1 3 5 8 9 11 12 13 14 15 18 20 21 22 23 24 26 27 28 33 34 35 36 37 38 39 40 41 42 44 45 47 48 50
51 52 53 54 57 58 59 62 64 65 66 67 68 70 71 73 74 76 78 79 82 84 85 88 89 90 92 95 96 98 101 103
104 106 107 108 110 111 112 115 116 117 118 119 120 122 123 124 125 126 127 128 130 131 132 133
"""
CASES = tuple(int(number) for number in NUMBERS.split())
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+) \|$")
TEST = re.compile(r"^`(tests/[\w/]+\.py)::(\w+)(\[[^`]*\])?`$")
REFUSED = re.compile(r"^refused: (\w+), (\S.*)$")
LATER = re.compile(r"^later: ([1-9]) of 9$")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the case's number and what stands in its last column, piece by piece."""

    case: int
    pieces: tuple[str, ...]


def rows(text: str) -> tuple[Row, ...]:
    """The rows of the table. Raises ValueError on a line that begins as a row and isn't one."""
    found: list[Row] = []
    for line in text.splitlines():
        if not re.match(r"^\|\s*\d", line):
            continue
        match = ROW.match(line)
        if match is None:
            raise ValueError(f"no row of three columns: {line}")
        pieces = tuple(p.strip() for p in match[3].split(";"))
        found.append(Row(int(match[1]), pieces))
    return tuple(found)


def wrong(piece: str, tests: frozenset[tuple[str, str]]) -> str | None:
    """What is wrong with one piece of a row, or None. `tests` holds every (file, test name)."""
    if match := TEST.match(piece):
        return None if (match[1], match[2]) in tests else f"there is no test {piece}"
    if match := REFUSED.match(piece):
        error = getattr(errors, match[1], None)
        is_one = isinstance(error, type) and issubclass(error, errors.PootError)
        return None if is_one else f"{match[1]} is no error of poot's"
    return None if LATER.match(piece) else f"{piece!r} is no test id, no refusal and no job"


def all_tests() -> frozenset[tuple[str, str]]:
    """(file, name) of every test function, those in classes too."""
    return frozenset(
        (s.path, node.name)
        for s in sources("tests")
        for node in ast.walk(s.tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def table() -> tuple[Row, ...]:
    return rows((ROOT / "tests/cases.md").read_text())


def test_each_case_has_one_row_in_order():
    assert tuple(row.case for row in table()) == CASES


def test_each_row_is_true():
    tests = all_tests()
    bad = [f"case {r.case}: {w}" for r in table() for p in r.pieces if (w := wrong(p, tests))]
    assert bad == []


@pytest.mark.parametrize(
    "piece, found",
    [
        ("`tests/a/test_b.py::test_gone`", "there is no test"),
        ("tests/a/test_b.py::test_here", "no test id"),
        ("refused: ValueError, too wide", "no error of poot's"),
        ("refused: GridLimit", "no test id"),
        ("later: 10 of 9", "no job"),
        ("later", "no job"),
        ("", "no job"),
    ],
)
def test_a_false_row_is_found(piece, found):
    assert found in (wrong(piece, frozenset({("tests/a/test_b.py", "test_here")})) or "")


@pytest.mark.parametrize(
    "piece",
    [
        "`tests/a/test_b.py::test_here`",
        "`tests/a/test_b.py::test_here[f16-vulkan]`",
        "refused: TypeRuleError, a softmax over no key has no meaning",
        "later: 4 of 9",
    ],
)
def test_a_true_row_is_not_found(piece):
    assert wrong(piece, frozenset({("tests/a/test_b.py", "test_here")})) is None


def test_a_broken_row_is_no_row():
    with pytest.raises(ValueError, match="three columns"):
        rows("| 7 | only two |")
