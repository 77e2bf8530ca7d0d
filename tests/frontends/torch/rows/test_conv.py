"""ATen convolutions beside torch."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from poot.errors import UnsupportedOps
from poot.frontends.torch.rows.conv import CONV
from tests.support.aten import check, floats

NAME = "convolution.default"


@pytest.mark.parametrize(
    "stride, padding, dilation, groups, biased",
    list(product((1, 2), (0, 1), (1, 2), (1, 2, 4), (0, 1))),
)
def test_a_row_gives_what_torch_gives(stride, padding, dilation, groups, biased):
    x, w = floats(2, 4, 11), floats(8, 4 // groups, 3, seed=1)
    bias = floats(8, seed=2) if biased else None
    check(NAME, x, w, bias, [stride], [padding], [dilation], False, [0], groups)


@pytest.mark.parametrize("kernel, stride", [((3, 2), (1, 2)), ((2, 3), (2, 3)), ((1, 1), (1, 1))])
@pytest.mark.parametrize("padding", [(0, 0), (1, 0)])
def test_two_axes_and_windows_side_by_side(kernel, stride, padding):
    x, w = floats(2, 3, 7, 9), floats(5, 3, *kernel, seed=1)
    check(NAME, x, w, None, list(stride), list(padding), [1, 1], False, [0, 0], 1)


def test_every_row_has_a_case():
    assert list(CONV) == [NAME]


def test_sixteen_bits_are_summed_in_thirty_two():
    x, w = floats(1, 16, 9).bfloat16(), floats(4, 16, 3, seed=1).bfloat16()
    check(NAME, x, w, None, [1], [1], [1], False, [0], 1, close=2e-2)


@pytest.mark.parametrize(
    "args, why",
    [
        ((floats(1, 4, 5), floats(4, 2, 3), None, [1], [0], [1], True, [0], 1), "not transposed"),
        ((floats(1, 1, 400), floats(1, 1, 300), None, [1], [0], [1], False, [0], 1), "smaller"),
    ],
)
def test_what_has_no_composition_is_refused(args, why):
    with pytest.raises(UnsupportedOps, match=why):
        check(NAME, *args)


def test_a_kernel_of_one_patch_is_taken_whole():
    check(NAME, floats(1, 3, 32, 32), floats(8, 3, 16, 16, seed=1), floats(8), [16, 16], [0, 0],
          [1, 1], False, [0, 0], 1, close=1e-4)  # fmt: skip


def test_torch_itself_agrees_on_the_order_of_arguments():
    names = [a.name for a in torch.ops.aten.convolution.default._schema.arguments]
    assert names[3:] == ["stride", "padding", "dilation", "transposed", "output_padding", "groups"]
