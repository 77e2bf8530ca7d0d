"""Hard cases of steps over cached rows: places out of bounds, padding, and what a compiled entry
point reads."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import BindError, RangeError, SlotMapError, ValidationError
from poot.session import Session
from poot.slots import ForwardSlotMap
from tests.support.everywhere import DEVICES, compile_on, on

EVERYWHERE = on("oracle", *DEVICES)
SLOTS, BLOCK, WIDTH = 80, 16, 4


def paged(pool, x, write, read):
    """New rows into a pool of slots, and what each row of the map reads."""
    pool = ops.scatter_update(pool, x, write)
    return pool[read].sum(axis=1), pool


def pool_session(target: str, rows: int, new: int, width: int = 4) -> Session:
    specs = (
        poot.state((SLOTS, WIDTH)),
        poot.slot((new, WIDTH), "f32"),
        poot.slot((new,), "i32", kind="write_map", range=(-1, SLOTS)),
        poot.slot((rows, width), "i32", kind="slot_map", range=(0, SLOTS)),
    )
    session = compile_on(target, poot.trace(paged, specs)).bind()
    rng = np.random.default_rng(1)
    session.state["pool"] = rng.random((SLOTS, WIDTH)).astype(np.float32)
    return session


@EVERYWHERE
def test_case_20_a_place_past_its_row_never_reads_the_neighbours(target: str):
    """Tables [5, 6, 7, 8] and [9, 10, 11, 12] of blocks of four: place 17 of row 0 is no place."""
    session = pool_session(target, 2, 1, width=16)
    blocks = np.array([[5, 6, 7, 8], [9, 10, 11, 12]])
    table = (blocks[:, :, None] * 4 + np.arange(4)).reshape(2, 16).astype(np.int32)
    session.step(x=np.zeros((1, WIDTH), np.float32), write=ForwardSlotMap([-1], SLOTS), read=table)
    before = session.state["pool"].tobytes()
    for place in (16, 17, 130, 8192, 1048575):
        with pytest.raises(BindError, match=rf"has no {place} on axis 1"):
            session.slots["read"].update(0, place, 0)
    np.testing.assert_array_equal(session.slots["read"].read(), table)
    with pytest.raises(RangeError, match=r"slot 'read' needs values in 0..79: \[0, 3\] is 80"):
        session.slots["read"].update(0, 3, SLOTS)
    out = session.step()
    assert session.state["pool"].tobytes() == before
    pool = np.frombuffer(before, np.float32).reshape(SLOTS, WIDTH)
    np.testing.assert_allclose(out, pool[table].sum(axis=1), rtol=1e-5)


@EVERYWHERE
def test_case_21_a_slot_of_minus_one_writes_nothing(target: str):
    """128 rows, of which 64 are padding: slot 79 and all unnamed ones keep their bytes."""
    session = pool_session(target, 1, 128)
    before = session.state["pool"]
    write = np.full(128, -1)
    write[:64] = np.random.default_rng(2).permutation(79)[:64]
    x = np.arange(128 * WIDTH, dtype=np.float32).reshape(128, WIDTH)
    read = np.zeros((1, 4), np.int32)
    session.step(x=x, write=ForwardSlotMap(write, SLOTS), read=read)
    want = before.copy()
    want[write[:64]] = x[:64]
    np.testing.assert_array_equal(session.state["pool"], want)
    for bad, words in ((80, r"rows\[64\]=80"), (2**31 - 1, "rows"), (write[0], "each slot once")):
        with pytest.raises(SlotMapError, match=words):
            session.step(write=ForwardSlotMap(np.where(np.arange(128) == 64, bad, write), SLOTS))
    np.testing.assert_array_equal(session.state["pool"], want)


@EVERYWHERE
def test_case_21_rows_that_only_the_device_knows_write_inside_or_nothing(target: str):
    """Slots -1, 80 and 2^31 - 1 among rows that the graph computes."""

    def step(pool, x, rows):
        return x.sum(), ops.scatter_update(pool, x, rows)

    specs = (poot.state((SLOTS, 3), "f16"), poot.slot((4, 3), "f16"), poot.slot((4,), "i32"))
    session = compile_on(target, poot.trace(step, specs)).bind()
    before = np.random.default_rng(3).random((SLOTS, 3)).astype(np.float16)
    session.state["pool"] = before
    x = np.ones((4, 3), np.float16)
    session.step(x=x, rows=np.array([-1, 80, 2**31 - 1, 78], np.int32))
    before[78] = 1
    np.testing.assert_array_equal(session.state["pool"], before)


def append(state, x, live):
    """One row at the end of what is live, between two States that nobody writes."""
    left, kv, right = state
    at = ops.checked(live, 0, 2 * BLOCK)
    kv = ops.dynamic_update_slice(kv, x, at, axis=0)
    return (left + right).sum() + kv.sum(), (left, kv, right)


@EVERYWHERE
def test_case_22_an_append_to_a_full_cache_is_refused_and_hurts_nothing(target: str):
    """32 places: appending at 31 works, at 32 raises; the neighbours keep their bytes."""
    sides = poot.state((2 * BLOCK, WIDTH))
    specs = ((sides, sides, sides), poot.slot((1, WIDTH), "f32"), poot.slot((), "i32"))
    session = compile_on(target, poot.trace(append, specs)).bind()
    guard = np.full((2 * BLOCK, WIDTH), 7.0, np.float32)
    session.state["state.0"], session.state["state.2"] = guard, guard
    x = np.ones((1, WIDTH), np.float32)
    session.step(x=x, live=31)
    full = session.state["state.1"].tobytes()
    for live in (32, 33, 1 << 20):
        with pytest.raises(ValidationError, match=rf"needs values in 0..31: \[\] is {live};"):
            session.step(live=live)
        assert session.state["state.1"].tobytes() == full
        assert (session.state["state.0"] == 7).all()
        assert (session.state["state.2"] == 7).all()
    session.step(live=5)
    assert session.state["state.1"][5].tolist() == [1] * WIDTH


def live_attention(q, k, v, length):
    return ops.attention_live(q, k, v, length, scale=0.5)


def live_session(target: str, rows: int, keys: int) -> Session:
    specs = (
        poot.slot((rows, 2, 1, WIDTH), "f32"),
        poot.slot((rows, 1, keys, WIDTH), "f32"),
        poot.slot((rows, 1, keys, WIDTH), "f32"),
        poot.slot((rows,), "i32"),
    )
    return compile_on(target, poot.trace(live_attention, specs)).bind()


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, n: int) -> np.ndarray:
    scores = np.einsum("hqd,kd->hqk", q, k[0, :n]) * 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,kd->hqd", weights / weights.sum(-1, keepdims=True), v[0, :n])


def numbers(rows: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    shapes = ((rows, 2, 1, WIDTH), (rows, 1, keys, WIDTH), (rows, 1, keys, WIDTH))
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    return q, k, v


@EVERYWHERE
def test_case_23_a_length_past_the_table_is_refused_and_the_next_call_works(target: str):
    """A table of four pages of 16, and a length of 80."""
    session = live_session(target, 1, 64)
    q, k, v = numbers(1, 64)
    with pytest.raises(ValidationError, match=r"needs values in 1..64: \[0\] is 80") as e:
        session.step(q=q, k=k, v=v, length=np.array([80], np.int32))
    assert e.value.bounds == (1, 65)
    out = session.step(length=np.array([64], np.int32))
    np.testing.assert_allclose(out[0], reference(q[0], k[0], v[0], 64), rtol=2e-5, atol=2e-5)


@EVERYWHERE
def test_case_24_a_padded_row_is_of_length_one_and_alone(target: str):
    """Lengths 7, 0, 33, 0: length 0 is refused by name; a padding row has length 1, and the others
    are as they are by themselves."""
    session = live_session(target, 4, 40)
    q, k, v = numbers(4, 40)
    with pytest.raises(ValidationError, match=r"needs values in 1..40: \[1\] is 0; 2 of 4 failed"):
        session.step(q=q, k=k, v=v, length=np.array([7, 0, 33, 0], np.int32))
    k[1::2, :, 1:], v[1::2, :, 1:] = np.nan, np.nan
    out = session.step(k=k, v=v, length=np.array([7, 1, 33, 1], np.int32))
    assert np.isfinite(out).all()
    for row, n in ((0, 7), (2, 33), (1, 1)):
        want = reference(q[row], k[row], v[row], n)
        np.testing.assert_allclose(out[row], want, rtol=2e-5, atol=2e-5)


@EVERYWHERE
def test_case_89_one_compiled_decode_serves_every_length(target: str):
    session = live_session(target, 1, 64)
    q, k, v = numbers(1, 64)
    kernels = len(session.program.codes)
    replay = session.capture()
    replay(q=q, k=k, v=v, length=np.array([64], np.int32))
    for n in (1, 2, 3, 64, 63, 1):
        length = np.array([n], np.int32)
        out = replay(length=length)
        fresh = live_session(target, 1, 64)
        np.testing.assert_array_equal(out, fresh.step(q=q, k=k, v=v, length=length))
        fresh.close()
        np.testing.assert_allclose(out[0], reference(q[0], k[0], v[0], n), rtol=2e-5, atol=2e-5)
    assert len(session.program.codes) == kernels


@EVERYWHERE
@pytest.mark.parametrize("rows", [64, 4096])
def test_rows_of_a_value_scattered_over_itself_are_those_from_before(target: str, rows: int):
    """What is written is made of what is written over; that stays, and a copy is updated."""
    specs = (poot.slot((rows, WIDTH), "f32"), poot.slot((rows,), "i32"))
    graph = poot.trace(lambda x, to: ops.scatter_update(x, x, to), specs)
    session = compile_on(target, graph).bind()
    x = np.random.default_rng(3).random((rows, WIDTH)).astype(np.float32)
    to = np.random.default_rng(4).permutation(rows).astype(np.int32)
    want = np.empty_like(x)
    want[to] = x
    np.testing.assert_array_equal(session.step(x=x, to=to), want)
    session.close()
