"""Rows of a cache as codes, and what a paged step says of itself."""

from __future__ import annotations

import numpy as np
import pytest

from poot import ops
from poot.errors import RequestError
from poot.ir.graph import State
from poot.llm.paged import KV_TYPES, PagedStep, encode, pool_specs, step_slots
from poot.slots import ForwardSlotMap
from poot.trace import slot, state, trace
from tests.support.everywhere import compile_on, on

ROWS = np.random.default_rng(0).standard_normal((5, 2, 16)).astype(np.float32)


@pytest.mark.parametrize("dtype, near", [("i8", 0.5 / 127), ("f8e4m3", 2.0**-4)])
@on("oracle", "cpu", "vulkan")
def test_codes_times_scales_are_near_the_rows(dtype: str, near: float, target: str):
    """i8: half a code of the row's largest. f8e4m3: half a place of three bits, of the value."""

    def step(x, zero):
        codes, scales = encode(x, dtype)
        return codes.astype("f32") * ops.reshape(scales, (5, 2, 1)), zero

    graph = trace(step, (slot((5, 2, 16), "f32"), state((1,))))
    given = ROWS.copy()
    given[0, 0], given[1, 1, 3] = 0.0, 1e6
    got = np.asarray(compile_on(target, graph).bind().step(x=given))
    largest = np.abs(given).max(axis=-1, keepdims=True)
    bound = near * (largest if dtype == "i8" else np.abs(given)) + 1e-3 * largest + 1e-30
    assert (np.abs(got - given) <= bound).all()
    assert not got[0, 0].any()


def test_a_cache_of_an_unknown_kind_is_refused():
    with pytest.raises(RequestError, match="'int3'; needs one of f32, f16, bf16, int8, fp8"):
        pool_specs(64, 2, 16, "int3")


def test_pools_are_states_of_slots_heads_and_width():
    pools = pool_specs(64, 2, 16, "int8")
    assert pools.k.scales is not None
    assert pools.v is not None
    assert [str(s.type) for s in (pools.k.rows, pools.k.scales, pools.v.rows)] == [
        "i8[64,2,16]", "f32[64,2]", "i8[64,2,16]",
    ]  # fmt: skip
    assert pool_specs(64, 1, 24, "bf16", has_values=False).v is None
    assert all(isinstance(s.storage, State) for s in (pools.k.rows, pools.v.rows))
    assert all(pool_specs(64, 2, 16, kv).k.scales is None for kv in ("f32", "f16", "bf16"))
    assert set(KV_TYPES) == {"f32", "f16", "bf16", "int8", "fp8"}


def window_step(tokens, pos, read, write, kv, q, k, v):
    """One layer with a window of 8 over the pools."""
    step = PagedStep(tokens, pos, read, write)
    mixed, pools = step.attend(kv, q, k, v, scale=0.25, window=8, softcap=20.0)
    return (mixed, step.positions()), pools


@on("oracle", "cpu", "vulkan")
@pytest.mark.parametrize("count", [1, 4])
def test_case_26_a_window_reads_nothing_before_it(count: int, target: str):
    heads, width, slots = 2, 16, 64
    specs = {
        **{k: s for k, s in step_slots(1, count, 32, slots, 9).items() if k != "last"},
        "kv": pool_specs(slots, heads, width, "f32"),
        **{name: slot((1, heads, count, width), "f32") for name in "qkv"},
    }
    session = compile_on(target, trace(window_step, specs)).bind()
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, heads, count, width)).astype(np.float32) for _ in range(3))
    past = rng.standard_normal((2, slots, heads, width)).astype(np.float32)
    results = []
    for far in (0.0, 77.0):
        pools = past.copy()
        pools[:, 16:28] = far  # positions 0 to 11: before the window of every row
        session.state["kv.k.rows"], session.state["kv.v.rows"] = pools
        read = np.zeros((1, 32), np.int32)
        read[0, : 20 + count] = 16 + np.arange(20 + count)
        out, positions = session.step(
            tokens=np.zeros((1, count), np.int32), pos=np.array([20], np.int32), read=read,
            write=ForwardSlotMap(36 + np.arange(count), slots), q=q, k=k, v=v,
        )  # fmt: skip
        results.append(np.asarray(out))
        assert np.asarray(positions).tolist() == [list(range(20, 20 + count))]
    np.testing.assert_array_equal(results[0], results[1])
