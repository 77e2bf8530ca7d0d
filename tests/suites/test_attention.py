"""Attention of every dense form, fused, on every target, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from poot.api import Program
from tests.support.attention_cases import (
    MASKS,
    PAIRS,
    WIDTHS,
    Form,
    arrays_of,
    forms,
    graph_of,
    wanted,
)
from tests.support.everywhere import compile_on, fused_count, on, run_everywhere, run_program
from tests.support.tol import assert_within

# What a target does in a moment: products of elements.
WORK = {"simulator": 100_000}
DEVICE_WORK = 4_000_000
QUIET = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large)


def check_form(form: Form, target: str) -> Program:
    """Compiles the form, asserts that it is one fused eqn and gives the oracle's numbers."""
    graph, feed = graph_of(form), arrays_of(form)
    program = compile_on(target, graph)
    if form.batch:
        assert fused_count(program, "attention") == 1, program.explain()
    got = run_program(program, feed)
    assert_within(got.outputs[0], wanted(form, graph, feed), "attention", str(form))
    return program


def check_drawn(target: str, most: int, dtypes: tuple[str, ...]) -> None:
    """Draws `most` forms of these dtypes and checks each on the target."""
    work = WORK.get(target, DEVICE_WORK)

    @settings(max_examples=most, deadline=None, suppress_health_check=QUIET)
    @given(forms(work, dtypes=dtypes))
    @example(Form(1, 1, 1, 1, 1, 1, 1))
    @example(Form(0, 4, 2, 3, 5, 8, 8, "causal"))
    @example(Form(2, 4, 2, 5, 7, 33, 8, "-inf plane"))
    @example(Form(1, 9, 3, 26, 2, 1, 1, "alibi", dtypes[-1]))
    def check(form: Form) -> None:
        check_form(form, target)

    check()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@on()
def test_drawn_forms_agree_with_the_oracle(target: str, dtype: str):
    check_drawn(target, 24 if dtype == "f32" else 8, (dtype,))


@pytest.mark.fuzz
@on()
def test_many_drawn_forms_agree_with_the_oracle(target: str):
    check_drawn(target, 1500, ("f32", "f16", "bf16"))


@pytest.mark.parametrize("mask", MASKS)
@on()
def test_each_mask_agrees_with_the_oracle(target: str, mask: str):
    check_form(Form(2, 6, 2, 5, 37, 16, 16, mask, softcap=3.0), target)
    check_form(Form(1, 3, 1, 1, 150, 8, 40, mask, seed=1), target)


@pytest.mark.parametrize("dk, dv", [(w, w) for w in WIDTHS] + list(PAIRS))
@on(but="simulator")
def test_each_width_agrees_with_the_oracle(target: str, dk: int, dv: int):
    check_form(Form(1, 2, 1, 3, 35, dk, dv, "causal"), target)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@on()
def test_the_primitives_agree_with_the_fused_form(target: str, dtype: str):
    """What declines stays right: the chain as it is written."""
    for mask in ("bool a head", "-1e9 plane", "alibi", "causal window"):
        form = Form(2, 4, 2, 3, 20, 24, 8, mask, dtype, softcap=5.0)
        graph, feed = graph_of(form), arrays_of(form)
        fused = run_everywhere(graph, feed, target).outputs[0]
        plain = run_everywhere(graph, feed, target, passes=()).outputs[0]
        want = wanted(form, graph, feed)
        assert_within(fused, want, "attention", f"fused {form}")
        if dtype == "f32":
            assert_within(plain, want, "attention", f"as written {form}")
        else:  # rounds to 16 bits at every step
            loose = np.nanmax(np.abs(plain.astype(np.float64) - want.astype(np.float64)))
            assert loose < {"f16": 2e-2, "bf16": 0.2}[dtype], form
