"""One op on arrays."""

from __future__ import annotations

import numpy as np

from tests.support.evaluate import evaluate, one


def test_an_op_runs_on_arrays_of_their_own_dtypes():
    assert one("neg", np.array([1, 2], np.int32)).tolist() == [-1, -2]
    values, indices = evaluate("topk", np.array([1, 3, 2], np.float32), k=2)
    assert values.tolist() == [3, 2]
    assert indices.tolist() == [1, 2]
