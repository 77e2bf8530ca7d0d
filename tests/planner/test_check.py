"""The independent check finds what a wrong planner would do."""

from dataclasses import replace

import pytest

from poot.errors import PlanError
from poot.ir.text import parse
from poot.planner.check import check_plan
from poot.planner.plan import Place, Plan, Step
from tests.support.plans import plan_text

TEXT = """
slot v0: f32[64] "x"
v1: f32[64] = exp(v0)
v2: f32[64] = neg(v1)
v3: f32[64] = add(v1, v2)
out v3
"""


def edited(plan: Plan, n: int, **changes: tuple[Place, ...]) -> Plan:
    steps = list(plan.entries[0].steps)
    steps[n] = replace(steps[n], **changes)
    return replace(plan, entries=(replace(plan.entries[0], steps=tuple(steps)),))


def moved(p: Place, offset: int) -> Place:
    return replace(p, offset=offset)


@pytest.fixture
def plan() -> Plan:
    return plan_text(main=TEXT)


def refused(plan: Plan) -> str:
    with pytest.raises(PlanError) as e:
        check_plan(plan, {"main": parse(TEXT)})
    return str(e.value)


def test_a_sound_plan_passes(plan: Plan):
    check_plan(plan, {"main": parse(TEXT)})


def test_a_value_written_over_while_it_is_needed_is_found(plan: Plan):
    first, second = plan.entries[0].steps[:2]
    wrong = edited(plan, 1, outs=(moved(second.outs[0], first.outs[0].offset),))
    assert "which it reads" in refused(wrong)


def test_a_read_of_nothing_is_found(plan: Plan):
    step: Step = plan.entries[0].steps[0]
    wrong = edited(plan, 0, outs=(moved(step.outs[0], step.outs[0].offset + 256),))
    assert "nothing whole" in refused(wrong) or "leaves its space" in refused(wrong)


def test_a_place_outside_its_space_is_found(plan: Plan):
    step = plan.entries[0].steps[2]
    assert "leaves its space" in refused(edited(plan, 2, outs=(moved(step.outs[0], 1 << 20),)))


def test_an_unaligned_place_is_found(plan: Plan):
    step = plan.entries[0].steps[2]
    assert "multiple of 256" in refused(edited(plan, 2, outs=(moved(step.outs[0], 4),)))


def test_a_missing_output_is_found(plan: Plan):
    wrong = replace(plan, entries=(replace(plan.entries[0], outputs=()),))
    assert "0 of 1 outputs" in refused(wrong)
