"""Queries, keys and values as the op takes them: [B, H, L, D], each key head once.

A key head repeated n times in a row is read once: `n_rep = Hq / Hkv`. It has to be repeated by the
program (repeat_kv, an expand): one key head that the matmul itself stretches over the query heads
is declined. A number that multiplies q or k goes to the scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.graph import Eqn, Var
from poot.passes.attention.before import Before, Zeroed, zeroed_view
from poot.passes.attention.declines import claim
from poot.passes.attention.key import SplitKey, split_key
from poot.passes.attention.paged import Paged
from poot.passes.attention.rows import Dims, Rows
from poot.passes.attention.views import Axis, View, joined, stretched, view_of, written
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class Operands:
    """q, k, v and, of a split key, the part for all heads, as the op takes them, before casts; what
    q and k are to be multiplied by; and, where k and v are pools, the map."""

    q: Var
    k: Var
    v: Var
    factor: float
    k_shared: Var | None = None
    read: Var | None = None


@dataclass(frozen=True, slots=True)
class KeysAndValues:
    """The operands of the two matmuls as rows of their bases, keys with what multiplies them; and
    the claims outside of which rows were zero, on the axes of the keys [..., Dk, Lk] and of the
    values [..., Lk, Dv], of whose batch axes the first `value_split` are B. `joined_why`: why a key
    of two parts is read whole."""

    keys: Rows
    shared: Rows | None
    factor: float
    values: Rows
    key_claims: tuple[Before, ...]
    value_claims: tuple[Before, ...]
    value_split: int
    joined_why: str | None = None


def keys_and_values(
    scope: Scope, scores: Eqn, out: Eqn, dims: Dims, *, zeroed: bool
) -> KeysAndValues:
    """What the matmul of scores and the one with the values read. Where `zeroed`, selects that put
    zero in rows past a limit are looked through, and their claims given. Raises Decline."""
    elems = (*scores.ins, out.ins[1], out.out)
    claim(all(v.type.elems > 0 for v in elems), "there are no elements", scores.loc)
    lead, key_var = scores.out.type.shape[:-2], scores.ins[1]
    key = _viewed(scope, key_var, scaled=True, zeroed=zeroed)

    def keys(view: View) -> Rows:
        axes = _stretched_keys(view.axes[:-2], key_var, lead, dims.split, "key", scores.loc)
        return _rows(view.base, axes, dims.split, view.axes[-1], view.axes[-2])

    split = split_key(scope, key.view, zeroed=zeroed)
    k, shared, claims, why = keys(key.view), None, key.claims, None
    if split is not None:
        own, last = keys(split.own.view), keys(split.shared.view)
        why = _why_joined(split, last, dims)
        if why is None:
            k, shared = own, last
            claims = (*claims, *split.own.claims, *split.shared.claims)
    v_lead, v_split = out.out.type.shape[:-2], _split_of(out, dims)
    value = _viewed(scope, out.ins[1], scaled=False, zeroed=zeroed)
    v_axes = _stretched_keys(value.view.axes[:-2], out.ins[1], v_lead, v_split, "value", out.loc)
    v = _rows(value.view.base, v_axes, v_split, value.view.axes[-2], value.view.axes[-1])
    return KeysAndValues(
        k,
        shared,
        key.view.factor,
        v,
        tuple(c.stretched((*lead, *key_var.type.shape[-2:])) for c in claims),
        tuple(c.stretched((*v_lead, *out.ins[1].type.shape[-2:])) for c in value.claims),
        v_split,
        why,
    )


def _why_joined(split: SplitKey, last: Rows, dims: Dims) -> str | None:
    """Why the parts of a key are read as they are joined, or None."""
    if last.heads or last.times != dims.heads:
        return "the last part of the key is not one for all heads"
    if dims.heads == 1:
        return "there is one head"
    if bool(split.own.claims) != bool(split.shared.claims):
        return "one part of the key is selected to zero and the other is not"
    return None


def _viewed(scope: Scope, x: Var, *, scaled: bool, zeroed: bool) -> Zeroed:
    if zeroed:
        return zeroed_view(scope, x, scaled=scaled)
    return Zeroed(view_of(scope, x, scaled=scaled))


def read_operands(
    scope: Scope, scores: Eqn, parts: KeysAndValues, dims: Dims, pages: Paged | None
) -> Operands:
    """The operands as the op takes them; k and v are the pools where there are pages."""
    q = view_of(scope, scores.ins[0], scaled=True)
    q_axes = _flat((*stretched(q.axes[:-2], scores.out.type.shape[:-2]), *q.axes[-2:]))
    shape = (dims.batch, dims.heads, dims.rows, dims.width)
    n_rep, shared = n_rep_of(parts), parts.shared
    return Operands(
        written(scope, q.base, shape, q_axes),
        pages.k if pages else parts.keys.written(scope, dims, n_rep),
        pages.v if pages else parts.values.written(scope, dims, n_rep),
        q.factor * parts.factor,
        shared.written(scope, dims, dims.heads) if shared is not None else None,
        pages.read if pages else None,
    )


def n_rep_of(parts: KeysAndValues) -> int:
    """How many query heads read one key head."""
    return math.gcd(parts.keys.times, parts.values.times)


def _rows(base: Var, lead: tuple[Axis, ...], split: int, keys: Axis, channels: Axis) -> Rows:
    heads, times = _apart(lead[split:])
    return Rows(base, _flat(lead[:split]), heads, times, keys, channels)


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
    return stretched(axes, lead)


def _flat(axes: tuple[Axis, ...]) -> Axis:
    return tuple(pair for axis in axes for pair in axis)


def _apart(axes: tuple[Axis, ...]) -> tuple[Axis, int]:
    """The head axes without the repeats at their end, and how many those are."""
    pairs = joined(_flat(axes))
    if pairs and pairs[-1][1] == 0:
        return pairs[:-1], pairs[-1][0]
    return pairs, 1
