"""The five questions are really asked: each wrong pass fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poot.errors import VerifyError
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.oracle import Result
from tests.support.check import assert_same, check_kept, check_pass

TEXT = """
    in v0: f32[3]
    v1: f32[3] = exp(v0)
    v2: f32[3] = neg(v1)
    out v2
"""


def with_op(op: str):
    """A pass that turns the last eqn into another op."""

    def rewrite(graph: Graph) -> Graph:
        return replace(graph, eqns=(*graph.eqns[:-1], replace(graph.eqns[-1], op=op)))

    return rewrite


def test_a_pass_that_does_nothing_passes():
    check_pass(lambda g: g, TEXT, TEXT)


def test_another_text_fails():
    with pytest.raises(AssertionError):
        check_pass(lambda g: g, TEXT, TEXT.replace("neg", "abs"))


def test_another_meaning_fails():
    with pytest.raises(AssertionError, match="output 0"):
        check_pass(with_op("abs"), TEXT, TEXT.replace("neg", "abs"))


def test_another_meaning_fails_with_a_tolerance_too():
    with pytest.raises(AssertionError, match="output 0"):
        check_kept(with_op("abs"), parse(TEXT), within=1e-6)


def test_a_graph_that_does_not_verify_fails():
    with pytest.raises(VerifyError):
        check_kept(lambda g: replace(g, eqns=g.eqns[1:]), parse(TEXT))


def test_a_pass_that_is_not_done_at_once_fails():
    def drop_one(graph: Graph) -> Graph:
        spare = [e for e in graph.eqns if e.out not in graph.outputs]
        return replace(graph, eqns=tuple(e for e in graph.eqns if e not in spare[:1]))

    graph = parse("in v0: f32[3]\nv1: f32[3] = exp(v0)\nv2: f32[3] = exp(v0)\nout v0")
    with pytest.raises(AssertionError):
        check_kept(drop_one, graph)


def test_results_are_compared_to_a_fraction_of_their_size_and_nan_like_nan():
    def result(*values: float) -> Result:
        return Result((np.array(values, np.float32),), {}, ())

    assert_same(result(np.nan, np.inf, 1), result(np.nan, np.inf, 1))
    assert_same(result(1000, 0), result(1000, 0.5), within=1e-3)
    with pytest.raises(AssertionError):
        assert_same(result(1000, 0), result(1000, 1.5), within=1e-3)
    with pytest.raises(AssertionError):
        assert_same(result(np.nan), result(0), within=1e-3)
