"""A chain's cache: each form that is not proved is given up by itself, with its reason."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.ops import Array
from tests.support.fused import only, operands, rewritten
from tests.support.traced import normal

B, HQ, HKV, LK, D, S = 2, 4, 2, 7, 8, 20


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_length_and_pages_are_proved_apart(declared: bool, mapped: bool, dtype: str):
    def fn(q: Array, k: Array, v: Array, read: Array, n: Array) -> object:
        k, v = (ops.take(x, read, 0, mode="clamp").transpose(0, 2, 1, 3) for x in (k, v))
        if declared:
            return ops.attention_live(q, k, v, n, scale=0.3)
        seen = ops.iota((1, 1, 1, LK), 3) < n.reshape(-1, 1, 1, 1)
        rows = seen.reshape(B, 1, LK, 1)
        k, v = (ops.repeat_kv(ops.where(rows, x, 0.0), 2) for x in (k, v))
        s = ops.where(seen, q @ k.swapaxes(2, 3), -np.inf)
        return ops.softmax(s, 3) @ v

    pools = [normal(n, S, HKV, D, dtype=dtype) for n in (1, 2)]
    q = normal(0, B, HQ, 1, D, dtype=dtype)
    specs = (
        *(poot.weight(x.shape, dtype) for x in (q, *pools)),
        poot.slot((B, LK), "i32", kind="slot_map", range=(0, S + (not mapped))),
        poot.slot((B,), "i32", range=(0, LK + 1)),
    )
    got = rewritten(poot.trace(fn, specs))
    read = np.random.default_rng(3).integers(0, S, (B, LK)).astype(np.int32)
    got.check({"q": q, "k": pools[0], "v": pools[1], "read": read, "n": np.int32([3, 7])}, 2e-3)
    eqn = only(got)
    assert ("len" in operands(eqn)) == declared
    assert ("read" in operands(eqn)) == (mapped and declared)
    reasons = [note.split(":")[0] for note in got.declined]
    assert reasons == ["not live"] * (not declared) + ["not paged"] * (declared and not mapped)


def test_layers_under_one_length_share_it():
    def fn(q: Array, k: Array, v: Array, n: Array) -> object:
        for _ in range(3):
            q = ops.attention_live(q, k, v, n + 1, scale=0.3)
        return q

    specs = [poot.weight((B, h, m, D), "f32") for h, m in ((HQ, 1), (HKV, LK), (HKV, LK))]
    got = rewritten(poot.trace(fn, (*specs, poot.slot((B,), "i32", kind="pos", range=(0, LK)))))
    lengths = {e.ins[3].id for e in got.eqns("attention")}
    assert len(got.eqns("attention")) == 3
    assert len(lengths) == 1
