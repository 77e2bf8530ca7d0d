"""Masks that are known: triangles and bands among them, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.ops import Array
from tests.support.fused import only, operands, rewritten
from tests.support.traced import normal

ROWS, KEYS = 5, 7
TRIL = np.tril(np.ones((ROWS, KEYS), bool))
INF = np.float32(np.inf)


def attrs(mask: np.ndarray, way: str = "select", assumed: float = -np.inf) -> dict[str, object]:
    """causal and window of attention under a mask that is traced in as a constant, and whether a
    mask is left; the rewrite gives the same numbers."""

    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        s = (q @ k.swapaxes(2, 3)) * 0.3
        if way == "add":
            s = s + mask
        else:
            kept = mask != 0.0 if mask.dtype != "bool" else mask
            s = ops.where(kept, s, -INF) if way == "select" else ops.where(~kept, -INF, s)
        return ops.softmax(s, 3) @ v

    shapes = ((1, 2, ROWS, 8), (1, 2, KEYS, 8), (1, 2, KEYS, 6))
    graph = poot.trace(fn, (*(poot.weight(s) for s in shapes), poot.const(mask)))
    got = rewritten(graph)
    got.check({n: normal(i, *s) for i, (n, s) in enumerate(zip("qkv", shapes, strict=True))})
    eqn = only(got)
    said = {n: v for n, v in eqn.attrs if n in ("causal", "window")}
    return {**said, "mask": "mask" in operands(eqn)}


@pytest.mark.parametrize("way", ["select", "not"])
@pytest.mark.parametrize("at", [-1, 0, 1, 2])
def test_a_triangle_is_causal(way: str, at: int):
    kept = np.tril(np.ones((ROWS, KEYS), bool), at)
    if at < 0:  # the first row sees nothing, as the mask says
        assert attrs(kept[None, None], way) == {"causal": -1, "mask": False}
    for mask in (kept, kept[None], kept[None, None], kept.astype(np.float32)):
        assert attrs(mask, way) == {"causal": at, "mask": False}


def test_a_band_is_causal_with_a_window():
    band = TRIL & ~np.tril(np.ones((ROWS, KEYS), bool), -3)
    assert attrs(band) == {"causal": 0, "window": 3, "mask": False}


def test_a_plane_of_zeros_and_infinities_that_is_added_is_causal():
    plane = np.where(TRIL, np.float32(0), -INF)
    assert attrs(plane, "add") == {"causal": 0, "mask": False}
    assert attrs(np.broadcast_to(plane, (1, 2, ROWS, KEYS)).copy(), "add")["mask"] is False


def holed() -> np.ndarray:
    kept = TRIL.copy()
    kept[4, 1] = False
    return kept


@pytest.mark.parametrize("kept", [
    holed(), np.triu(np.ones((ROWS, KEYS), bool)), np.arange(KEYS)[None] < np.full((ROWS, 1), 4),
    np.stack([TRIL, np.tril(np.ones((ROWS, KEYS), bool), 1)])[None],
], ids=["a hole", "from below alone", "one length", "unlike heads"])  # fmt: skip
def test_what_is_no_triangle_stays_a_mask(kept: np.ndarray):
    assert attrs(kept) == {"mask": True}
    assert attrs(np.where(kept, np.float32(0), -INF), "add") == {"mask": True}


def test_a_finite_plane_hides_nothing_and_unlike_numbers_are_a_bias():
    assert attrs(np.where(TRIL, np.float32(0), np.float32(-1e9)), "add") == {"mask": True}
    mixed = np.where(TRIL, np.float32(0), -INF)
    mixed[0, 0] = -1.0
    assert attrs(mixed, "add") == {"mask": True}


def test_a_mask_that_is_bound_later_is_not_known():
    def fn(q: Array, k: Array, v: Array, mask: Array) -> Array:
        return ops.softmax((q @ k.swapaxes(2, 3)) + mask, 3) @ v

    shapes = ((1, 2, ROWS, 8), (1, 2, KEYS, 8), (1, 2, KEYS, 6), (ROWS, KEYS))
    got = rewritten(poot.trace(fn, tuple(poot.weight(s) for s in shapes)))
    assert "mask" in operands(only(got))
