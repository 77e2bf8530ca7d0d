"""Typed reads of metadata."""

from __future__ import annotations

import re

import pytest

from poot.errors import FormatError
from poot.llm.keys import Keys

KEYS = Keys(
    "m.gguf",
    {
        "n": 3,
        "yes": True,
        "x": 0.5,
        "nan": float("nan"),
        "inf": float("inf"),
        "word": "w",
        "words": ("a", "b"),
        "mixed": ("a", 1),
        "numbers": (1, 2),
        "flags": (True, False),
    },
)


def refusal(words: str) -> pytest.RaisesExc[FormatError]:
    return pytest.RaisesExc(FormatError, match=re.escape(words))


def test_a_value_of_its_type_and_range_is_read():
    assert KEYS.integer("n", 1, 3) == 3
    assert KEYS.integer("absent", 1, 3, default=2) == 2
    assert KEYS.real("x", 0.0, 0.5) == 0.5
    assert KEYS.real("n", 0.0, 5.0) == 3.0
    assert KEYS.flag("yes", False) is True
    assert KEYS.text("word") == "w"
    assert KEYS.texts("words") == ("a", "b")
    assert KEYS.integers("numbers", 2) == (1, 2)


def test_a_missing_key_is_named():
    with refusal("m.gguf: metadata key absent is missing; needs an integer from 1 to 2"):
        KEYS.integer("absent", 1, 2)


@pytest.mark.parametrize("key", ["yes", "x", "word", "words"])
def test_what_is_no_integer_is_refused_with_its_value(key: str):
    with refusal(f"metadata key {key} is {KEYS.values[key]!r}; needs an integer from 0 to 9"):
        KEYS.integer(key, 0, 9)


def test_an_integer_out_of_range_is_refused():
    with refusal("metadata key n is 3; needs an integer from 4 to 9"):
        KEYS.integer("n", 4, 9)


@pytest.mark.parametrize("key", ["nan", "inf", "yes", "word", "n"])
def test_what_is_no_number_in_range_is_refused(key: str):
    with refusal(f"metadata key {key} is"):
        KEYS.real(key, 0.0, 1.0)


def test_an_open_lower_end_is_refused_itself():
    with refusal("needs a number above 0.5 and up to 1.0"):
        KEYS.real("x", 0.5, 1.0)


def test_arrays_of_other_entries_or_lengths_are_refused():
    with refusal("metadata key mixed"):
        KEYS.texts("mixed")
    with refusal("needs an array of 3 integers"):
        KEYS.integers("numbers", 3)
    with refusal("metadata key flags"):
        KEYS.integers("flags", 2)
    with refusal("needs true or false"):
        KEYS.flag("n", False)
    with refusal("needs a text"):
        KEYS.text("n")


def test_a_long_value_is_shown_in_part():
    keys = Keys("m.gguf", {"long": "x" * 10_000})
    with pytest.raises(FormatError) as refused:
        keys.integer("long", 0, 1)
    assert len(refused.value.message) < 200
