"""Keys and values gathered by one map from pools of slots: the op reads the pools themselves.

before   k = transpose(gather(pool_k, read))      after   attention(q, pool_k, pool_v, read)
         v = transpose(gather(pool_v, read))
Pools [S,Hkv,D] in any shape that lies so; read i32 [B,Lk] or what lies so, each word proved a slot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Var
from poot.passes.attention.proofs import Proofs
from poot.passes.attention.rows import Dims, Rows
from poot.passes.attention.views import Axis, joined, reshaped, written
from poot.passes.engine import Scope


@dataclass(frozen=True, slots=True)
class Paged:
    """Pools as the op takes them, and the map i32 [B,Lk]."""

    k: Var
    v: Var
    read: Var


def paged(
    scope: Scope, k: Rows, v: Rows, dims: Dims, n_rep: int, proofs: Proofs
) -> Paged | str | None:
    """The pools and the map that keys and values are read from; or why they have to be gathered;
    or None, where there is nothing of the kind."""
    key_map, value_map = (_map_of(scope.producer(x.base), x) for x in (k, v))
    if key_map is None or value_map is None:
        gathered = "keys" if key_map is not None else "values"
        is_near = key_map is not None or value_map is not None
        return f"only the {gathered} are gathered from a pool" if is_near else None
    return _why_not(key_map, value_map, (k, v), n_rep, proofs) or Paged(
        reshaped(scope, key_map.pool, (key_map.slots, dims.heads // n_rep, key_map.width)),
        reshaped(scope, value_map.pool, (value_map.slots, dims.heads // n_rep, value_map.width)),
        written(scope, key_map.read, (dims.batch, dims.keys), key_map.lies),
    )


@dataclass(frozen=True, slots=True)
class _Map:
    """A gather of whole slots, one for each key. `lies`: where the map's word of a batch row and a
    key is. `is_row`: a slot holds the heads and their channels in order."""

    pool: Var
    read: Var
    slots: int
    lies: Axis
    width: int
    is_row: bool


def _map_of(eqn: Eqn | None, rows: Rows) -> _Map | None:
    """The map that rows are gathered by, where each key is a slot's."""
    if eqn is None or eqn.op != "gather" or int_attr(eqn, "axis") != 0:
        return None
    pool, read = eqn.ins
    slot = math.prod(pool.type.shape[1:])
    words = rows.batch + rows.keys
    if any(stride % slot for _, stride in words):
        return None
    inner = joined(rows.heads + rows.channels)
    width = math.prod(n for n, _ in rows.channels)
    is_row = inner == (((slot, 1),) if slot > 1 else ())
    lies = joined(tuple((n, stride // slot) for n, stride in words))
    return _Map(pool, read, pool.type.shape[0], lies, width, is_row)


def _why_not(k: _Map, v: _Map, rows: tuple[Rows, Rows], n_rep: int, proofs: Proofs) -> str | None:
    if k.read != v.read or k.lies != v.lies:
        return "keys and values are gathered by two maps"
    if k.slots != v.slots:
        return f"the pools have {k.slots} and {v.slots} slots"
    if not (k.is_row and v.is_row):
        return "a slot of a pool is not [Hkv,D] in order"
    if any(x.times != n_rep for x in rows):
        return "keys and values have unlike heads"
    if k.pool.type.dtype != v.pool.type.dtype:
        return f"pools of {k.pool.type.dtype} and {v.pool.type.dtype}"
    why = proofs.why_not(k.read, 0, k.slots - 1)
    return f"{k.read.type} read, which names slots: {why}" if why else None
