"""What a caller hands over, as numpy."""

from __future__ import annotations

import array

import numpy as np
import pytest
import torch

from poot.binding import as_array, bind_weights, check_weight
from poot.errors import BindError
from poot.ir.graph import Input, TensorType, Var, Weight
from poot.ir.text import parse

F32, I32 = TensorType("f32", (2,)), TensorType("i32", (2,))


def test_numpy_is_taken_as_it_is():
    x = np.ones(2, np.float32)
    assert as_array(x, "x", F32) is x


def test_dlpack_the_buffer_protocol_and_numbers_are_read():
    np.testing.assert_array_equal(as_array(torch.ones(2), "x", F32), np.ones(2, np.float32))
    assert as_array(array.array("f", [1, 2]), "x", F32).tolist() == [1, 2]
    assert as_array([0.5, 1.5], "x", F32).dtype == np.float32
    assert as_array([1, 2], "x", I32).tolist() == [1, 2]


def test_what_is_no_array_is_refused_by_name():
    with pytest.raises(BindError, match=r"x needs an array of f32\[2\]"):
        as_array([[1], [1, 2]], "x", F32)
    with pytest.raises(BindError, match="x can't be read over DLPack"):
        as_array(torch.ones(2).to_sparse(), "x", F32)


def test_a_weight_has_its_type_exactly():
    i = Input(Var(0, F32), "w", Weight())
    check_weight(i, np.ones(2, np.float32), False)
    with pytest.raises(BindError, match=r"w needs f32\[2\]: got float32\[3\]"):
        check_weight(i, np.ones(3, np.float32), False)
    with pytest.raises(BindError, match=r"w holds inf at \(1,\)"):
        check_weight(i, np.array([1, np.inf], np.float32), False)
    check_weight(i, np.array([1, np.inf], np.float32), True)


def test_weights_match_the_program_by_name():
    graph = parse('weight v0: f32[2] "a"\nweight v1: f32[2] "b"\nout v0')
    x = np.ones(2, np.float32)
    assert bind_weights({"main": graph}, {"a": x, "b": x}, False).keys() == {"a", "b"}
    with pytest.raises(BindError, match="missing b; unknown c"):
        bind_weights({"main": graph}, {"a": x, "c": x}, False)


@pytest.mark.parametrize("kind", ["turned", "part", "one row many times"])
def test_sixteen_bits_over_dlpack_need_not_be_contiguous(kind):
    whole = torch.arange(24.0).view(4, 6).bfloat16()
    x = {"turned": whole.T, "part": whole[1:3, ::2], "one row many times": whole[1].expand(3, 6)}[
        kind
    ]
    got = as_array(x, "x", TensorType("bf16", tuple(x.shape)))
    np.testing.assert_array_equal(got.astype(np.float32), x.float().numpy())
