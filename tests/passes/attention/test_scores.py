"""The stages between the matmul and the softmax, and the order that the op has."""

from __future__ import annotations

import pytest

from poot.passes.attention.declines import Decline
from poot.passes.attention.scores import Stage, read_stages

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
