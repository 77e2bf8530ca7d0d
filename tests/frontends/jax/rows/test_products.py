"""dot_general against JAX, and which operand stands left."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import poot
from tests.support.jaxpr import check, floats


@pytest.mark.parametrize(
    "sum",
    [
        "ij,jk->ik", "ij,kj->ik", "ji,jk->ki", "bij,bjk->bik", "bij,bkj->bki", "bqhd,bkhd->bhqk",
        "bhqk,bkhd->bqhd", "bqngd,bknd->bngqk", "bngqk,bknd->bqngd", "bld,dhe->bhle", "i,i->",
        "ij,kl->ijkl", "bl,bl->b",
    ],
)  # fmt: skip
def test_products_over_any_axes(sum: str):
    extents = dict(zip("bhijkldeqng", (2, 3, 4, 5, 6, 4, 8, 3, 5, 2, 2), strict=True))
    shapes = [[extents[c] for c in part] for part in sum.split("->")[0].split(",")]
    args = [floats(*shape, seed=n) for n, shape in enumerate(shapes)]
    check(lambda a, b: jnp.einsum(sum, a, b), *args)


@pytest.mark.parametrize("out", [None, jnp.float32])
def test_products_of_sixteen_bits(out: type | None):
    a, b = (floats(4, 5, seed=n).astype(ml_dtypes.bfloat16) for n in (0, 1))
    check(lambda a, b: lax.dot(a, b.T, preferred_element_type=out), a, b, close=1e-2)


def test_a_weight_stands_right():
    def layer(w: np.ndarray, x: np.ndarray) -> np.ndarray:
        return lax.dot_general(w, x, (((1,), (1,)), ((), ()))).T

    got = poot.from_jax(layer, {"w": floats(6, 5)}["w"], floats(3, 5), weights=(0,))
    (product,) = (e for e in got.graph.eqns if e.op == "matmul")
    assert product.out.type.shape == (3, 6)
