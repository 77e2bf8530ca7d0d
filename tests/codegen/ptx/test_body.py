"""What the body knows: folded integers, roots of addresses, copies of what changes."""

from __future__ import annotations

import numpy as np

from poot.codegen.kir.build import F32, I32, KernelBuilder
from tests.support.ptx_agree import agree, ptx_of


def test_neighbours_share_an_address_and_differ_by_an_offset():
    k = KernelBuilder("near", 32)
    x, y = k.param("x", "f32", 4096, "r"), k.param("y", "f32", 4096, "w")
    i = k.group_id(0) * 64 + k.lane()
    with k.for_(0, 4, unroll=0) as n:
        k.store(y, i + n, k.load(x, i + n * 3))
    text = ptx_of(k.kernel())
    assert text.count("mad.wide") == 2
    assert "[$t4+36]" not in text
    assert "+36]" in text
    agree(k.kernel(), {"x": np.arange(4096, dtype=np.float32)}, (2, 1, 1))


def test_a_sum_of_two_offsets_has_one_root():
    k = KernelBuilder("sums", 32)
    x, y = k.param("x", "f32", 4096, "r"), k.param("y", "f32", 4096, "w")
    a, b = k.lane() + 3, k.group_id(0) * 32 + 5
    k.store(y, k.lane(), k.load(x, a + b) + k.load(x, k.lane() + k.group_id(0) * 32))
    text = ptx_of(k.kernel())
    assert "+32]" in text
    agree(k.kernel(), {"x": np.arange(4096, dtype=np.float32)})


def test_an_offset_that_wraps_is_still_right():
    k = KernelBuilder("wraps", 32)
    x, y = k.param("x", "f32", 64, "r"), k.param("y", "f32", 64, "w")
    far = k.lane() - 2**31 + 2**30
    k.store(y, k.lane(), k.load(x, far + 2**30))
    agree(k.kernel(), {"x": np.arange(64, dtype=np.float32)})


def test_an_immutable_copy_keeps_what_a_mutable_held():
    k = KernelBuilder("copies", 32)
    y = k.param("y", "f32", 96, "w")
    m = k.var(k.cast(k.lane(), "f32"))
    before = k.copy(m)
    pair = k.vec(m, m)
    k.set(m, m * 2.0)
    k.store(y, k.lane(), before)
    k.store(y, k.lane() + 32, m)
    k.store(y, k.lane() + 64, k.extract(pair, 1))
    out = agree(k.kernel(), {})["y"]
    lane = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(out, np.concatenate([lane, 2 * lane, lane]))


def test_what_a_loop_made_is_right_after_it():
    k = KernelBuilder("after", 32)
    y = k.param("y", "i32", 32, "w")
    last = k.var(0, I32)
    with k.for_(0, 7) as n:
        k.set(last, n + 0)
    with k.for_(0, 3, unroll=0) as n:
        k.set(last, last + n)
    k.store(y, k.lane(), last)
    assert (agree(k.kernel(), {})["y"] == 9).all()


def test_names_follow_the_kernels_registers():
    k = KernelBuilder("names", 32)
    y = k.param("y", "f32", 32, "w")
    total = k.var(0.0, F32, name="total")
    k.set(total, total + 1.0)
    k.store(y, k.lane(), total)
    text = ptx_of(k.kernel())
    assert "$total_" in text
    assert "$y_base" in text
