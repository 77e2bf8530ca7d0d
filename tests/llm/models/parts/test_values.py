"""Weights by name."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from poot.llm.models.parts.kinds import Norm
from poot.llm.models.parts.values import normed, project
from tests.support.traced import normal, value


def test_a_bf16_matrix_multiplies_in_f32_and_its_bias_is_added():
    x, w, b = normal(0, 3, 8), normal(1, 4, 8).astype(ml_dtypes.bfloat16), normal(2, 4)
    got = value(lambda x, w, b: project({"q": w, "q_bias": b}, "q", x), x, w, b)
    want = x.astype(np.float64) @ w.astype(np.float64).T + b
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_layer_norm_has_a_bias_and_an_rms_norm_may_add_one():
    x, g, b = normal(0, 3, 8), normal(1, 8), normal(2, 8)
    got = value(
        lambda x, g, b: normed({"n": g, "n_bias": b}, "n", x, Norm(1e-5, is_layer=True)), x, g, b
    )
    centred = x - x.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    got = value(lambda x, g: normed({"n": g}, "n", x, Norm(1e-5, plus_one=True)), x, g)
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * (1 + g)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
