"""Packings of weights."""

import numpy as np

from poot.ir.graph import TensorType
from poot.planner.layouts import PACKINGS, pack, packed_nbytes, panel_elems
from poot.planner.request import Layout


def test_row_major_is_the_array_itself():
    x = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(pack(x, Layout()), x)
    assert pack(x, Layout()).flags.c_contiguous


def test_packed_bytes_are_whole_words():
    assert packed_nbytes(TensorType("f16", (3,)), Layout()) == 8
    assert "row_major" in PACKINGS


def test_panels_hold_neighbours_along_the_axis_side_by_side():
    x = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    got = pack(x, Layout("panels", (1, 4)))
    assert got.shape == (2, 6, 4)
    for panel in range(2):
        for rest in range(6):
            for place in range(4):
                n = panel * 4 + place
                want = x[rest // 3, n, rest % 3] if n < 5 else 0
                assert got[panel, rest, place] == want


def test_panels_take_the_bytes_of_whole_panels():
    type = TensorType("f16", (5, 3))
    assert panel_elems(type, (0, 4)) == 24
    assert packed_nbytes(type, Layout("panels", (0, 4))) == 48
    assert packed_nbytes(TensorType("f16", (0, 3)), Layout("panels", (0, 4))) == 0
