"""The plan as data."""

from __future__ import annotations

from tests.support.plans import plan_text

TEXT = """
slot v0: i32[] "at" kind=pos range=(0, 8)
v1: i32[] = neg(v0)
out v1
"""


def test_the_lists_are_the_entry_points_and_their_feeds():
    plan = plan_text(feeds=True, a=TEXT, b=TEXT)
    assert [e.name for e in plan.lists] == ["a", "b", "a$feed", "b$feed"]
    assert [e.name for e in plan_text(a=TEXT).lists] == ["a"]
