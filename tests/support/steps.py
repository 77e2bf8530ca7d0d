"""A small program with all that a step may have: weights, State, guards and slots with a range."""

from __future__ import annotations

import numpy as np

import poot
from poot import ops
from poot.ir.graph import Graph

CAP, WIDTH = 8, 4


def append(w, kv, x, pos, at):
    """Rows into a cache, twice: where a checked slot says, and where a guard lets them."""
    rows, row = x.shape[0], ops.linear(x, w)
    kv = ops.dynamic_update_slice(kv, row, pos, axis=0)
    kv = ops.dynamic_update_slice(kv, row + 1.0, ops.checked(at, 0, CAP + 1 - rows), axis=0)
    return {"sum": kv.sum(axis=0), "next": pos + 1}, kv


def append_graph(rows: int = 1) -> Graph:
    specs = (
        poot.weight((WIDTH, WIDTH)),
        poot.state((CAP, WIDTH)),
        poot.slot((rows, WIDTH), "f32"),
        poot.slot((), "i32", kind="pos", range=(0, CAP + 1 - rows)),
        poot.slot((), "i32"),
    )
    return poot.trace(append, specs)


WEIGHTS = {"w": np.eye(WIDTH, dtype=np.float32)}
X = np.full((1, WIDTH), 2.0, np.float32)
