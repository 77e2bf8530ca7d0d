"""torch's tensors as arrays, and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from poot.errors import TraceError
from poot.frontends.torch.tensors import DTYPES, as_numpy, as_tensor, dtype_name
from poot.ir.dtypes import dtype_of

SAME = (torch.float32, torch.float16, torch.int32, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", [*SAME, torch.bfloat16, torch.float8_e4m3fn])
def test_an_array_is_the_tensors_own_memory(dtype: torch.dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    array = as_numpy(tensor, "x")
    assert dtype_of(array.dtype) == dtype_name(dtype) == DTYPES[str(dtype)]
    assert array.ctypes.data == tensor.data_ptr()
    np.testing.assert_array_equal(array.astype(np.float32), tensor.float().numpy())


@pytest.mark.parametrize("dtype", [*SAME, torch.int64, torch.bfloat16, torch.float8_e4m3fn])
def test_a_tensor_comes_back_in_the_dtype_asked_for(dtype: torch.dtype):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    back = as_tensor(as_numpy(tensor, "x"), tensor)
    assert back.dtype == dtype
    assert torch.equal(back.float(), tensor.float())


def test_strides_come_back_too():
    like = torch.zeros(2, 3).t()
    back = as_tensor(np.arange(6, dtype=np.float32).reshape(3, 2), like)
    assert back.stride() == like.stride()
    assert back.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_integers_that_fit_become_narrow():
    assert as_numpy(torch.tensor([1, -(2**31)]), "x").dtype == np.int32
    with pytest.raises(
        TraceError, match=r"x needs integers that fit 32 bits: it holds 1..4294967296"
    ):
        as_numpy(torch.tensor([1, 2**32]), "x")


def test_a_dtype_without_a_place_is_named():
    with pytest.raises(TraceError, match=r"x is torch.float64; poot has bfloat16, bool"):
        as_numpy(torch.zeros(2, dtype=torch.float64), "x")
    assert dtype_name(torch.complex64) is None


def test_a_parameter_and_a_turned_tensor_are_read():
    assert as_numpy(torch.nn.Parameter(torch.ones(2)), "x").tolist() == [1, 1]
    turned = torch.arange(6.0).reshape(2, 3).t()
    assert as_numpy(turned, "x").strides == (4, 12)
    assert as_numpy(turned.bfloat16(), "x").dtype == ml_dtypes.bfloat16
