"""A step over a cache of fixed capacity."""

from __future__ import annotations

import numpy as np

from poot.llm.models.parts.step import Cache, FixedStep
from tests.support.traced import normal, value


def test_new_rows_stand_at_their_positions_and_see_what_came_before():
    k, v, new, q = (normal(i, 1, 1, n, 4) for i, n in enumerate((8, 8, 2, 2)))
    bias = normal(9, 1, 1, 2, 8)

    def run(q, k, v, new, bias):
        step = FixedStep(2, 8, q.reshape(-1)[0].astype("i32") * 0 + 3)
        kept = lambda rows, keys, at: bias  # noqa: E731 - a mask that is given
        mixed, _ = step.attend(Cache(k, v), q, new, new, scale=0.5, window=3, bias=kept)
        return mixed

    pos = np.int32(3)
    keys, values = k.copy(), v.copy()
    keys[0, 0, pos : pos + 2] = values[0, 0, pos : pos + 2] = new[0, 0]
    scores = q[0, 0] @ keys[0, 0].T * 0.5 + bias[0, 0]
    for row in range(2):
        seen = np.arange(8)
        scores[row, (seen > pos + row) | (seen <= pos + row - 3)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ values[0, 0]
    got = value(run, q, k, v, new, bias)
    np.testing.assert_allclose(got[0, 0], want, rtol=1e-5, atol=1e-5)
