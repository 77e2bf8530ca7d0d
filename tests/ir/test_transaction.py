"""What makes a step a transaction."""

from __future__ import annotations

import pytest

from poot.ir.graph import Var
from poot.ir.text import parse
from poot.ir.transaction import RECORD, fed_inputs, is_conditional, is_record, writes_state

TEXT = """
state v0: f32[8,4] "a" -> v3
slot  v1: f32[1,4] "x"
slot  v2: i32[] "pos" kind=pos range=(0, 8)
v3: f32[8,4] = dynamic_update_slice(v0, v1, v2) axis=0
out v1
"""


def test_a_record_is_known_by_its_type():
    assert is_record(Var(0, RECORD))
    assert not is_record(parse(TEXT).inputs[2].var)


@pytest.mark.parametrize(
    "declared, can",
    [
        ("i32[2] kind=pos range=(0, 8)", True),
        ("i32[2]", False),
        ("u32[2] range=(0, 8)", False),
        ("i32[2] kind=write_map range=(-1, 8)", False),
    ],
)
def test_only_i32_slots_with_a_range_need_the_devices_check(declared: str, can: bool):
    type, *rest = declared.split(" ", 1)
    graph = parse(f'slot v0: {type} "at" {"".join(rest)}\nout v0')
    assert [i.name for i in fed_inputs(graph)] == (["at"] if can else [])


def test_a_state_that_keeps_its_value_is_not_written():
    assert writes_state(parse(TEXT))
    assert not writes_state(parse(TEXT.replace('"a" -> v3', '"a" -> v0')))


def test_state_is_written_under_a_condition_where_a_step_may_fail_on_the_device():
    assert is_conditional(parse(TEXT))
    plain = TEXT.replace(" kind=pos range=(0, 8)", "")
    assert not is_conditional(parse(plain))
    assert not is_conditional(parse(TEXT.replace('"a" -> v3', '"a" -> v0')))
    guarded = plain.replace(
        "out v1", "v4: i32[], v5: bool[] = index_guard(v2) hi=8 lo=0\nvalidate v5\nout v1"
    )
    assert is_conditional(parse(guarded))
