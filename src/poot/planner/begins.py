"""The first key that a decode's rows see, where a mask of -inf says that and no more.

mask    t > limit[b] (or >=, or turned around), t the key's number, limit i32 of a batch row
becomes keys from limit[b] + more on: those before it weigh nothing, and need not be visited

That is what a sliding window comes to where positions are known at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.passes.attention.views import MOVES
from poot.planner.operands import operands_of


@dataclass(frozen=True, slots=True)
class Begin:
    """Batch row b sees keys from limit[b, 0, 0, 0] + more on; `limit` is i32 [B or 1, 1, 1, 1]."""

    limit: Var
    more: int

    @property
    def is_of_rows(self) -> bool:
        """Whether batch rows have limits of their own."""
        return self.limit.type.shape[0] > 1


# Comparison -> what is added to the limit, with the key's number on its left.
_FROM = {"gt": 1, "ge": 0}
_TURNED = {"lt": "gt", "le": "ge"}


def begin_of(body: Graph, eqn: Eqn) -> Begin | None:
    """What an attention's mask says of its first keys, or None where it says anything else, or
    hides them by a number: then a row of hidden keys alone has a mean, not nothing."""
    if eqn.op != "attention" or eqn.attr("mask_fill") != -math.inf:
        return None
    at = operands_of(eqn)
    if at["q"].type.shape[2] != 1:
        return None
    makers = {v.id: e for e in body.eqns for v in e.outs}
    found = makers.get(at["mask"].id)
    if found is None or found.op not in (*_FROM, *_TURNED):
        return None
    key, limit, op = *found.ins, found.op
    if op in _TURNED:
        key, limit, op = limit, key, _TURNED[op]
    keys = at["mask"].type.shape[3]
    is_of_row = len(limit.type.shape) == 4 and limit.type.shape[1:] == (1, 1, 1)
    if not is_of_row or limit.type.dtype != "i32" or not _counts(makers, key, keys):
        return None
    return Begin(limit, _FROM[op])


def _counts(makers: Mapping[int, Eqn], var: Var, keys: int) -> bool:
    """Whether a value is 0, 1, 2 .. along its last axis, and has no other."""
    if not var.type.shape or var.type.shape[-1] != keys or var.type.elems != keys:
        return False
    eqn = makers.get(var.id)
    while eqn is not None and eqn.op in MOVES and eqn.ins[0].type.elems == keys:
        eqn = makers.get(eqn.ins[0].id)
    if eqn is None or eqn.op != "iota" or eqn.out.type.elems != keys:
        return False
    return eqn.out.type.shape[int_attr(eqn, "axis")] == keys
