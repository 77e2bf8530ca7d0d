"""Matmul regions taken apart: segments, folds, outputs aside."""

from __future__ import annotations

import pytest

from poot.codegen.gen.index import Index
from poot.codegen.gen.matmul.parts import dependents, products_of, row_number, stretched_batch
from poot.errors import CapabilityError
from tests.support.launch import request_of
from tests.support.products import BODIES


def parts(name: str):
    body, updates = BODIES[name]
    return products_of(request_of(body, "matmul", updates))


def test_products_that_meet_in_an_output_are_one_segment():
    (segment,) = parts("swiglu").segments
    assert len(segment.products) == 2
    assert (segment.batch, segment.rows, segment.cols, segment.depth) == ((1,), 3, 24, 16)


def test_products_apart_are_segments_apart():
    query, key = parts("qkv_with_rope_and_cache").segments
    assert (query.cols, query.outputs) == (24, (0,))
    assert (key.cols, key.outputs) == (8, (1,))


def test_a_norm_is_a_fold_and_its_rows_are_made_aside():
    found = parts("rms_norm")
    assert [f.op for f in found.folds] == ["reduce"]
    assert found.aside == (1,)


def test_folds_of_other_rows_are_refused():
    text = """in v0: f32[4,8]
              in v1: f32[8,4]
              v2: f32[] = reduce(v0) axis=(0, 1) keepdim=False kind=max
              v3: f32[4,8] = sub(v0, v2)
              v4: f32[4,4] = matmul(v3, v1)
              out v4"""
    with pytest.raises(CapabilityError, match="a fold of 1 rows before a product of 4"):
        products_of(request_of(text, "matmul"))


def test_an_output_of_products_of_two_shapes_is_refused():
    text = """in v0: f32[4,8]
              in v1: f32[8,4]
              in v2: f32[8,1]
              v3: f32[4,4] = matmul(v0, v1)
              v4: f32[4,1] = matmul(v0, v2)
              v5: f32[4,4] = mul(v3, v4)
              out v5"""
    with pytest.raises(CapabilityError, match="different shapes"):
        products_of(request_of(text, "matmul"))


def test_what_follows_from_a_value():
    body = request_of(BODIES["residual"][0], "matmul").body
    ids = dependents(body, body.inputs[3].var)
    assert body.outputs[0].id in ids
    assert body.inputs[0].var.id not in ids


def test_rows_are_numbered_row_major_and_broadcast_batches_stand_still():
    at = (Index((), 1), Index((), 2), Index((), 9))
    assert row_number((2, 3, 16), at).literal == 5
    own = (Index((), 4), Index((), 1), Index((), 7), Index((), 8))
    assert [c.literal for c in stretched_batch((1, 3, 5, 5), own)] == [0, 1]
    assert stretched_batch((5, 5), own) == ()
