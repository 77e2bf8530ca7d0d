"""The order of regions: old values before their updates, guards before the rest."""

from __future__ import annotations

import pytest

from poot.errors import DonationError
from poot.ir.text import parse
from poot.passes.records import form_records
from poot.planner.entry import updatable
from poot.planner.order import Phases, phases_of
from poot.planner.steps import regions_of, updates_of
from tests.support.plans import LIMITS

HEAD = """
state v0: i32[8] "a" -> v4
slot  v1: i32[1] "x"
slot  v2: i32[] "at"
"""


def phases(body: str) -> Phases:
    graph = form_records(parse(HEAD + body), LIMITS).graph
    in_place = updatable(graph)
    regions = regions_of(graph, lambda e: e.out.id in in_place)
    writers = {r.outs[o].id for r in regions for o, _ in updates_of(r)}
    return phases_of(regions, graph.validations, writers)


def ops_of(regions: tuple) -> list[str]:
    return [r.attr("body").eqns[-1].op for r in regions]


def test_a_guards_cone_comes_before_the_write_it_governs():
    got = phases(
        """
        v4: i32[8] = dynamic_update_slice(v0, v1, v2) axis=0
        v5: i32[], v6: bool[] = index_guard(v2) hi=8 lo=0
        validate v6
        out v5
        """
    )
    assert "dynamic_update_slice" not in ops_of(got.early)
    assert ops_of(got.early)[-1] == "concat"
    assert got.late == ()
    assert "dynamic_update_slice" in ops_of(got.rest)
    assert got.late_witnesses == frozenset()


def test_a_guard_that_reads_a_write_is_late_and_takes_only_that_write_along():
    got = phases(
        """
        v3: i32[1] = neg(v1)
        v4: i32[8] = dynamic_update_slice(v0, v1, v2) axis=0
        v5: i32[8], v6: bool[8] = index_guard(v4) hi=8 lo=0
        validate v6
        out v3
        """
    )
    assert ops_of(got.late)[0] == "dynamic_update_slice"
    assert ops_of(got.rest) == ["neg"]
    assert len(got.late_witnesses) == 1


def test_a_reader_of_the_old_value_goes_before_a_write_that_moved_ahead():
    got = phases(
        """
        v3: i32[8] = neg(v0)
        v4: i32[8] = dynamic_update_slice(v0, v1, v2) axis=0
        v5: i32[8], v6: bool[8] = index_guard(v4) hi=8 lo=0
        validate v6
        out v3
        """
    )
    assert ops_of(got.late)[:2] == ["neg", "dynamic_update_slice"]


BODY = """region(v0, v1, v2) anchor=none updates=((0, 0),) body={
        in v0: i32[8]
        in v1: i32[1]
        in v2: i32[]
        v3: i32[8] = dynamic_update_slice(v0, v1, v2) axis=0
        out v3
    }"""


def test_an_old_value_needed_after_its_update_is_refused_at_the_writers_line():
    with pytest.raises(DonationError, match="the step of v5 reads its old value later"):
        phases(f"v4: i32[8] = {BODY}\nv5: i32[8] = sub(v4, v0)\nout v5")


def test_a_reader_after_the_update_that_needs_not_wait_moves_before_it():
    got = phases(f"v4: i32[8] = {BODY}\nv5: i32[8] = neg(v0)\nout v5")
    assert ops_of(got.rest) == ["neg", "dynamic_update_slice"]


def test_without_guards_the_order_is_kept():
    got = phases(
        """
        v3: i32[1] = neg(v1)
        v4: i32[8] = dynamic_update_slice(v0, v3, v2) axis=0
        v5: i32[8] = abs(v4)
        out v5
        """
    )
    assert ops_of(got.all) == ["neg", "dynamic_update_slice", "abs"]
