"""Queries, keys and values as the op takes them: [B, H, L, D], each key head once.

A key head repeated n times in a row is read once: `n_rep = Hq / Hkv`. It has to be repeated by the
program (repeat_kv, an expand): one key head that the matmul itself stretches over the query heads
is declined. A number that multiplies q or k goes to the scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.graph import Eqn, Var
from poot.passes.attention.declines import claim
from poot.passes.attention.key import split_key
from poot.passes.attention.views import Axis, View, extent, joined, view_of, written
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
class Operands:
    """q, k, v and, of a split key, the part for all heads, as the op takes them, before casts; and
    what q and k are to be multiplied by."""

    q: Var
    k: Var
    v: Var
    factor: float
    k_shared: Var | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
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


def read_operands(scope: Scope, scores: Eqn, out: Eqn, dims: Dims) -> Operands:
    """The operands of the matmul of scores and of the one with the values. Raises Decline."""
    elems = (*scores.ins, out.ins[1], out.out)
    claim(all(v.type.elems > 0 for v in elems), "there are no elements", scores.loc)
    lead = scores.out.type.shape[:-2]
    q = view_of(scope, scores.ins[0], scaled=True)
    q_axes = _flat((*_stretched(q.axes[:-2], lead), *q.axes[-2:]))
    shape = (dims.batch, dims.heads, dims.rows, dims.width)
    key = view_of(scope, scores.ins[1], scaled=True)
    split = split_key(scope, key)

    def keys(view: View) -> _Rows:
        axes = _stretched_keys(view.axes[:-2], scores.ins[1], lead, dims.split, "key", scores.loc)
        return _rows(view.base, axes, dims.split, view.axes[-1], view.axes[-2])

    k, shared = (keys(split.own), keys(split.shared)) if split else (keys(key), None)
    if shared is not None and (shared.heads or shared.times != dims.heads or dims.heads == 1):
        k, shared = keys(key), None  # not one for all heads: the joined key is read as it is
    v_lead, v_split = out.out.type.shape[:-2], _split_of(out, dims)
    value = view_of(scope, out.ins[1])
    v_axes = _stretched_keys(value.axes[:-2], out.ins[1], v_lead, v_split, "value", out.loc)
    v = _rows(value.base, v_axes, v_split, value.axes[-2], value.axes[-1])
    n_rep = math.gcd(k.times, v.times)
    return Operands(
        written(scope, q.base, shape, q_axes),
        k.written(scope, dims, n_rep),
        v.written(scope, dims, n_rep),
        q.factor * key.factor,
        shared.written(scope, dims, dims.heads) if shared is not None else None,
    )


def _rows(base: Var, lead: tuple[Axis, ...], split: int, keys: Axis, channels: Axis) -> _Rows:
    heads, times = _apart(lead[split:])
    return _Rows(base, _flat(lead[:split]), heads, times, keys, channels)


def _split_of(out: Eqn, dims: Dims) -> int:
    """How many batch axes of the matmul with the values are B."""
    lead = out.out.type.shape[:-2]
    what = f"the values have batch axes that the scores lack: {out.ins[1].type}"
    claim(out.ins[0].type.shape[:-2] == lead, what, out.loc)
    for split in range(len(lead) + 1):
        if math.prod(lead[:split]) == dims.batch and math.prod(lead[split:]) == dims.heads:
            return split
    claim(False, f"the values' batch axes {lead} are not those of the scores", out.loc)
    return 0


def _stretched(axes: tuple[Axis, ...], lead: tuple[int, ...]) -> tuple[Axis, ...]:
    """The batch axes as the matmul broadcasts them."""
    padded = ((),) * (len(lead) - len(axes)) + axes
    return tuple(
        ((n, 0),) if not axis and n != 1 else axis for axis, n in zip(padded, lead, strict=True)
    )


def _stretched_keys(
    axes: tuple[Axis, ...], x: Var, lead: tuple[int, ...], split: int, what: str, loc: str
) -> tuple[Axis, ...]:
    """The same for keys and values, whose heads the matmul may not stretch."""
    shape = (1,) * (len(lead) - len(x.type.shape) + 2) + x.type.shape[:-2]
    for n, want in list(zip(shape, lead, strict=True))[split:]:
        remedy = "write ops.repeat_kv"
        claim(
            n == want,
            f"one {what} head is broadcast over {want} query heads in the matmul; {remedy}",
            loc,
        )
    return _stretched(axes, lead)


def _flat(axes: tuple[Axis, ...]) -> Axis:
    return tuple(pair for axis in axes for pair in axis)


def _apart(axes: tuple[Axis, ...]) -> tuple[Axis, int]:
    """The head axes without the repeats at their end, and how many those are."""
    pairs = joined(_flat(axes))
    if pairs and pairs[-1][1] == 0:
        return pairs[:-1], pairs[-1][0]
    return pairs, 1
