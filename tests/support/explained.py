"""A program to be explained: attention that fuses beside a chain that declines."""

from __future__ import annotations

import numpy as np

import poot
from poot import ops
from poot.api import Program
from poot.ops.array import Array

WEIGHTS = {"w": np.eye(64, dtype=np.float32)}


def explained_program(target: str = "h200") -> Program:
    """Attention, and then one whose weights are an output too, so that it stays as it is."""

    def heads(w: Array, x: Array) -> tuple[Array, Array]:
        q = (x @ w).reshape(16, 2, 32).transpose(1, 0, 2).reshape(1, 2, 16, 32)
        first = ops.attention_masked(q, q, q, mask=None, scale=0.25)
        scores = ops.softmax(first @ first.transpose(0, 1, 3, 2) * 0.25, axis=-1)
        return scores @ first, scores

    graph = poot.trace(heads, (poot.weight((64, 64)), poot.slot((16, 64), "f32")))
    return poot.compile(graph, target, cache=False)
