"""The left operand in workgroup memory: where its terms lie, and what they are."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.gen.job import open_job
from poot.codegen.gen.matmul.parts import products_of
from poot.codegen.gen.matmul.stream.left import Left
from poot.codegen.kir.sim import simulate
from poot.codegen.kir.verify import verify
from tests.support.launch import request_of
from tests.support.streams import CARD, norm_text


@pytest.mark.parametrize("rows, depth, width", [(1, 64, 8), (2, 96, 32), (3, 72, 8), (1, 20, 4)])
def test_lanes_find_the_normed_terms_of_their_pieces_and_the_sums_of_them(rows, depth, width):
    request = request_of(norm_text(rows, depth, 5), "matmul", (), CARD)
    products = products_of(request)
    job = open_job(request, CARD, "left", 64)
    k = job.k
    k.subgroup = 32
    job.bind_inputs(only={request.body.inputs[0].var.id})
    pieces = depth // width
    k.param("terms", "f32", rows * depth, "w")
    k.param("sums", "f32", rows * pieces, "w")
    left = Left(job, products.segments[0], products, width)
    left.stage(with_runs=True)
    with k.if_(k.lane() < pieces):
        piece = job.indexer.atom(k.lane(), pieces)
        for row in range(rows):
            for e, value in enumerate(left.terms(row, piece)):
                k.store("terms", job.indexer.value(piece * width + (row * depth + e)), value)
            k.store("sums", job.indexer.value(piece + row * pieces), left.run(row, piece))
    verify(k.kernel())
    x = np.random.default_rng(0).standard_normal((rows, depth)).astype(np.float32)
    terms, sums = np.zeros(rows * depth, np.float32), np.zeros(rows * pieces, np.float32)
    simulate(k.kernel(), {"in0": x.reshape(-1), "terms": terms, "sums": sums}, (1, 1, 1))
    moved = x - x.max(1, keepdims=True)
    want = moved / np.sqrt((moved * moved).sum(1, keepdims=True))
    np.testing.assert_allclose(terms.reshape(rows, depth), want, rtol=1e-5, atol=1e-6)
    folded = want.reshape(rows, pieces, width).sum(2)
    np.testing.assert_allclose(sums.reshape(rows, pieces), folded, rtol=1e-4, atol=1e-5)
