"""Whole plans of small programs."""

import re
from dataclasses import replace

import pytest

from poot.errors import (
    BindingLimit,
    DonationError,
    MemoryBudget,
    PlanError,
    ScratchBytes,
)
from poot.ir.graph import Graph
from poot.limits import DeviceLimits
from poot.planner.check import check_plan
from poot.planner.make import make_plan
from poot.planner.plan import Plan, Step
from poot.planner.request import Choice, Scratch
from tests.support.plans import LIMITS, choose_any, graph_of, plan_text, small

COUNTER = """
state v0: f32[64] "count" -> v1
slot  v2: f32[64] "x"
v1: f32[64] = add(v0, v2)
out v1
"""

CACHE = """
state v0: f32[1,2,16,8] "cache" -> v3
slot  v1: f32[1,2,1,8] "k"
slot  v2: i32[] "pos" kind=pos range=(0, 16)
v3: f32[1,2,16,8] = dynamic_update_slice(v0, v1, v2) axis=2
v4: f32[1,2] = reduce(v3) axis=(2, 3) keepdim=False kind=sum
out v4
"""


def layers(count: int) -> str:
    lines = ['weight v0: f32[64,64] "w"', 'slot v1: f32[64,64] "x"']
    for n in range(count):
        a = 1 + 2 * n
        lines += [
            f"v{a + 1}: f32[64,64] = matmul(v{a}, v0)",
            f"v{a + 2}: f32[64,64] = exp(v{a + 1})",
        ]
    return "\n".join([*lines, f"out v{1 + 2 * count}"])


def test_a_state_updated_by_a_slice_is_written_where_it_lies():
    plan = plan_text(main=CACHE)
    update = plan.entries[0].steps[0]
    assert update.request.updates == ((0, 0),)
    assert replace(update.outs[0], name="cache") == update.ins[0]
    assert update.outs[0].space == "states"
    assert update.outs[0].name == "main/v3"


def test_a_constant_that_is_an_output_or_a_new_state_is_copied_by_its_content():
    plan = plan_text(
        main="""
        state v0: f32[2] "count" -> v1
        constant v1: f32[2] "c" 0x0000803f00000040
        constant v2: f32[2] "d" 0x0000803f00000040
        out v1, v2, v2
        """
    )
    copied = [s.ins[0].name for s in plan.entries[0].steps[:3]]
    assert copied == [plan.residents[-1].name] * 3
    assert plan.residents[-1].name.startswith("const:")


def test_a_state_without_elements_is_planned_though_no_step_writes_it():
    text = """
    state v0: f32[2,0] "empty" -> v2
    slot  v1: i32[] "pos" range=(0, 4)
    v2: f32[2,0] = neg(v0)
    v3: i32[] = add(v1, v1)
    out v3
    """
    for feeds in (False, True):
        (entry,) = plan_text(main=text, feeds=feeds).entries
        assert [s.op for s in entry.steps] == ["add"]


def test_a_state_computed_otherwise_is_copied_at_the_end():
    plan = plan_text(main=COUNTER)
    add, copy = plan.entries[0].steps
    assert add.outs[0].space == "results"
    assert copy.outs[0].space == "states"
    assert copy.ins == add.outs


def test_two_states_that_swap_are_staged_first():
    plan = plan_text(
        main="""
        state v0: f32[4] "a" -> v1
        state v1: f32[4] "b" -> v0
        out v0
        """.replace("out v0", "v2: f32[4] = neg(v0)\nout v2")
    )
    written = [s.outs[0] for s in plan.entries[0].steps[-2:]]
    assert [p.space for p in written] == ["states", "states"]
    assert all(s.ins[0].space == "arena" for s in plan.entries[0].steps[-2:])


def test_a_cache_whose_old_value_is_read_later_is_never_copied():
    text = CACHE.replace("reduce(v3)", "reduce(v0)")
    with pytest.raises(DonationError, match=r"State v0 .*the step of v4 reads its old value later"):
        plan_text(main=text)


REGION = """region(v0, v1, v2) anchor=none updates=((0, 0),) body={
        in v0: f32[1,2,16,8]
        in v1: f32[1,2,1,8]
        in v2: i32[]
        v3: f32[1,2,16,8] = dynamic_update_slice(v0, v1, v2) axis=2
        out v3
    }"""


def test_a_reader_of_the_old_state_runs_before_its_update():
    text = re.sub(r"dynamic_update_slice.*", lambda _: REGION, CACHE)
    plan = plan_text(main=text.replace("reduce(v3)", "reduce(v0)"))
    assert [bool(s.request.updates) for s in plan.entries[0].steps] == [False, True]


