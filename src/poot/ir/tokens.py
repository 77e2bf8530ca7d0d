"""Words and marks of the graph's text, and a cursor whose errors say what was expected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, cast

from poot.errors import ParseError

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)
      | (?P<comment>\#[^\n]*)
      | (?P<line>\n)
      | (?P<hex>0x[0-9a-f]*)
      | (?P<float>-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf\b|nan\b))
      | (?P<int>-?\d{1,20}(?!\d))
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<mark>->|[=:,()\[\]{}])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is hex, float, int, word, string, mark, comment, line or end; `line` counts from 1."""

    kind: str
    text: str
    line: int


def _shown(text: str, line: int) -> str:
    """A line as an error shows it: its first 160 characters."""
    whole = text.split("\n")[line - 1].strip()
    return whole if len(whole) <= 160 else f"{whole[:160]} ..."


def tokenize(text: str) -> list[Token]:
    """Every token but blanks, then one of kind "end". Raises ParseError at a stray character, and
    on what is no text."""
    if not isinstance(cast("object", text), str):  # it comes from the user
        raise ParseError(f"a text is needed: got {type(text).__name__}")
    tokens: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            what = f"expected a word, number or mark at {text[at]!r}"
            raise ParseError(f"line {line}: {what}: {_shown(text, line)}")
        kind = found.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, found.group(), line))
        line += kind == "line"
        at = found.end()
    tokens.append(Token("end", "", line))
    return tokens


class Cursor:
    """Steps over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._at = 0

    @property
    def here(self) -> Token:
        return self._tokens[self._at]

    def next(self) -> Token:
        """The token here; the cursor moves on, but never past the end."""
        token = self.here
        self._at += token.kind != "end"
        return token

    def is_next(self, text: str) -> bool:
        """Whether the token after the one here is that mark."""
        after = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        return after.kind == "mark" and after.text == text

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        """Raises ParseError: the line's number, what was expected, what stood there, the line."""
        token = token or self.here
        found = {"line": "the end of the line", "end": "the end of the text"}.get(
            token.kind, token.text
        )
        self.broken(f"expected {expected}, found {found}", token.line)

    def broken(self, what: str, line: int) -> NoReturn:
        """Raises ParseError with the line's number and words."""
        raise ParseError(f"line {line}: {what}: {_shown(self._text, line)}")

    def take(self, kind: str, expected: str) -> Token:
        """The token here, which must be of that kind."""
        if self.here.kind != kind:
            self.fail(expected)
        return self.next()

    def mark(self, text: str) -> Token:
        """The token here, which must be that mark."""
        if self.here.kind != "mark" or self.here.text != text:
            self.fail(repr(text))
        return self.next()

    def has_mark(self, text: str) -> bool:
        """Whether that mark stands here; if so the cursor passes it."""
        found = self.here.kind == "mark" and self.here.text == text
        self._at += found
        return found

    def skip_lines(self) -> None:
        """Passes line ends and comments."""
        while self.here.kind in ("line", "comment"):
            self._at += 1

    def end_line(self) -> str:
        """Passes the end of a statement; its comment without the mark, or ""."""
        comment = self.next().text[1:].strip() if self.here.kind == "comment" else ""
        closing = self.here.kind == "mark" and self.here.text == "}"
        if self.here.kind not in ("line", "end") and not closing:
            self.fail("the end of the line")
        self.skip_lines()
        return comment
