"""Which outputs go through scratch, and how much they take."""

from __future__ import annotations

from poot.ir.text import parse
from poot.limits import PROFILES
from poot.planner.request import Scratch
from poot.planner.spills import new_part, spill_scratch, spilled, stores_whole_words, wide_dtype

BASELINE, LAVAPIPE, H200 = (PROFILES[n] for n in ("webgpu-baseline", "lavapipe", "h200"))
BODY = parse("""in v0: bf16[3,8]
                in v1: bf16[8,5]
                in v2: bf16[9,5]
                in v3: i32[]
                v4: bf16[3,5] = matmul(v0, v1)
                v5: bf16[9,5] = dynamic_update_slice(v2, v4, v3) axis=0
                v6: f32[3,5] = cast(v4) dtype=f32
                out v6, v4, v5""")
UPDATES = ((2, 2),)


def test_words_are_stored_whole_on_spirv_alone():
    assert [stores_whole_words("f16", p) for p in (BASELINE, LAVAPIPE, H200)] == [
        True,
        False,
        False,
    ]
    assert [stores_whole_words("bf16", p) for p in (BASELINE, LAVAPIPE, H200)] == [
        True,
        True,
        False,
    ]
    assert not stores_whole_words("bool", BASELINE)
    assert stores_whole_words("u8", LAVAPIPE)


def test_a_spilled_update_takes_scratch_for_its_new_part():
    assert spilled(BODY, "matmul", UPDATES, LAVAPIPE) == (1, 2)
    scratch = spill_scratch(BODY, "matmul", UPDATES, LAVAPIPE)
    assert scratch == (Scratch("f32", 15), Scratch("f32", 15))
    assert new_part(BODY, UPDATES, 2) == BODY.eqns[0].out
    assert new_part(BODY, (), 2) == BODY.outputs[2]


def test_elementwise_lanes_own_their_words():
    assert spilled(BODY, "none", UPDATES, LAVAPIPE) == ()
    assert spilled(BODY, "matmul", UPDATES, H200) == ()


def test_a_narrow_dtype_is_held_wide():
    assert [wide_dtype(d) for d in ("bf16", "f8e4m3", "i8", "u8")] == ["f32", "f32", "i32", "u32"]
