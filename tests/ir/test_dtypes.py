from __future__ import annotations

import numpy as np
import pytest

from poot.ir.dtypes import DTYPES, dtype_of, is_float, is_integer


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda d: d.name)
def test_a_dtype_comes_back_from_numpy(dtype):
    assert dtype_of(dtype.numpy) == dtype.name


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda d: d.name)
def test_a_device_holds_what_numpy_holds_but_bools_as_words(dtype):
    assert dtype.nbytes == (4 if dtype.name == "bool" else dtype.numpy.itemsize)


def test_dtypes_that_poot_lacks_have_no_name():
    for name in ("float64", "int64", "complex64", "U4"):
        assert dtype_of(np.dtype(name)) is None


def test_each_dtype_is_of_one_class():
    assert [d for d in DTYPES if is_float(d)] == ["f32", "f16", "bf16", "f8e4m3"]
    assert [d for d in DTYPES if is_integer(d)] == ["i32", "u32", "i8", "u8"]
