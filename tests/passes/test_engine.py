"""The rewrite engine by itself, with rules made for the test."""

from __future__ import annotations

import time

import pytest

from poot.errors import PassError
from poot.ir.build import Builder
from poot.ir.graph import Eqn, Graph, Slot, TensorType, Var
from poot.ir.text import parse, show
from poot.passes.engine import Scope, apply, rewrite, rule
from tests.support.check import check_pass


@rule("neg")
def twice_is_nothing(eqn: Eqn, scope: Scope) -> Var | None:
    inner = scope.producer(eqn.ins[0])
    return inner.ins[0] if inner is not None and inner.op == "neg" else None


@rule("abs")
def as_max(eqn: Eqn, scope: Scope) -> Var | None:
    (x,) = eqn.ins
    return scope.emit("max", x, scope.emit("neg", x))


@rule("exp")
def only_where_read_once(eqn: Eqn, scope: Scope) -> Var | None:
    if scope.uses(eqn.ins[0]) != 1:
        scope.decline("its operand has another reader")
        return None
    return scope.emit("recip", eqn.ins[0])


@rule("neg")
def for_ever(eqn: Eqn, scope: Scope) -> Var | None:
    return scope.emit("neg", scope.emit("abs", eqn.ins[0]))


@rule("exp")
def ill_typed(eqn: Eqn, scope: Scope) -> Var | None:
    return scope.emit("cast", eqn.ins[0], dtype="f16")


def test_a_rule_fires_wherever_it_can_and_what_is_left_unread_goes():
    check_pass(
        lambda g: apply((twice_is_nothing,), g),
        """
        in v0: f32[2]
        v1: f32[2] = neg(v0)
        v2: f32[2] = neg(v1)
        v3: f32[2] = neg(v2)
        v4: f32[2] = neg(v3)
        v5: f32[2] = exp(v4)
        out v5
        """,
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)
        out v1
        """,
    )


def test_what_a_rule_emits_is_offered_to_the_rules():
    check_pass(
        lambda g: apply((as_max, twice_is_nothing), g),
        """
        in v0: f32[2]
        v1: f32[2] = neg(v0)
        v2: f32[2] = abs(v1)
        out v2
        """,
        """
        in v0: f32[2]
        v1: f32[2] = neg(v0)
        v2: f32[2] = max(v1, v0)
        out v2
        """,
    )


def test_equal_eqns_become_one_in_the_sweep():
    check_pass(
        lambda g: apply((), g),
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)
        v2: f32[2] = exp(v0)
        v3: f32[2] = add(v1, v2)
        out v3
        """,
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)
        v2: f32[2] = add(v1, v1)
        out v2
        """,
    )


def test_use_counts_follow_the_rewrites():
    graph = parse(
        """
        in v0: f32[2]
        v1: f32[2] = neg(v0)
        v2: f32[2] = neg(v1)
        v3: f32[2] = exp(v2)
        out v3
        """
    )
    got = rewrite(graph, (twice_is_nothing, only_where_read_once))
    assert dict(got.fired) == {"twice_is_nothing": 1, "only_where_read_once": 1}
    assert [e.op for e in got.graph.eqns] == ["recip"]


def test_a_decline_is_noted_with_the_line():
    graph = parse(
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)  # model.py:7
        v2: f32[2] = add(v1, v0)
        out v2
        """
    )
    got = rewrite(graph, (only_where_read_once,))
    assert [(n.kind, n.what, n.loc) for n in got.notes] == [
        ("declined", "its operand has another reader", "model.py:7")
    ]
    assert show(got.graph) == show(graph)


def test_what_is_emitted_keeps_the_line_of_what_it_replaces():
    graph = parse(
        """
        in v0: f32[2]
        v1: f32[2] = abs(v0)  # model.py:3
        out v1
        """
    )
    assert [e.loc for e in apply((as_max,), graph).eqns] == ["model.py:3"] * 2


def test_rules_that_go_round_in_circles_are_named():
    with pytest.raises(PassError, match="for_ever"):
        apply((for_ever,), parse("in v0: f32[2]\n v1: f32[2] = neg(v0)\n out v1"))


def test_a_rule_that_changes_a_type_is_named():
    with pytest.raises(PassError, match=r"ill_typed made f16\[2\]"):
        apply((ill_typed,), parse("in v0: f32[2]\n v1: f32[2] = exp(v0)\n out v1"))


def chain(length: int) -> Graph:
    build = Builder()
    x = build.input(TensorType("f32", (4,)), "x", Slot())
    for _ in range(length):
        x = build.one("neg", build.one("exp", x))
    return build.graph((x,))


def test_twenty_thousand_eqns_take_seconds():
    graph = chain(10_000)
    start = time.process_time()
    got = apply((twice_is_nothing, only_where_read_once), graph)
    assert len(got.eqns) == 20_000
    assert time.process_time() - start < 5
