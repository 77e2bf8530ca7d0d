"""The independent check finds what a wrong planner would do."""

from dataclasses import replace

import pytest

from poot.errors import PlanError
from poot.ir.text import parse
from poot.planner.check import check_plan
from poot.planner.plan import Place, Plan, Step
from tests.support.plans import graph_of, plan_text

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
        check_plan(plan, {"main": parse(TEXT)}, {})
    return str(e.value)


def test_a_sound_plan_passes(plan: Plan):
    check_plan(plan, {"main": parse(TEXT)}, {})


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
    step = plan.entries[0].steps[0]
    assert "multiple of 256" in refused(edited(plan, 0, outs=(moved(step.outs[0], 4),)))


def test_a_missing_output_is_found(plan: Plan):
    wrong = replace(plan, entries=(replace(plan.entries[0], outputs=()),))
    assert "0 of 1 outputs" in refused(wrong)


def test_an_output_that_is_another_value_is_found(plan: Plan):
    (kind, p) = plan.entries[0].outputs[0]
    first = plan.entries[0].steps[0].outs[0]
    entry = replace(plan.entries[0], outputs=((kind, replace(p, name=first.name)),))
    assert "finds main/v3" in refused(replace(plan, entries=(entry,)))


UPDATED = """
state v0: f32[8,4] "a" -> v5
slot  v1: f32[1,4] "x"
slot  v2: i32[] "pos"
v3: f32[8] = reduce(v0) axis=(1,) keepdim=False kind=sum
v4: i32[], v6: bool[] = index_guard(v2) hi=8 lo=0
v5: f32[8,4] = dynamic_update_slice(v0, v1, v4) axis=0
validate v6
out v3
"""
# The guard reads what the step wrote.
LATE = """
state v0: i32[8] "a" -> v3
slot  v1: i32[1] "x"
slot  v2: i32[] "pos" range=(0, 8)
v3: i32[8] = dynamic_update_slice(v0, v1, v2) axis=0
v4: i32[8], v5: bool[8] = index_guard(v3) hi=8 lo=0
validate v5
out v4
"""


def refused_of(text: str, plan: Plan) -> str:
    with pytest.raises(PlanError) as e:
        check_plan(plan, {"main": graph_of(text)}, {})
    return str(e.value)


def with_steps(plan: Plan, steps: list[Step]) -> Plan:
    return replace(plan, entries=(replace(plan.entries[0], steps=tuple(steps)),))


def at(plan: Plan, op: str) -> int:
    return next(n for n, s in enumerate(plan.entries[0].steps) if s.op.startswith(op))


def test_an_old_state_read_after_its_update_is_found():
    plan = plan_text(main=UPDATED)
    steps = list(plan.entries[0].steps)
    read = steps.pop(_reader(plan))
    found = refused_of(UPDATED, with_steps(plan, [*steps, read]))
    assert "reads a at states" in found
    assert "finds main/v5" in found


def _reader(plan: Plan) -> int:
    return next(
        n
        for n, s in enumerate(plan.entries[0].steps)
        if not s.request.updates and any(p.name == "a" for p in s.ins)
    )


def test_a_state_written_without_its_word_is_found():
    plan = plan_text(main=UPDATED)
    steps = list(plan.entries[0].steps)
    n = at(plan, "dynamic_update_slice")
    steps[n] = replace(steps[n], request=replace(steps[n].request, condition=None))
    assert "where a guard fails" in refused_of(UPDATED, with_steps(plan, steps))


def test_a_word_that_is_no_verdict_is_found():
    plan = plan_text(main=UPDATED)
    steps = list(plan.entries[0].steps)
    n = at(plan, "dynamic_update_slice")
    ins = (*steps[n].ins[:-1], replace(steps[n].ins[-1], name="main/v4"))
    steps[n] = replace(steps[n], ins=ins)
    assert "no verdict of its entry point" in refused_of(UPDATED, with_steps(plan, steps))


def test_a_plan_that_undoes_is_sound():
    check_plan(plan_text(main=LATE), {"main": graph_of(LATE)}, {})


def test_a_write_that_is_not_undone_is_found():
    plan = plan_text(main=LATE)
    steps = list(plan.entries[0].steps)
    found = refused_of(LATE, with_steps(plan, steps[:-1]))
    assert "where a guard fails" in found
    assert "reads a at states" in found


def test_rows_kept_after_the_write_are_found():
    plan = plan_text(main=LATE)
    steps = list(plan.entries[0].steps)
    undo = plan.entries[0].verdict.undo[0]
    steps[undo.save], steps[undo.write] = steps[undo.write], steps[undo.save]
    verdict = replace(
        plan.entries[0].verdict, undo=(replace(undo, save=undo.write, write=undo.save),)
    )
    entry = replace(plan.entries[0], steps=tuple(steps), verdict=verdict)
    assert "finds main/v3" in refused_of(LATE, replace(plan, entries=(entry,)))


def test_rows_of_another_update_put_back_are_found():
    plan = plan_text(main=LATE)
    steps = list(plan.entries[0].steps)
    undo = plan.entries[0].verdict.undo[0]
    back = steps[undo.restore]
    swapped = (back.ins[0], back.ins[2], back.ins[1], *back.ins[3:])
    steps[undo.restore] = replace(back, ins=swapped)
    assert "puts back other rows" in refused_of(LATE, with_steps(plan, steps))
