"""A JAX function through `from_jax` and the oracle, beside JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import poot
from poot.frontends.imported import Imported
from poot.ir.graph import Slot, Storage
from poot.oracle import run


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def ints(*shape: int, lo: int = -5, hi: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(lo, hi, shape, np.int32)


def bools(*shape: int, seed: int = 0) -> np.ndarray:
    return floats(*shape, seed=seed) > 0


def edges() -> np.ndarray:
    """Numbers at which functions of floats differ: zeros, halves, large, infinite, NaN."""
    inf = float("inf")
    numbers = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-4, -1e-4, 30.0, -30.0, inf, -inf]
    return np.array([*numbers, float("nan")], np.float32)


def storages(got: Imported, kind: type[Storage] = Slot) -> dict[str, Storage]:
    return {i.name: i.storage for i in got.graph.inputs if isinstance(i.storage, kind)}


def check(fn: Callable[..., Any], *args: Any, close: float = 2e-5, **options: Any) -> Imported:
    """Asserts that fn's graph gives what fn gives of these arrays: dtypes, shapes, and numbers
    within `close`, relative and absolute; integers and bools exactly."""
    got = poot.from_jax(fn, *args, **options)
    names = [i.name for i in got.graph.inputs if isinstance(i.storage, Slot)]
    feed = {**got.weights, **dict(zip(names, args, strict=True))}
    outputs = run(got.graph, feed).outputs
    wanted = jax.tree_util.tree_leaves(fn(*jax.tree_util.tree_map(jnp.asarray, args)))
    assert len(outputs) == len(wanted)
    for x, want in zip(outputs, map(np.asarray, wanted), strict=True):
        assert x.shape == want.shape
        assert x.dtype == want.dtype
        near = close if want.dtype.kind == "f" or "float" in str(want.dtype) else 0.0
        np.testing.assert_allclose(
            np.asarray(x, np.float64), np.asarray(want, np.float64), rtol=near, atol=near
        )
    return got
