"""Pieces of a right operand: which loads they take."""

from __future__ import annotations

import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.matmul.stream.pieces import Pieces
from poot.errors import CapabilityError
from tests.support.launch import request_of
from tests.support.products import BODIES, matmul_text
from tests.support.streams import CARD


def pieces_of(text: str, width: int, words: bool = True) -> Pieces:
    request = request_of(text, "matmul", (), CARD)
    job = open_job(request, CARD, "pieces", 32)
    job.bind_inputs(words={i.var.id for i in request.body.inputs[1:2]} if words else ())
    (product,) = (e for e in request.body.eqns if e.op == "matmul")
    return Pieces(job, product, width, job.inputs)


def loads(pieces: Pieces) -> list[str]:
    return [f"{load.var.type.dtype} {load.type} +{load.offset}" for load in pieces.loads]


@pytest.mark.parametrize("dtype, width, type", [("bf16", 8, "u32x4"), ("f32", 4, "f32x4")])
def test_a_plain_weights_piece_is_one_load_of_16_bytes(dtype, width, type):
    assert loads(pieces_of(matmul_text(1, 64, 5, True, dtype), width)) == [f"{dtype} {type} +0"]


def test_a_piece_of_codes_is_their_words_and_one_scale_and_minimum():
    got = loads(pieces_of(BODIES["q4_1"][0], 32))
    assert got == ["u32 u32x4 +0", "f16 f16 +0", "f16 f16 +0"]


def test_terms_that_lie_apart_are_loads_of_one():
    got = loads(pieces_of(matmul_text(1, 64, 6, False), 4, words=False))
    assert got == [f"f32 f32 +{6 * n}" for n in range(4)]


def test_a_piece_that_begins_within_a_word_is_refused():
    request = request_of(BODIES["q4_1"][0], "matmul", (), CARD)
    job = open_job(request, CARD, "pieces", 32)
    job.bind_inputs(words={i.var.id for i in request.body.inputs})
    (product,) = (e for e in request.body.eqns if e.op == "matmul")
    with pytest.raises(CapabilityError, match="begins within a word"):
        Pieces(job, product, 32, job.inputs)
