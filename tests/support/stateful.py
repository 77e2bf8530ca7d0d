"""Random programs over States: updates, reads of old and new values, guards before and behind."""

from __future__ import annotations

from random import Random

import numpy as np

import poot
from poot import ops
from poot.ir.graph import Graph

ROWS, WIDTH, SLOTS = 6, 2, 4


def stateful(seed: int) -> Graph:
    """Two States of integers, a counter, and a dozen actions on them in a random order. Slots `at`
    place updates; slots `most` bound what guards let by."""
    rng = Random(seed)

    def step(state, at, most):
        values = list(state)
        seen = [at.sum()]
        for n in range(rng.randint(4, 12)):
            which = rng.randrange(2)
            action = rng.choice(
                ("slice", "scatter", "read", "read", "read", "guard", "guard", "guard", "count")
            )
            source = rng.choice(seen)
            if action == "slice":
                rows = rng.randint(1, 2)
                new = ops.broadcast_to(source + n, (rows, WIDTH))
                where = at[rng.randrange(SLOTS)]
                values[which] = ops.dynamic_update_slice(
                    values[which], new, where, axis=0, mode="clamp"
                )
            elif action == "scatter":
                new = ops.iota((3, WIDTH), 0) + source
                rows = (ops.iota((3,), 0) * 2 + at[rng.randrange(SLOTS)]) % (ROWS + 1)
                values[which] = ops.scatter_update(values[which], new, rows)
            elif action == "read":
                seen.append(values[which].sum())
            elif action == "count":
                values[2] = values[2] + source
            else:
                ops.validate(ops.abs(source) % 97 < most[rng.randrange(SLOTS)])
        return (seen[-1], values[0].sum()), tuple(values)

    states = (poot.state((ROWS, WIDTH), "i32"), poot.state((ROWS, WIDTH), "i32"))
    specs = ((*states, poot.state((), "i32")), poot.slot((SLOTS,), "i32"))
    return poot.trace(step, (*specs, poot.slot((SLOTS,), "i32")))


def slots_of(seed: int) -> dict[str, np.ndarray]:
    """Slots for one step: about half of the guards let all by."""
    rng = np.random.default_rng(seed)
    most = rng.choice([97, 97, 60, 20], SLOTS)
    return {"at": rng.integers(-2, 9, SLOTS).astype(np.int32), "most": most.astype(np.int32)}
