"""The page of families says what the attention pass does."""

from __future__ import annotations

from tests.support.family_page import PAGE, page


def test_the_page_of_families_is_what_explain_says():
    assert PAGE.read_text() == page(), "run `python -m tests.support.family_page`"
