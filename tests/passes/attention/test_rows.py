"""The extents of the op, and rows written as it reads them."""

from __future__ import annotations

import math

import pytest

from poot.ir.text import parse
from poot.passes.attention.rows import Dims, Rows, dims_of
from poot.passes.engine import Scope


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 3, 4), (1, 1, 2)])
def test_the_first_of_two_or_more_batch_axes_is_the_batch(lead: tuple[int, ...]):
    shape = ",".join(map(str, (*lead, 5, 8)))
    keys = ",".join(map(str, (*lead, 8, 7)))
    out = ",".join(map(str, (*lead, 5, 7)))
    text = f"in v0: f32[{shape}]\nin v1: f32[{keys}]\nv2: f32[{out}] = matmul(v0, v1)\nout v2"
    batch = lead[0] if len(lead) > 1 else 1
    want = Dims(batch, math.prod(lead) // batch, 5, 7, 8, int(len(lead) > 1))
    assert dims_of(parse(text).eqns[0]) == want


@pytest.mark.parametrize("times, n_rep, heads", [(3, 3, 2), (3, 1, 6)])
def test_heads_that_the_op_repeats_are_not_written_out(times: int, n_rep: int, heads: int):
    graph = parse("in v0: f32[2,7,2,5]\nout v0")
    scope = Scope(graph)
    keys, channels = ((7, 10),), ((5, 1),)
    rows = Rows(graph.inputs[0].var, ((2, 70),), ((2, 5),), times, keys, channels)
    out = rows.written(scope, Dims(2, 6, 1, 7, 5, 1), n_rep)
    assert out.type.shape == (2, heads, 7, 5)
    assert next(e.op for e in scope.fresh) == "transpose"
    assert ("broadcast" in [e.op for e in scope.fresh]) == (n_rep == 1)
