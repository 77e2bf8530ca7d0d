"""Fields of a stranger's JSON."""

from __future__ import annotations

import pytest

from poot.bundle.fields import Fields, parse_json
from poot.errors import FormatError

pytestmark = pytest.mark.quick


def fields(text: str) -> Fields:
    return parse_json(text.encode(), "m")


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "no JSON"),
        ("[1]", "an object"),
        ('{"a": 1.5}', "no integer"),
        ('{"a": NaN}', "no integer"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[" * 100_000, "no JSON"),
        ('{"a": ' + "9" * 10_000 + "}", "no JSON"),
    ],
)
def test_what_is_no_object_of_integers_and_texts_is_refused(text, why):
    with pytest.raises(FormatError, match=why):
        fields(text)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(FormatError, match="no JSON"):
        parse_json(b"\xff{}", "m")


def test_fields_are_what_they_are():
    f = fields('{"n": 3, "b": true, "t": "x", "l": [1, 2], "s": ["a"], "f": [false], "z": null}')
    assert (f.integer("n"), f.flag("b"), f.text("t"), f.integers("l")) == (3, True, "x", (1, 2))
    assert (f.texts("s"), f.flags("f"), f.is_null("z"), f.is_null("n")) == (
        ("a",), (False,), True, False,
    )  # fmt: skip
    assert f.choice("t", ("x", "y")) == "x"


@pytest.mark.parametrize(
    "ask",
    [
        lambda f: f.integer("b"),
        lambda f: f.integer("n", 0, 2),
        lambda f: f.integer("n", 4),
        lambda f: f.integer("none"),
        lambda f: f.flag("n"),
        lambda f: f.text("n"),
        lambda f: f.text("t", 2),
        lambda f: f.choice("t", ("y",)),
        lambda f: f.integers("t"),
        lambda f: f.integers("s"),
        lambda f: f.texts("l"),
        lambda f: f.flags("l"),
        lambda f: f.object("n"),
        lambda f: f.objects("l"),
    ],
)
def test_another_kind_is_refused_with_its_place(ask):
    f = fields('{"n": 3, "b": true, "t": "xxx", "l": [1, 2], "s": ["a"]}')
    with pytest.raises(FormatError, match=r"^m: |^m\.n: |^m\.l"):
        ask(f)


def test_nested_objects_know_their_place():
    (row,) = fields('{"a": [{"b": {"c": 1}}]}').objects("a")
    with pytest.raises(FormatError, match=r"m\.a\[0\]\.b: c needs a text"):
        row.object("b").text("c")
