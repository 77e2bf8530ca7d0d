from __future__ import annotations

import pytest

from tests.support.rules import refused, typed


def test_reshape_keeps_the_count():
    assert typed("reshape", "f32[2,3]", shape=(3, 1, 2)) == "f32[3,1,2]"
    assert typed("reshape", "f32[0,3]", shape=(0,)) == "f32[0]"
    refused("as many elements", "reshape", "f32[2,3]", shape=(5,))
    refused("as many elements", "reshape", "f32[2,3]", shape=(-2, -3))


def test_broadcast_stretches_ones_from_the_right():
    assert typed("broadcast", "f32[3,1]", shape=(2, 3, 4)) == "f32[2,3,4]"
    assert typed("broadcast", "bool[1]", shape=(0,)) == "bool[0]"
    refused("x stretches to", "broadcast", "f32[3,1]", shape=(1,))
    refused("broadcast", "broadcast", "f32[3]", shape=(4,))


def test_transpose_permutes():
    assert typed("transpose", "f32[2,3,4]", perm=(2, 0, 1)) == "f32[4,2,3]"
    refused("each axis of x once", "transpose", "f32[2,3]", perm=(0, 0))
    refused("each axis of x once", "transpose", "f32[2,3]", perm=(0,))


@pytest.mark.parametrize(
    "start, stop, step, out", [(0, 9, 1, 9), (2, 9, 3, 3), (2, 8, 3, 2), (4, 4, 1, 0), (8, 9, 5, 1)]
)
def test_slice_counts_as_python_does(start, stop, step, out):
    attrs = {"start": (start,), "stop": (stop,), "step": (step,)}
    assert typed("slice", "f32[9]", **attrs) == f"f32[{out}]"
    assert len(range(9)[start:stop:step]) == out


def test_slice_refuses_bounds_outside_and_steps_back():
    one = {"start": (0,), "stop": (9,), "step": (1,)}
    for wrong in ({"start": (-1,)}, {"stop": (10,)}, {"step": (0,)}, {"start": (5,), "stop": (4,)}):
        refused("step > 0", "slice", "f32[9]", **one | wrong)
    refused("bounds for every axis", "slice", "f32[9,2]", **one)


def test_concat_adds_up_one_axis():
    assert typed("concat", "f32[2,3]", "f32[2,0]", "f32[2,4]", axis=1) == "f32[2,7]"
    refused("at least one operand", "concat", axis=0)
    refused("operands alike but along axis", "concat", "f32[2,3]", "f32[3,3]", axis=1)
    refused("operands alike but along axis", "concat", "f32[2]", "f16[2]", axis=0)
    refused("operands alike but along axis", "concat", "f32[2]", "f32[2,2]", axis=0)
    refused("an axis of the operands", "concat", "f32[2]", axis=1)


def test_iota_counts_in_whole_words():
    assert typed("iota", shape=(2, 3), axis=1, dtype="i32") == "i32[2,3]"
    assert typed("iota", shape=(2,), axis=0, dtype="u32") == "u32[2]"
    for dtype in ("f32", "u8", "int", "bool"):
        refused("i32 or u32", "iota", shape=(2,), axis=0, dtype=dtype)
    refused("an axis of shape", "iota", shape=(), axis=0, dtype="i32")


@pytest.mark.parametrize(
    "dtype, value", [("f32", 0.5), ("f16", 2), ("i32", -1), ("u8", 255), ("bool", True)]
)
def test_const_takes_a_value_of_its_dtype(dtype, value):
    assert typed("const", shape=(2,), dtype=dtype, value=value) == f"{dtype}[2]"


@pytest.mark.parametrize("dtype, value", [("i32", 0.5), ("bool", 1), ("u32", 1.0)])
def test_const_refuses_a_value_of_another_dtype(dtype, value):
    refused("a value of its dtype", "const", shape=(), dtype=dtype, value=value)


def test_const_refuses_an_unknown_dtype():
    refused("a known dtype", "const", shape=(), dtype="f64", value=0.0)
