"""Words and marks."""

from __future__ import annotations

import pytest

from poot.errors import ParseError
from poot.ir.tokens import Cursor, tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    return [(t.kind, t.text) for t in tokenize(text)][:-1]


@pytest.mark.parametrize(
    "text, kind",
    [
        ("12", "int"),
        ("-3", "int"),
        ("1.5", "float"),
        ("-1e-45", "float"),
        ("1e+16", "float"),
        ("-inf", "float"),
        ("nan", "float"),
        ("infinity", "word"),
        ("_a1", "word"),
        ("0x00ff", "hex"),
        ("0x", "hex"),
        ('"a \\" b"', "string"),
        ("->", "mark"),
        ("# to the end", "comment"),
    ],
)
def test_one_token_is_of_its_kind(text: str, kind: str):
    assert kinds(text) == [(kind, text)]


def test_lines_are_counted_from_one():
    assert [t.line for t in tokenize("a\n\nb") if t.kind == "word"] == [1, 3]


def test_a_stray_character_is_refused_with_its_line():
    with pytest.raises(ParseError, match="line 2: expected a word, number or mark at '%'"):
        tokenize("a\nb %")


def test_the_cursor_stays_at_the_end():
    cursor = Cursor("a")
    assert [cursor.next().kind for _ in range(3)] == ["word", "end", "end"]


def test_a_long_line_is_cut_in_the_error():
    with pytest.raises(ParseError, match=r"x{160} \.\.\.$"):
        Cursor("x" * 10_000).mark(":")
