"""`from_jax`: small functions, and what it says of others. Whole models: tests/suites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import poot
from poot.errors import RangeError, TraceError, UnsupportedOps
from tests.support.jaxpr import floats

W = {"words": floats(11, 8), "out": floats(8, 24, seed=1)}
IDS = np.array([[1, 0, 10]], np.int32)


def net(w: Any, ids: jax.Array) -> jax.Array:
    return jax.nn.softmax(w["words"][ids] @ w["out"])


@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_a_function_gives_what_jax_gives(target: str):
    got = poot.from_jax(net, W, IDS)
    session = got.bind(poot.compile(got.graph, target))
    np.testing.assert_allclose(session.step(ids=IDS), net(W, IDS), rtol=1e-5, atol=1e-6)


def test_what_indexes_a_table_is_checked_at_the_bind():
    got = poot.from_jax(net, W, IDS)
    session = got.bind(poot.compile(got.graph, "oracle"))
    with pytest.raises(RangeError, match=r"'ids' needs values in 0..10: \[0, 2\] is 11"):
        session.step(ids=np.array([[1, 0, 11]]))


def test_a_range_of_what_is_no_integer_input_is_refused():
    with pytest.raises(TraceError, match=r"ranges of integer inputs, ids: got w\.words"):
        poot.from_jax(net, W, IDS, ranges={"w.words": (0, 4)})


def test_every_call_without_a_row_is_listed_with_its_line():
    def strange(x: jax.Array) -> jax.Array:
        y = jnp.linalg.qr(x)[0]
        return lax.cummax(y) + lax.lgamma(x)

    with pytest.raises(UnsupportedOps) as e:
        poot.from_jax(strange, floats(3, 3))
    found = {u.op: u for u in e.value.ops}
    assert {"cummax", "lgamma"} <= found.keys()
    lines = Path(__file__).read_text().splitlines()
    for op in ("cummax", "lgamma"):
        path, line = found[op].loc.rsplit(":", 1)
        assert path == __file__
        assert op in lines[int(line) - 1]


def step(w: Any, cache: Any, ids: jax.Array, pos: jax.Array) -> tuple[jax.Array, Any]:
    """A decode step over a cache of fixed capacity."""
    qkv = (w["words"][ids] @ w["out"]).reshape(1, 1, 3, 2, 4)
    q, k, v = (qkv[:, :, n] for n in range(3))
    keys = lax.dynamic_update_slice(cache["k"], k, (0, pos, 0, 0))
    values = lax.dynamic_update_slice(cache["v"], v, (0, pos, 0, 0))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, keys) / 2
    s = jnp.where(jnp.arange(16) <= pos, s, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), values), {"k": keys, "v": values}


@pytest.mark.parametrize("ranges", [None, {"pos": (0, 16)}])
@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_a_cache_is_state(target: str, ranges: dict[str, tuple[int, int]] | None):
    cache: Any = {name: np.zeros((1, 16, 2, 4), np.float32) for name in "kv"}
    pos = jax.ShapeDtypeStruct((), jnp.int32)
    got = poot.from_jax(step, W, cache, IDS[:, :1], pos, states=(1,), ranges=ranges)
    program = poot.compile(got.graph, target)
    session = got.bind(program)
    for n in range(5):
        ids = np.array([[n]], np.int32)
        want, cache = step(W, cache, ids, jnp.int32(n))
        np.testing.assert_allclose(session.step(ids=ids, pos=n), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(session.state["cache.k"], cache["k"], rtol=1e-5, atol=1e-5)
    if target == "cpu":
        assert ("len i32[1]" in program.explain()) == (ranges is not None)


def test_sixteen_bit_weights_stay_so():
    w = {name: x.astype(ml_dtypes.bfloat16) for name, x in W.items()}
    got = poot.from_jax(net, w, IDS)
    assert {str(x.dtype) for x in got.weights.values()} == {"bfloat16"}
    out = got.bind(poot.compile(got.graph, "oracle")).step(ids=IDS)
    want = np.asarray(net(jax.tree_util.tree_map(jnp.asarray, w), IDS), np.float32)
    np.testing.assert_allclose(np.asarray(out).astype(np.float32), want, rtol=5e-2, atol=2e-2)
