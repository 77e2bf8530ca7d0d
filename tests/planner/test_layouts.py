"""Packings of weights."""

import numpy as np
import pytest

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


@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 5), (3, 8), (0, 5), (5, 0), (2, 17)])
@pytest.mark.parametrize("axis", [0, -1])
def test_panels_hold_each_element_once_and_zeros_behind(shape: tuple[int, ...], axis: int):
    """Also where an axis is shorter than a panel, or another has no extent."""
    axis %= len(shape)
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    packed = pack(x, Layout("panels", (axis, 8)))
    extent = shape[axis]
    others = int(np.prod(np.delete(shape, axis)))
    assert packed.shape == (-(-extent // 8), others, 8)
    rows = np.moveaxis(x, axis, -1).reshape(packed.shape[1], extent)
    flat = packed.transpose(1, 0, 2).reshape(packed.shape[1], packed.shape[0] * 8)
    np.testing.assert_array_equal(flat[:, :extent], rows)
    assert not flat[:, extent:].any()