def test_a_state_whose_old_value_its_update_leads_to_is_refused_by_name():
    text = re.sub(r"dynamic_update_slice.*", lambda _: REGION, CACHE)
    text = text.replace("v4: f32[1,2] = reduce(v3)", "v5: f32[1,2,16,8] = sub(v3, v0)\nv4: "
                        "f32[1,2] = reduce(v5)")  # fmt: skip
    with pytest.raises(DonationError, match=r"State v0 .*reads its old value later"):
        plan_text(main=text)


def test_a_pool_whose_old_value_is_read_later_is_never_copied():
    text = """
        state v0: f32[8,4] "pool" -> v3
        slot v1: f32[2,4] "rows"
        slot v2: i32[2] "at"
        v3: f32[8,4] = scatter_update(v0, v1, v2)
        v4: f32[8] = reduce(v0) axis=(1,) keepdim=False kind=sum
        out v4
        """
    with pytest.raises(DonationError, match=r"State v0 f32\[8,4\] .*reads its old value later"):
        plan_text(main=text)


def test_the_arena_does_not_grow_with_layers():
    sizes = [dict(plan_text(main=layers(n)).spaces)["arena"] for n in (2, 32)]
    assert sizes[0] == sizes[1]


def test_equal_layers_share_requests():
    plan = plan_text(main=layers(32))
    assert len({s.request for s in plan.entries[0].steps}) == 2


def test_a_scatter_that_is_no_state_update_copies_first():
    plan = plan_text(
        main="""
        slot v0: f32[8,4] "pool"
        slot v1: f32[2,4] "rows"
        slot v2: i32[2] "at"
        v3: f32[8,4] = scatter_update(v0, v1, v2)
        out v3
        """
    )
    copy, scatter = plan.entries[0].steps
    assert copy.outs[0].space == "results"
    assert scatter.request.updates
    assert scatter.outs[0].offset == copy.outs[0].offset


def test_entry_points_share_weights_and_states_by_name():
    plan = plan_text(prefill=CACHE, decode=CACHE.replace("reduce(v3)", "reduce(v3)"))
    assert [r.name for r in plan.residents].count("cache") == 1
    assert {"prefill:k", "decode:k"} <= {r.name for r in plan.residents}


def test_entry_points_that_disagree_are_refused_naming_both():
    other = CACHE.replace("16,8", "32,8").replace("(0, 16)", "(0, 32)")
    with pytest.raises(PlanError, match=r"'prefill'.*f32\[1,2,16,8\].*'decode'.*f32\[1,2,32,8\]"):
        plan_text(prefill=CACHE, decode=other)


GUARDED = """
    state v0: f32[16,8] "cache" -> v4
    slot  v1: f32[1,8] "k"
    slot  v2: i32[] "at"
    v3: i32[], v5: bool[] = index_guard(v2) hi=16 lo=0
    v4: f32[16,8] = dynamic_update_slice(v0, v1, v3) axis=0
    validate v5
    out v3
    """
LATE = """
    state v0: i32[16] "cache" -> v3
    slot  v1: i32[1] "k"
    slot  v2: i32[] "at" kind=pos range=(0, 16)
    v3: i32[16] = dynamic_update_slice(v0, v1, v2) axis=0
    v4: i32[16], v5: bool[16] = index_guard(v3) hi=16 lo=0
    validate v5
    out v4
    """


def test_state_is_written_under_the_word_of_the_guards_before_it():
    entry = plan_text(main=GUARDED).entries[0]
    (write,) = [s for s in entry.steps if s.request.updates]
    assert write.request.condition is not None
    assert entry.verdict is not None
    assert write.ins[write.request.condition.ok].name == entry.verdict.final
    assert entry.verdict.early == entry.verdict.final
    assert entry.verdict.undo == ()
    assert entry.late == (False,)


def test_a_guard_behind_a_state_write_keeps_what_it_replaces():
    entry = plan_text(main=LATE).entries[0]
    assert entry.verdict is not None
    (undo,) = entry.verdict.undo
    save, write, restore = (entry.steps[n] for n in (undo.save, undo.write, undo.restore))
    assert save.outs[0].nbytes == 4  # what the update replaces, not the State
    assert write.request.condition is None
    assert restore.request.condition is not None
    assert restore.ins[restore.request.condition.ok].name == entry.verdict.failed
    assert undo.restore == len(entry.steps) - 1
    assert entry.late == (True,)


def test_records_and_outputs_lie_together_records_first():
    entry = plan_text(main=GUARDED).entries[0]
    assert entry.records[0].offset == 0
    assert entry.records[0].space == entry.outputs[0][1].space == "results"
    assert entry.records_nbytes == 256
    assert entry.results_nbytes == 512


