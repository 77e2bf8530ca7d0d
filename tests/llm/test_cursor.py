"""Checked reads: what moves the cursor, and what refuses without moving it."""

from __future__ import annotations

import struct

import pytest

from poot.errors import FormatError
from poot.llm.cursor import Cursor

U32 = struct.Struct("<I")


def cursor(*parts: bytes) -> Cursor:
    return Cursor(memoryview(b"".join(parts)), "m.gguf")


def test_reads_follow_each_other_to_the_end():
    reader = cursor(U32.pack(7), struct.pack("<Q", 2), "é".encode())
    assert reader.scalar(U32, "a number") == 7
    assert reader.string("a word", limit=10) == "é"
    assert (reader.at, reader.left) == (14, 0)


def test_a_read_past_the_end_names_what_was_read_and_does_not_move():
    reader = cursor(b"abc")
    with pytest.raises(FormatError, match=r"ends inside a number: needs 4 bytes, has 3 .offset 0"):
        reader.scalar(U32, "a number")
    assert reader.at == 0
    assert reader.take(3, "letters") == 0


def test_a_count_past_its_limit_or_past_the_bytes_left_is_refused():
    with pytest.raises(FormatError, match="a count is 9, past poot's limit of 8"):
        cursor(struct.pack("<Q", 9), bytes(100)).count("a count", limit=8, each=1)
    with pytest.raises(FormatError, match="needs 24 bytes or more; the file has 23 left"):
        cursor(struct.pack("<Q", 8), bytes(23)).count("a count", limit=8, each=3)
    assert cursor(struct.pack("<Q", 8), bytes(24)).count("a count", limit=8, each=3) == 8


def test_text_that_is_no_utf8_is_refused_where_it_breaks():
    with pytest.raises(FormatError, match=r"a word is not UTF-8: .* \(offset 9\)"):
        cursor(struct.pack("<Q", 2), b"a\xff").string("a word", limit=10)
