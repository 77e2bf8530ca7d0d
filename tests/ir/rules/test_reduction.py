from __future__ import annotations

import pytest

from tests.support.rules import refused, typed


@pytest.mark.parametrize(
    "axis, keepdim, out",
    [
        ((1,), False, "f32[2,4]"),
        ((1,), True, "f32[2,1,4]"),
        ((0, 2), False, "f32[3]"),
        ((), False, "f32[2,3,4]"),
        ((0, 1, 2), False, "f32[]"),
    ],
)
def test_reduce_drops_or_keeps_its_axes(axis, keepdim, out):
    assert typed("reduce", "f32[2,3,4]", kind="sum", axis=axis, keepdim=keepdim) == out


def test_only_a_sum_may_fold_nothing():
    assert typed("reduce", "f32[2,0]", kind="sum", axis=(1,), keepdim=False) == "f32[2]"
    for kind in ("max", "min"):
        refused("one element", "reduce", "f32[2,0]", kind=kind, axis=(1,), keepdim=False)


@pytest.mark.parametrize("axis", [(1, 0), (0, 0), (2,), (-1,)])
def test_reduce_refuses_axes_out_of_order_or_bounds(axis):
    refused("ascending axes", "reduce", "f32[2,3]", kind="sum", axis=axis, keepdim=False)


def test_reduce_refuses_an_unknown_kind_and_what_has_no_order():
    refused("kind sum", "reduce", "f32[2]", kind="mean", axis=(0,), keepdim=False)
    refused("floats, i32 or u32", "reduce", "bool[2]", kind="max", axis=(0,), keepdim=False)


def test_argmax_gives_an_index_for_each_row():
    assert typed("argmax", "bf16[2,3,4]", axis=1) == "i32[2,4]"
    refused("non-empty axis", "argmax", "f32[2,0]", axis=1)
    refused("non-empty axis", "argmax", "f32[2]", axis=1)


def test_topk_gives_values_and_indices():
    assert typed("topk", "f16[2,5]", k=5) == "f16[2,5] i32[2,5]"
    refused("0 < k", "topk", "f32[2,5]", k=6)
    refused("0 < k", "topk", "f32[2,5]", k=0)
    refused("0 < k", "topk", "f32[]", k=1)
