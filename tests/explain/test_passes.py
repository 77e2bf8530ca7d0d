"""What a pass did, as runs of eqns and as columns."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from poot.explain.passes import difference, hunks, passes
from poot.ir.graph import Graph
from tests.support.explained import explained_program
from tests.support.html import parsed

LINES = st.lists(st.sampled_from("abcdefghij"), unique=True).map(tuple)


@given(LINES, LINES)
def test_runs_tell_both_graphs_whole_and_in_order(before: tuple[str, ...], after: tuple[str, ...]):
    found = hunks(before, after)
    assert sum((h.before for h in found), ()) == before
    assert sum((h.after for h in found), ()) == after
    assert all(h.before == h.after for h in found if h.is_same)
    assert all(a.is_same != b.is_same for a, b in pairwise(found))


def test_equal_graphs_are_one_run():
    (only,) = hunks(("a", "b"), ("a", "b"))
    assert only.is_same


def test_what_was_fused_stands_on_the_left_and_what_it_became_on_the_right():
    entry = explained_program().entries["main"]
    by_name = {r.name: r for r in entry.reports}
    shown = difference(by_name["rope"].graph, by_name["attention"].graph)
    page = parsed(shown)
    assert page.with_class("changed") > 0
    columns = [part.split("</div><div>")[:2] for part in shown.split('class="pair changed"')[1:]]
    gone = "".join(left for left, _ in columns)
    come = "".join(right.split("</div>")[0] for _, right in columns)
    assert "kind=max" in gone
    assert "attention(" not in gone
    assert "attention(" in come
    assert "explained.py:" in come


def test_every_pass_has_its_part_and_a_decline_its_reason_and_line():
    entry = explained_program().entries["main"]
    shown = passes(entry)
    page = parsed(shown)
    assert page.with_class("pass") == len(entry.reports)
    words = " ".join(page.words)
    declined = [n for r in entry.reports for n in r.declined]
    assert declined
    for note in declined:
        assert note.what in words
        assert note.loc in words


def test_an_empty_graph_has_a_page_too():
    assert difference(Graph((), (), ()), Graph((), (), ())) == ""
