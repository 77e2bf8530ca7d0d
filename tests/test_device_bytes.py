"""Arrays as the device holds them."""

import ml_dtypes
import numpy as np
import pytest

from poot.device_bytes import from_device, to_device
from poot.ir.graph import TensorType


@pytest.mark.parametrize(
    "dtype, numpy",
    [("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("u8", np.uint8), ("bool", bool)],
)
def test_an_array_comes_back_as_it_went(dtype: str, numpy: type):
    x = (np.arange(15).reshape(3, 5) % 2).astype(numpy)
    data = to_device(x, TensorType(dtype, (3, 5)))
    assert data.dtype == np.uint8
    assert data.size % 4 == 0
    np.testing.assert_array_equal(from_device(data, TensorType(dtype, (3, 5))), x)


def test_a_bool_takes_a_word():
    assert to_device(np.array([True, False]), TensorType("bool", (2,))).size == 8
