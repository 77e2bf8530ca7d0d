"""Packings of weights."""

import numpy as np

from poot.ir.graph import TensorType
from poot.planner.layouts import PACKINGS, pack, packed_nbytes
from poot.planner.request import Layout


def test_row_major_is_the_array_itself():
    x = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(pack(x, Layout()), x)
    assert pack(x, Layout()).flags.c_contiguous


def test_packed_bytes_are_whole_words():
    assert packed_nbytes(TensorType("f16", (3,)), Layout()) == 8
    assert "row_major" in PACKINGS
