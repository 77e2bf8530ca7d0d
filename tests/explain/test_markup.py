"""HTML as text: what is escaped, and sizes for people."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from poot.explain.markup import row, size, table, tag, text
from tests.support.html import parsed


def test_attributes_lose_their_last_underline_and_none_leaves_one_out():
    assert tag("i", class_="a", text_anchor="end", id=None) == '<i class="a" text-anchor="end"></i>'
    assert tag("rect", x=1) == '<rect x="1"/>'


@given(st.text(), st.text())
def test_no_text_can_open_a_tag_or_leave_an_attribute(inside: str, value: str):
    page = parsed(tag("p", text(inside), title=value))
    assert [name for name, _ in page.tags] == ["p"]
    assert page.closed == ["p"]


def test_a_table_has_a_head_and_its_rows():
    page = parsed(table(("a", "b"), [row("1", "2")]))
    assert page.words == ["a", "b", "1", "2"]


def test_sizes_are_in_the_unit_that_leaves_a_number_below_1024():
    assert [size(n) for n in (0, 1023, 1024, 1536, 5 << 30)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
    ]
