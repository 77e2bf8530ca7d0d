"""Tiles and operands of products on matrix units."""

from __future__ import annotations

from poot.codegen.gen.matmul.matrix.shape import PARTS
from tests.support.matrix import H200, RING, Form, request_for, shape_of


def test_an_operand_that_an_input_holds_is_copied_as_it_is():
    form = shape_of(request_for(Form(70, 72, 64).text(), H200))
    (tile,) = form.tiles
    assert (tile.left.source, tile.left.parts, tile.left.memory) == ("in0", 1, (1, 70, 72))
    (right,) = tile.rights
    assert (right.source, right.is_turned, right.memory) == ("in1", False, (1, 64, 72))


def test_a_left_operand_of_f32_is_made_in_three_parts():
    (tile,) = shape_of(request_for(Form(70, 70, 64, "f32").text(), H200)).tiles
    assert (tile.left.source, tile.left.parts, tile.left.memory) == (PARTS, 3, (1, 70, 72))
    assert tile.rights[0].source is None  # rows of 140 bytes are no whole 16


def test_columns_in_a_row_lie_in_panels():
    (tile,) = shape_of(request_for(Form(70, 72, 128, is_turned=True).text(), H200, RING)).tiles
    (right,) = tile.rights
    assert (right.is_turned, right.lines, right.panels, right.elems) == (True, 64, 1, 4096)


def test_products_that_an_output_needs_share_a_tiles_columns():
    text = Form(70, 72, 256, "f32", "bf16", is_double=True).text()
    (tile,) = shape_of(request_for(text, H200, RING)).tiles
    assert (tile.m, tile.n, len(tile.rights)) == (64, 32, 2)
    assert tile.count == 2 * 8


def test_inputs_that_are_computed_from_are_read_by_words():
    request = request_for(Form(70, 70, 64, "f32", "f16").text(), H200)
    inputs = {i.var.id for i in request.body.inputs}
    words = shape_of(request).words(request.body) & inputs
    assert words == {request.body.inputs[1].var.id}
