"""The arena as a map: every value's bytes and life."""

from __future__ import annotations

from collections import Counter

from poot.explain.memory import arena, held, spaces
from poot.program import MemoryReport
from tests.support.explained import explained_program
from tests.support.html import parsed


def test_values_that_live_at_once_never_overlap_and_all_are_there():
    plan = explained_program().entries["main"].plan
    values = held(plan)
    names = {p.name for s in plan.steps for p in s.outs if p.space == "arena"}
    assert {v.name for v in values if v.kind != "scratch"} == names
    for n, a in enumerate(values):
        for b in values[n + 1 :]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or not together, f"{a} and {b}"


def test_a_value_lives_until_its_last_reader():
    plan = explained_program().entries["main"].plan
    for value in held(plan):
        readers = [n for n, s in enumerate(plan.steps) if value.name in {p.name for p in s.ins}]
        assert value.last == max([value.first, *readers])


def test_the_map_has_a_box_a_value_with_its_words():
    program = explained_program()
    plan = program.entries["main"].plan
    page = parsed(arena(plan, dict(program.plan.spaces)["arena"]))
    assert page.with_class("held") == len(held(plan))
    assert Counter(name for name, _ in page.tags)["title"] == len(held(plan))


def test_spaces_are_parts_of_one_bar():
    page = parsed(spaces(MemoryReport((("arena", 1024), ("weights", 3072), ("slots", 0)), 2048)))
    widths = [a["style"] for name, a in page.tags if name == "i" and "style" in a]
    assert widths == ["width:25.000%", "width:75.000%"]
    assert "does not fit in 2.0 KiB" in " ".join(page.words)