def test_a_program_without_states_or_guards_stands_under_no_word():
    entry = plan_text(main=layers(1)).entries[0]
    assert entry.verdict is None
    assert entry.records_nbytes == 0


def test_slots_with_a_range_may_come_from_the_device_under_a_word():
    entry = plan_text(main=CACHE, feeds=True).entries[0]
    assert entry.fed == ("pos",)
    assert entry.feed is not None
    assert entry.verdict is not None
    assert entry.verdict.final == "main:$ok"
    written = {p.name: p.space for s in entry.feed.steps for p in s.outs if p.space == "slots"}
    assert len(written) == 2  # the slot, clamped, and the word
    assert entry.feed.outputs[0][1].offset == 0


def test_an_output_that_is_an_input_is_copied():
    plan = plan_text(main='slot v0: f32[4] "x"\nout v0, v0')
    entry = plan.entries[0]
    assert len(entry.steps) == 1
    assert entry.outputs[0][1] == entry.outputs[1][1]
    assert entry.outputs[0][1].space == "results"


def test_nothing_runs_for_values_without_elements():
    plan = plan_text(main='slot v0: f32[0,4] "x"\nv1: f32[0,4] = exp(v0)\nout v1')
    assert plan.entries[0].steps == ()


def test_a_budget_that_is_too_small_says_what_takes_the_memory():
    with pytest.raises(MemoryBudget, match=r"arena \d+.*weights \d+"):
        plan_text(main=layers(2), budget=1000)


def test_a_value_over_the_binding_limit_is_refused_with_both_numbers():
    with pytest.raises(BindingLimit, match=r"16384 bytes.*at most 4096"):
        plan_text(main=layers(1), limits=small(binding_nbytes=4096))


def test_a_scratch_over_the_limit_is_refused():
    text = 'slot v0: f32[2,2] "x"\nv1: f32[2,2] = matmul(v0, v0)\nout v1'
    with pytest.raises(ScratchBytes, match="scratch of 256 bytes"):
        plan_text(main=text, limits=small(binding_nbytes=128))


def test_weights_over_one_buffer_are_cut_between_values():
    text = "\n".join(
        [
            *(f'weight v{n}: f32[64,64] "w{n}"' for n in range(4)),
            "v4: f32[64,64] = add(v0, v1)",
            "v5: f32[64,64] = add(v2, v3)",
            "out v4, v5",
        ]
    )
    plan = plan_text(main=text, limits=small(buffer_nbytes=40000))
    assert {"weights", "weights.1"} <= dict(plan.spaces).keys()
    assert all(size <= 40000 for _, size in plan.spaces)


def test_the_key_is_the_same_for_the_same_program_and_differs_for_another():
    keys = [plan_text(main=layers(n)).key for n in (2, 2, 3)]
    assert keys[0] == keys[1] != keys[2]


def resting(
    body: Graph, anchor: str, updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> Choice:
    """Every step asks two scratches that are at rest between launches, and one that isn't."""
    scratch = (Scratch("f32", 100, at_rest=True), Scratch("f32", 8), Scratch("f32", 4, True))
    return replace(choose_any(body, anchor, updates, limits), scratch=scratch)


def test_scratch_at_rest_is_shared_by_all_steps_and_by_nothing_else():
    graph = graph_of(layers(3))
    plan = make_plan({"main": graph}, resting, LIMITS)
    steps = plan.entries[0].steps
    assert len(steps) > 2
    for step in steps:
        spaces = [(p.space, p.offset) for p in (step.scratch[0], step.scratch[2])]
        assert spaces == [("rest", 0), ("rest", 512)]
        assert step.scratch[1].space == "arena"
    assert dict(plan.spaces)["rest"] == 512 + 16
    moved = replace(steps[0], outs=(replace(steps[0].outs[0], space="rest", offset=0, nbytes=4),))
    assert "lies in the space of what is at rest" in wrong(plan, graph, moved)
    asked = replace(steps[0].request, scratch=(Scratch("f32", 100), *steps[0].request.scratch[1:]))
    assert "lies in rest, at rest: False" in wrong(plan, graph, replace(steps[0], request=asked))


def wrong(plan: Plan, graph: Graph, first: Step) -> str:
    """What the check says of the plan with another first step."""
    entry = replace(plan.entries[0], steps=(first, *plan.entries[0].steps[1:]))
    with pytest.raises(PlanError) as e:
        check_plan(replace(plan, entries=(entry,)), {"main": graph}, {})
    return str(e.value)
