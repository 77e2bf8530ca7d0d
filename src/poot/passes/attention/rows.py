"""Keys or values as rows of a base, and the extents of the op that reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.graph import Eqn, Var
from poot.passes.attention.views import Axis, extent, written
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class Dims:
    """Extents of the op. `split` is how many of the matmul's batch axes are B; the rest are Hq."""

    batch: int
    heads: int
    rows: int
    keys: int
    width: int
    split: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Keys or values as pairs of a base: of batch rows, of heads without repeats, of keys and of
    channels; `times` is how often each head is repeated in a row."""

    base: Var
    batch: Axis
    heads: Axis
    times: int
    keys: Axis
    channels: Axis

    def written(self, scope: Scope, dims: Dims, n_rep: int) -> Var:
        """The value [B, Hq / n_rep, Lk, D]."""
        width = extent(self.channels)
        left = self.times // n_rep
        heads = (*self.heads, (left, 0)) if left > 1 else self.heads
        shape = (dims.batch, dims.heads // n_rep, dims.keys, width)
        axes = self.batch + heads + self.keys + self.channels
        return written(scope, self.base, shape, axes)


def dims_of(matmul: Eqn) -> Dims:
    """The extents that the matmul of queries and keys shows. Of one batch axis, or none, B is 1."""
    *lead, rows, keys = matmul.out.type.shape
    split = 1 if len(lead) >= 2 else 0
    return Dims(
        math.prod(lead[:split]),
        math.prod(lead[split:]),
        rows,
        keys,
        matmul.ins[0].type.shape[-1],
        split,
    )
