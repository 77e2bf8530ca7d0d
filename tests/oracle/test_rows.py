"""The table and what a row is given."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.ir.graph import TensorType
from poot.oracle.rows import ROWS, At, held_dtype, row


def at(f64: bool, *outs: str) -> At:
    return At((), tuple(TensorType(d, ()) for d in outs), f64, lambda body, ins: ())


def test_floats_are_held_as_themselves_or_in_f64():
    assert held_dtype("bf16", False) == ml_dtypes.bfloat16
    assert held_dtype("bf16", True) == np.float64
    assert held_dtype("i32", True) == np.int32


def test_values_widen_to_f32_and_round_to_their_result():
    x = np.array([1.0], np.float16)
    assert at(False).wide(x).dtype == np.float32
    assert at(True).wide(x).dtype == np.float64
    assert at(False, "f32", "i32").held(x, 1).dtype == np.int32
    assert at(True, "f16").held(x).dtype == np.float64


def test_an_op_has_one_row():
    with pytest.raises(AssertionError):
        row("neg")(ROWS["neg"])
