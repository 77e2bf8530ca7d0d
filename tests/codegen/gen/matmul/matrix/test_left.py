"""The launch that makes a left operand in parts."""

from __future__ import annotations

import numpy as np

from poot.codegen.gen.lower import lower
from tests.support.launch import device_buffers, inputs_of, simulate_lowered
from tests.support.matrix import H200, Form, request_for


def test_parts_add_up_to_the_operand_and_rows_end_in_zeros():
    request = request_for(Form(12, 70, 64, "f32", is_made=True).text(), H200)
    ins = inputs_of(request)
    ins[0][1, 2], ins[0][3, 4], ins[0][5, 6] = np.inf, 3.4e38, np.float32(1e-30)
    buffers = device_buffers(request, ins)
    simulate_lowered(lower(request, H200), buffers)
    bits = buffers["scratch", 0].view(np.uint16).reshape(3, 12, 72).astype(np.uint32) << 16
    parts = bits.view(np.float32)
    assert (parts[:, :, 70:] == 0).all()
    np.testing.assert_array_equal(parts.sum(0, dtype=np.float32)[:, :70], -ins[0])


def test_an_operand_that_an_input_holds_needs_no_launch():
    assert len(lower(request_for(Form(12, 72, 64).text(), H200), H200).calls) == 1
    assert len(lower(request_for(Form(12, 72, 64, is_made=True).text(), H200), H200).calls) == 2
