"""Operands from whatever layout the program keeps them in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poot import ops
from poot.ops import Array
from tests.support.fused import only, operands, rewrite_of
from tests.support.traced import normal


@pytest.mark.parametrize("perm", list(itertools.permutations(range(3))))
def test_permuted_buffers_are_read_where_they_lie(perm: tuple[int, ...]):
    """Case 50: batch, sequence and head in any order."""
    axes = (*perm, 3)
    back = tuple(int(a) for a in np.argsort(axes))
    shapes = ((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6))
    arrays = [normal(n, *(s[a] for a in axes)) for n, s in enumerate(shapes)]

    def fn(q: Array, k: Array, v: Array) -> Array:
        q, k, v = (x.transpose(back) for x in (q, k, v))
        return ops.softmax(q @ k.swapaxes(2, 3), 3) @ v

    assert operands(only(rewrite_of(fn, *arrays)))["k"] == "f32[2,4,7,8]"


def test_slices_of_one_buffer_are_operands():
    def fn(x: Array) -> Array:
        q, k, v = (x[:, :, n].swapaxes(1, 2) for n in range(3))
        return ops.softmax(q @ k.swapaxes(2, 3), 3) @ v

    only(rewrite_of(fn, normal(0, 2, 5, 3, 4, 8)))


@pytest.mark.parametrize("hq, hkv", [(28, 4), (24, 4), (40, 8), (9, 3), (64, 4), (71, 1), (12, 3)])
def test_any_group_size_reads_each_key_head_once(hq: int, hkv: int):
    """Cases 47 and 48."""
    q = normal(0, 1, hq, 1, 4)
    k = normal(1, 1, hkv, 7, 4)
    v = np.broadcast_to(np.arange(hkv, dtype=np.float32).reshape(1, -1, 1, 1), (1, hkv, 7, 2))

    def fn(q: Array, k: Array, v: Array) -> Array:
        out = ops.attention_masked(q, k, v, mask=None, scale=0.5)
        assert isinstance(out, Array)
        return out

    got = only(rewrite_of(fn, q, k, np.ascontiguousarray(v)))
    assert operands(got)["k"] == f"f32[1,{hkv},7,4]"


@pytest.mark.parametrize("dk, dv", [(32, 24), (64, 1), (24, 32), (1, 1), (33, 63)])
def test_values_may_be_wider_or_narrower_than_keys(dk: int, dv: int):
    """Cases 39 and 40."""

    def fn(q: Array, k: Array, v: Array) -> Array:
        out = ops.attention_masked(q, k, v, mask=None, scale=dk**-0.5)
        assert isinstance(out, Array)
        return out

    q, k, v = normal(0, 8, 4, 1, dk), normal(1, 8, 1, 36, dk), normal(2, 8, 1, 36, dv)
    got = only(rewrite_of(fn, q, k, v))
    assert str(got.out.type) == f"f32[8,4,1,{dv}]"
    assert got.attr("scale") == pytest.approx(dk**-0.5)


@pytest.mark.parametrize("batch, rows", [(0, 2), (2, 0)])
def test_no_elements_keep_their_primitives(batch: int, rows: int):
    def fn(q: Array, k: Array, v: Array) -> Array:
        return ops.softmax(q @ k.swapaxes(2, 3), 3) @ v

    arrays = (normal(0, batch, 2, rows, 4), normal(1, batch, 2, 5, 4), normal(2, batch, 2, 5, 4))
    got = rewrite_of(fn, *arrays)
    assert got.eqns("attention") == []
