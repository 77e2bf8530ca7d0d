"""The stages between the matmul and the softmax, and the order that the op has."""

from __future__ import annotations

import pytest

from poot import ops
from poot.ops import Array
from poot.passes.attention.declines import Decline
from poot.passes.attention.scores import Stage, read_stages
from tests.support.fused import only, operands, rewrite_of
from tests.support.traced import normal

SHAPE = (1, 1, 2, 3)


def scale(by: float) -> Stage:
    return Stage("scale", SHAPE, "m.py:1", by)


TANH = Stage("tanh", SHAPE, "m.py:2")
ADD = Stage("add", SHAPE, "m.py:3")
SELECT = Stage("select", SHAPE, "m.py:4", -2.0)


@pytest.mark.parametrize(
    "stages, after, want",
    [
        ((), 1.0, (1.0, None)),
        ((scale(0.5), scale(0.25)), 1.0, (0.125, None)),
        ((scale(0.5),), 4.0, (2.0, None)),
        ((scale(0.5), TANH, scale(30.0)), 1.0, (15.0, 30.0)),
        ((scale(0.5), TANH), 1.0, (0.5, 1.0)),
        ((TANH, scale(3.0)), 2.0, (6.0, 6.0)),
        ((scale(-0.5),), 1.0, (-0.5, None)),
    ],
)
def test_factors_become_scale_and_softcap(stages, after, want):
    form = read_stages(stages, after, "")
    assert (form.scale, form.softcap) == want
    assert form.masks == ()


def test_a_factor_after_a_select_multiplies_its_fill():
    form = read_stages((scale(0.5), SELECT), 3.0, "")
    assert form.scale == 1.5
    assert [m.number for m in form.masks] == [-6.0]


def test_what_log2_e_and_ln_2_leave_is_no_factor():
    form = read_stages((ADD, scale(1.4426950216293335)), 0.6931471824645996, "")
    assert form.scale == 1.0
    assert form.masks == (ADD,)


@pytest.mark.parametrize(
    "stages, after, why",
    [
        ((ADD, TANH), 1.0, "softcap after the mask"),
        ((SELECT, scale(2.0), TANH, scale(2.0)), 1.0, "softcap after the mask"),
        ((TANH, TANH), 1.0, "two softcaps"),
        ((ADD,), 2.0, "scaled after a mask"),
        ((scale(1e-30), scale(1e-30)), 1.0, "no normal f32"),
        ((scale(1e30), scale(1e30)), 1.0, "no normal f32"),
    ],
)
def test_another_order_is_declined(stages, after, why):
    with pytest.raises(Decline, match=why):
        read_stages(stages, after, "")


@pytest.mark.parametrize("kind", ["add", "select"])
def test_a_mask_of_more_axes_than_the_scores_is_a_stage_as_any(kind: str):
    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        scores = (
            q @ k.swapaxes(1, 2)
        ) * 0.5  # [heads, rows, keys], and the mask [1, 1, rows, keys]
        scores = scores + mask if kind == "add" else ops.where(mask > 0, scores, -1e9)
        return ops.softmax(scores).reshape(2, 5, 7) @ v

    arrays = (normal(0, 2, 5, 8), normal(1, 2, 7, 8), normal(2, 2, 7, 6), normal(3, 1, 1, 5, 7))
    assert operands(only(rewrite_of(fn, *arrays)))["q"] == "f32[1,2,5,8]"


def test_zero_added_to_the_scores_is_no_mask():
    def fn(q: Array, k: Array, v: Array) -> Array:
        return ops.softmax(q @ k.swapaxes(1, 2) * 0.5 + ops.zeros((1, 1, 1))) @ v

    arrays = (normal(0, 2, 5, 8), normal(1, 2, 7, 8), normal(2, 2, 7, 6))
    assert operands(only(rewrite_of(fn, *arrays))).keys() == {"q", "k", "v"}
