"""Which numbers a dtype takes as a constant."""

from __future__ import annotations

import math

import pytest

from poot.errors import TypeRuleError
from poot.ops.scalars import constant


@pytest.mark.parametrize(
    "value, dtype, held",
    [
        (0.1, "f32", 0.1),
        (2, "f16", 2.0),
        (2**30, "f16", None),
        (2048, "f16", 2048.0),
        (2049, "f16", None),
        (2**24 + 1, "f32", None),
        (2**60, "f32", float(2**60)),
        (2**40 + 2**33, "bf16", float(2**40 + 2**33)),
        (257, "bf16", None),
        (65504.0, "f16", 65504.0),
        (65519.0, "f16", 65519.0),
        (65520.0, "f16", None),
        (3.5e38, "f32", None),
        (-math.inf, "f16", -math.inf),
        (448, "f8e4m3", 448.0),
        (480.0, "f8e4m3", None),
        (True, "bool", True),
        (1, "bool", None),
        (True, "i32", None),
        (True, "f32", None),
        (2.0, "i32", 2),
        (0.5, "i32", None),
        (math.inf, "i32", None),
        (math.nan, "u32", None),
        (2**31, "i32", None),
        (-(2**31), "i32", -(2**31)),
        (2**32 - 1, "u32", 2**32 - 1),
        (-1, "u32", None),
        (300, "u8", None),
        (-128, "i8", -128),
        (1.0, "f64", None),
    ],
)
def test_a_dtype_takes_what_it_holds(value: float, dtype: str, held: object):
    if held is None:
        with pytest.raises(TypeRuleError, match="mul needs"):
            constant(value, dtype, "mul")
        return
    got = constant(value, dtype, "mul")
    assert got == held
    assert type(got) is type(held)


def test_not_a_number_is_a_float():
    assert math.isnan(constant(math.nan, "f32", "mul"))
