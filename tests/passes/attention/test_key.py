"""Keys whose last part is one for all heads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from poot import ops
from poot.ops import Array
from tests.support.fused import only, operands, rewrite_of
from tests.support.traced import normal

B, H, LQ, LK = 2, 3, 4, 5


def attend(q: Array, k: Array, v: Array) -> Array:
    return ops.softmax((q @ k) * 0.3, 3) @ v


def heads_first(q: Array, own: Array, shared: Array, v: Array) -> Array:
    k = ops.concat([own, ops.broadcast_to(shared, (B, H, LK, 4))], 3)
    return attend(q, k.swapaxes(2, 3), v)


def rows_first(q: Array, own: Array, shared: Array, v: Array) -> Array:
    own = own.swapaxes(1, 2)
    wide = ops.broadcast_to(shared.reshape(B, LK, 1, 4), (B, LK, H, 4))
    return attend(q, ops.concat([own, wide], 3).transpose(0, 2, 3, 1), v)


def repeated(q: Array, own: Array, shared: Array, v: Array) -> Array:
    k = ops.concat([own, ops.repeat_kv(shared, H)], 3)
    return attend(q, k.swapaxes(2, 3), v)


@pytest.mark.parametrize("fn", [heads_first, rows_first, repeated])
def test_a_part_for_all_heads_is_an_operand_of_its_own(fn: Callable[..., Array]):
    arrays = (
        normal(0, B, H, LQ, 12),
        normal(1, B, H, LK, 8),
        normal(2, B, 1, LK, 4),
        normal(3, B, H, LK, 6),
    )
    got = operands(only(rewrite_of(fn, *arrays)))
    assert got["k"] == f"f32[{B},{H},{LK},8]"
    assert got["k_shared"] == f"f32[{B},1,{LK},4]"


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_heads_repeated_after_or_before_the_parts_are_joined_read_each_once(
    kv_heads: int, last: bool
):
    def fn(q: Array, own: Array, shared: Array, v: Array) -> Array:
        if last:
            wide = ops.broadcast_to(shared, (B, kv_heads, LK, 4))
            k = ops.repeat_kv(ops.concat([own, wide], 3), 4)
        else:
            wide = ops.broadcast_to(shared, (B, 4 * kv_heads, LK, 4))
            k = ops.concat([ops.repeat_kv(own, 4), wide], 3)
        return attend(q, k.swapaxes(2, 3), ops.repeat_kv(v, 4))

    arrays = (
        normal(0, B, 4 * kv_heads, LQ, 12),
        normal(1, B, kv_heads, LK, 8),
        normal(2, B, 1, LK, 4),
        normal(3, B, kv_heads, LK, 6),
    )
    got = rewrite_of(fn, *arrays)
    assert operands(only(got))["k"] == f"f32[{B},{kv_heads},{LK},8]"
    assert operands(only(got))["k_shared"] == f"f32[{B},1,{LK},4]"
    assert got.eqns("concat") == []


def test_a_part_of_each_head_is_joined_as_written():
    def fn(q: Array, own: Array, more: Array, v: Array) -> Array:
        return attend(q, ops.concat([own, more], 3).swapaxes(2, 3), v)

    arrays = (
        normal(0, B, H, LQ, 12),
        normal(1, B, H, LK, 8),
        normal(2, B, H, LK, 4),
        normal(3, B, H, LK, 6),
    )
    got = rewrite_of(fn, *arrays)
    assert "k_shared" not in operands(only(got))
    assert operands(only(got))["k"] == f"f32[{B},{H},{LK},12]"
    assert got.declined == ("not split: the last part of the key is not one for all heads",)


def test_a_shared_part_in_front_is_joined_as_written():
    def fn(q: Array, own: Array, shared: Array, v: Array) -> Array:
        k = ops.concat([ops.broadcast_to(shared, (B, H, LK, 4)), own], 3)
        return attend(q, k.swapaxes(2, 3), v)

    arrays = (
        normal(0, B, H, LQ, 12),
        normal(1, B, H, LK, 8),
        normal(2, B, 1, LK, 4),
        normal(3, B, H, LK, 6),
    )
    assert "k_shared" not in operands(only(rewrite_of(fn, *arrays)))


def test_an_absorbed_latent_is_one_key_head():
    """Multi-head latent attention over the latent itself: key 12 wide, value its first 8."""

    def fn(q: Array, latent: Array) -> Array:
        k = ops.broadcast_to(latent, (B, H, LK, 12))
        v = ops.broadcast_to(latent[..., :8], (B, H, LK, 8))
        return attend(q, k.swapaxes(2, 3), v)

    got = operands(only(rewrite_of(fn, normal(0, B, H, LQ, 12), normal(1, B, 1, LK, 12))))
    assert got["k"] == f"f32[{B},1,{LK},12]"
    assert got["v"] == f"f32[{B},1,{LK},8]"


def test_a_scaled_split_key_keeps_its_factor():
    def fn(q: Array, own: Array, shared: Array, v: Array) -> Array:
        k = ops.concat([own, ops.broadcast_to(shared, (B, H, LK, 4))], 3) * 0.5
        return attend(q, k.swapaxes(2, 3), v)

    arrays = (
        normal(0, B, H, LQ, 12),
        normal(1, B, H, LK, 8),
        normal(2, B, 1, LK, 4),
        normal(3, B, H, LK, 6),
    )
    assert only(rewrite_of(fn, *arrays)).attr("scale") == pytest.approx(0.15)
