"""Sums on their way out: slices through workgroup memory."""

from __future__ import annotations

from poot.codegen.gen.lower import lower
from poot.codegen.gen.matmul.matrix.end import STAGED
from tests.support.matrix import H200, RING, SWAPPED, Form, check, request_for


def _staged(form: Form, given=RING) -> int:
    calls = lower(request_for(form.text(), H200, given), H200).calls
    return next(s.elems for s in calls[-1].kernel.shared if s.name == STAGED)


def test_a_slice_of_each_product_lies_apart():
    assert _staged(Form(70, 64, 64)) == 64 * (32 + 8)
    assert _staged(Form(70, 64, 64, "f32", is_double=True)) == 2 * 64 * (32 + 8)
    assert _staged(Form(10, 64, 64), SWAPPED) == 64 * (16 + 2)


def test_rows_and_columns_past_the_end_are_not_stored():
    for given in (RING, SWAPPED):
        check(Form(13, 64, 67).text(), H200, given, 3e-2)
