"""How a scalar becomes a row over vectors and fragments."""

from __future__ import annotations

import numpy as np

from poot.codegen.kir.build import KernelBuilder
from tests.support.ptx_agree import agree, ptx_of


def test_a_vector_is_done_lane_by_lane_and_a_scalar_goes_to_all():
    k = KernelBuilder("vectors", 32)
    x, y = k.param("x", "f32", 128, "r"), k.param("y", "f32", 128, "w")
    wide = k.load(x, k.lane() * 4, 4)
    made = wide * wide + k.vec(*(k.lit(float(n)) for n in range(4)))
    made = k.op("insert", made, k.lit(-1.0), at=2)
    k.store(y, k.lane() * 4, k.select(k.lane() < 16, made, wide))
    text = ptx_of(k.kernel())
    assert text.count("mul.rn.f32") == 4
    assert text.count("selp.b32") == 4
    agree(k.kernel(), {"x": np.arange(128, dtype=np.float32)})
