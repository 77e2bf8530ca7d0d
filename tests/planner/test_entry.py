"""One entry point: what may be done in place."""

from poot.ir.text import parse
from poot.planner.entry import updatable

TEXT = """
state v0: f32[8,4] "a" -> v5
slot  v1: f32[1,4] "x"
slot  v2: i32[] "pos" kind=pos range=(0, 8)
v3: f32[8,4] = dynamic_update_slice(v0, v1, v2) axis=0
v5: f32[8,4] = dynamic_update_slice(v3, v1, v2) axis=0
out v1
"""


def test_updates_of_updates_of_a_state_are_done_in_place():
    assert updatable(parse(TEXT)) == {3, 5}


def test_an_update_of_what_is_no_state_is_not():
    assert (
        updatable(parse(TEXT.replace('state v0: f32[8,4] "a" -> v5', 'slot v0: f32[8,4] "a"')))
        == set()
    )


def test_an_update_whose_source_is_an_output_is_not():
    assert updatable(parse(TEXT.replace("out v1", "out v0"))) == {5}
