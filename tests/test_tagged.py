"""Bits with their dtype beside them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import poot
from poot.errors import BindError
from poot.tagged import CARRIERS, Tagged, tagged
from tests.support.everywhere import compile_on


@pytest.mark.parametrize("dtype", CARRIERS)
def test_bits_are_the_same_memory_both_ways(dtype):
    numbers = np.array(
        [1.0, -2.0, 0.5], {"bf16": ml_dtypes.bfloat16}.get(dtype, ml_dtypes.float8_e4m3fn)
    )
    found = tagged(numbers)
    assert (found.dtype, found.bits.dtype) == (dtype, CARRIERS[dtype])
    assert np.shares_memory(found.bits, numbers)
    assert np.shares_memory(found.array(), numbers)
    np.testing.assert_array_equal(found.array(), numbers)


def test_bits_of_another_size_and_tags_that_are_none_are_refused():
    for bits, dtype, word in (
        (np.zeros(2, np.uint8), "bf16", "bf16 is carried by uint16: got uint8"),
        (np.zeros(2, np.uint16), "f16", "a tag is one of bf16, f8e4m3: got 'f16'"),
        ([1, 2], "bf16", "carried by uint16: got list"),
    ):
        with pytest.raises(BindError, match=word):
            Tagged(bits, dtype)  # pyright: ignore[reportArgumentType] - what users give
    with pytest.raises(BindError, match="float32 needs no tag"):
        tagged(np.zeros(2, np.float32))


@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_bf16_goes_in_and_out_as_tagged_bits(target):
    graph = poot.trace(lambda x, w: x + w, (poot.slot((4,), "bf16"), poot.weight((4,), "bf16")))
    program = poot.compile(graph, target) if target == "oracle" else compile_on(target, graph)
    x = np.array([1, 2, 3, 4], ml_dtypes.bfloat16)
    session = program.bind({"w": tagged(x)}, device_outputs=True)
    out = session.step(x=tagged(x)).tagged()  # pyright: ignore[reportAttributeAccessIssue] - one output
    assert (out.dtype, out.bits.dtype) == ("bf16", np.uint16)
    assert out.array().tolist() == [2, 4, 6, 8]
