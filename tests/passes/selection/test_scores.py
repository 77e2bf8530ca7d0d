"""Scores of blocks from products, relu and a sum over heads: in text, with near misses."""

from __future__ import annotations

import pytest

import poot
from poot import ops
from poot.ir.text import parse
from poot.limits import profile
from poot.passes.canonicalize import canonicalize
from poot.passes.selection.match import fuse_selection
from tests.support.check import check_pass

H200 = profile("h200")
BEFORE = """
slot v0: bf16[2,4,3,64] "q"
slot v1: bf16[2,40,64] "keys"
v2: bf16[2,12,64] = reshape(v0) shape=(2, 12, 64)
v3: f32[2,12,64] = cast(v2) dtype=f32
v4: bf16[2,64,40] = transpose(v1) perm=(0, 2, 1)
v5: f32[2,64,40] = cast(v4) dtype=f32
v6: f32[2,12,40] = matmul(v3, v5)
v7: f32[2,4,3,40] = reshape(v6) shape=(2, 4, 3, 40)
v8: f32[] = const() dtype=f32 shape=() value=0.0
v9: f32[2,4,3,40] = max(v7, v8)
v10: f32[2,1,3,40] = reduce(v9) axis=(1,) keepdim=True kind=sum
v11: f32[] = const() dtype=f32 shape=() value=0.125
v12: f32[2,1,3,40] = mul(v10, v11)
out v12
"""
AFTER = """
slot v0: bf16[2,4,3,64] "q"
slot v1: bf16[2,40,64] "keys"
v2: f32[2,1,3,40] = block_scores(v0, v1) scale=0.125
out v2
"""


def fuse(graph):
    return fuse_selection(graph, H200).graph


def test_products_relu_and_sum_become_one_eqn():
    check_pass(fuse, BEFORE, AFTER, within=1e-6)


def test_other_devices_keep_the_primitives():
    for name in ("lavapipe", "cpu-avx2", "mi300x"):
        graph = parse(BEFORE)
        assert fuse_selection(graph, profile(name)).graph == graph


@pytest.mark.parametrize(
    "old, new",
    [("kind=sum", "kind=max"), ("value=0.0", "value=0.5"), ("bf16", "f32"),
     ("out v12", "out v12, v6"), ("out v12", "out v12, v9"), ("out v12", "out v12, v7")],
)  # fmt: skip
def test_what_is_another_chain_stays(old, new):
    text = BEFORE.replace(old, new)
    if new == "f32":
        text = text.replace("v3: f32[2,12,64] = cast(v2) dtype=f32\n", "")
        text = text.replace("v5: f32[2,64,40] = cast(v4) dtype=f32\n", "")
        text = text.replace("matmul(v3, v5)", "matmul(v2, v4)")
    assert not any(e.op == "block_scores" for e in fuse(parse(text)).eqns)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("weights", [None, "f32", "bf16"])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_ops_write_is_taken(dtype, weights, rows):
    specs = [poot.slot((2, 4, rows, 64), dtype), poot.slot((2, 40, 64), dtype)]
    specs += [poot.slot((2, 4, rows), weights)] if weights else []
    graph = poot.trace(lambda *xs: ops.block_scores(*xs), tuple(specs))
    fused = fuse(canonicalize(graph, H200).graph)
    (eqn,) = (e for e in fused.eqns if e.op == "block_scores")
    assert eqn.attr("scale") == 0.125
    assert len(eqn.ins) == 2 + (weights is not None)
