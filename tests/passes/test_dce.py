"""Eqns that nothing needs go."""

from __future__ import annotations

from poot.passes.dce import dce
from tests.support.check import check_pass


def test_an_eqn_that_nothing_reads_goes_and_its_inputs_stay():
    check_pass(
        dce,
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: f32[2] = exp(v1)
        v3: f32[2] = neg(v0)
        out v3
        """,
        """
        in v0: f32[2]
        in v1: f32[2]
        v2: f32[2] = neg(v0)
        out v2
        """,
    )


def test_a_whole_unread_chain_goes():
    check_pass(
        dce,
        """
        in v0: f32[2]
        v1: f32[2] = exp(v0)
        v2: f32[2] = neg(v1)
        v3: f32[2] = add(v2, v1)
        out v0
        """,
        """
        in v0: f32[2]
        out v0
        """,
    )


def test_states_and_validations_are_needs():
    text = """
        state v0: f32[2] "s" -> v2
        in v1: i32[2]
        v2: f32[2] = neg(v0)
        v3: i32[2], v4: bool[2] = index_guard(v1) hi=2 lo=0
        validate v4
        out v1
        """
    check_pass(dce, text, text)
