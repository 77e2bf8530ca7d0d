"""A witness becomes a record."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.graph import Graph
from poot.ir.text import parse, show
from poot.ir.verify import verify
from poot.limits import profile
from poot.oracle import run
from poot.passes.pipeline import PIPELINE, RECORDS, with_records
from poot.passes.records import form_records

LIMITS = profile("lavapipe")
GUARD = """
slot v0: i32[2,3] "at"
v1: i32[2,3], v2: bool[2,3] = index_guard(v0) hi=8 lo=2
validate v2
out v1
"""


def records(graph: Graph) -> Graph:
    got = form_records(graph, LIMITS).graph
    verify(got)
    assert show(form_records(got, LIMITS).graph) == show(got)
    assert show(parse(show(got))) == show(got)
    return got


def of(text: str, **feed: object) -> list[list[int]]:
    return [w.tolist() for w in run(records(parse(text)), feed).witnesses]


def test_a_record_counts_and_names_the_first():
    at = np.array([[2, 7, 8], [3, -5, 1 << 30]], np.int32)
    assert of(GUARD, at=at) == [[3, 2, 8]]
    assert of(GUARD, at=np.full((2, 3), 7, np.int32))[0][0] == 0


@pytest.mark.parametrize("value", [1, 2, 8])
def test_a_guard_of_one_element_needs_no_fold(value: int):
    text = GUARD.replace("[2,3]", "[]")
    assert of(text, at=np.int32(value)) == [[int(value != 2), 0, value]]
    assert all(e.op != "reduce" for e in records(parse(text)).eqns)


def test_any_other_witness_has_no_value():
    text = """
        slot v0: f32[4] "x"
        slot v1: f32[] "most"
        v2: bool[4] = lt(v0, v1)
        validate v2
        out v0
        """
    x = np.array([1, 2, 3, 4], np.float32)
    assert of(text, x=x, most=np.float32(2.5)) == [[2, 2, 0]]


def test_a_witness_without_elements_always_holds():
    text = GUARD.replace("[2,3]", "[0]")
    assert of(text, at=np.zeros(0, np.int32)) == [[0, 0, 0]]


def test_a_witness_declared_twice_has_one_record():
    got = records(parse(GUARD.replace("validate v2", "validate v2, v2")))
    assert got.validations[0] == got.validations[1]
    assert sum(e.op == "concat" for e in got.eqns) == 1


def test_a_graph_without_guards_is_left_as_it_is():
    graph = parse('slot v0: f32[4] "x"\nout v0')
    assert form_records(graph, LIMITS).graph is graph


def test_records_stand_before_regions_in_any_pipeline():
    assert [p.name for p in with_records(())] == ["records"]
    assert with_records(PIPELINE) == PIPELINE
    names = [p.name for p in PIPELINE]
    assert names.index("records") == names.index("regions") - 1
    less = tuple(p for p in PIPELINE if p != RECORDS)
    assert with_records(less) == PIPELINE
