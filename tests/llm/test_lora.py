"""Adapters in a step: each row its own, none for place 0."""

from __future__ import annotations

import numpy as np

from poot.llm.lora import chosen, delta, lora_specs
from poot.trace import slot, trace
from tests.support.everywhere import compile_on, on


@on("oracle", "cpu", "vulkan", "wgpu")
def test_each_row_adds_its_own_adapter_and_place_0_nothing(target: str):
    def step(lora, h, adapter):
        return delta(chosen(lora["q"], adapter), h), lora

    specs = (
        lora_specs(3, 2, {"q": (8, 12)}),
        slot((3, 2, 8), "f32"),
        slot((3,), "i32", range=(0, 4)),
    )
    session = compile_on(target, trace(step, specs)).bind()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 2, 8), (4, 2, 12)))
    a[0] = b[0] = 0
    session.state["lora.q.a"], session.state["lora.q.b"] = a, b
    h = rng.standard_normal((3, 2, 8)).astype(np.float32)
    got = np.asarray(session.step(h=h, adapter=np.array([2, 0, 3], np.int32)))
    want = np.stack([h[i] @ a[p].T @ b[p] for i, p in enumerate((2, 0, 3))])
    np.testing.assert_allclose(got, want, atol=1e-5)
    assert not got[1].any()
    np.testing.assert_array_equal(session.state["lora.q.a"], a)
