"""Stop strings, over pieces cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.errors import RequestError
from poot.llm.text_stops import StopText

SMALL = st.text("ab", max_size=12)


def shown(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    text = StopText(stops)
    got = "".join(text.push(p) for p in pieces)
    return got + ("" if text.hit else text.end()), text.hit


@given(st.lists(SMALL, max_size=6), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_what_is_shown_is_the_text_before_the_first_stop(pieces: list[str], stops: list[str]):
    whole = "".join(pieces)
    places = [at for s in stops if (at := whole.find(s)) >= 0]
    text, hit = shown(pieces, stops)
    if not places:
        assert (text, hit) == (whole, None)
        return
    # A stop that a piece completes first wins, though another may begin before it.
    assert hit in stops
    assert whole.startswith(text + hit)


def test_text_is_shown_as_soon_as_it_can_be_no_stop():
    text = StopText(["###"])
    assert [text.push(p) for p in ("a", "b#", "#", "c", "##", "#d", "e")] == [
        "a", "b", "", "##c", "", "", "",
    ]  # fmt: skip
    assert text.hit == "###"
    assert text.end() == ""


def test_of_two_stops_at_one_place_the_longer_is_named():
    assert shown(["xab"], ["a", "ab"]) == ("x", "ab")


def test_an_empty_stop_is_refused():
    with pytest.raises(RequestError, match="a stop string is empty"):
        StopText(["x", ""])
