"""Whether a row's arithmetic of 32 bits is that of 64, which the foreign program has.

A value of 64 bits is held in 32 where it is known to fit. What a row makes of such values fits too
where the intervals of `ir.ranges` prove that no step of it wraps; else the call isn't poot's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from poot.errors import TraceError
from poot.ir.graph import Eqn, Var
from poot.ir.ranges import Known, may_wrap, transfer

# Operands that choose among values, by their op: what a value is doesn't come from them.
_CHOOSERS = {
    "gather": (1,), "dynamic_slice": (1,), "dynamic_update_slice": (2,), "scatter_update": (2,),
}  # fmt: skip


def wrapping(eqns: Sequence[Eqn], known: Mapping[int, Known], results: Iterable[Var]) -> Eqn | None:
    """The first eqn that a result's value comes from and that may wrap; None where all is proved.
    `known` has the intervals of what the eqns are given, by id."""
    found = dict(known)
    wrapped: dict[int, Eqn] = {}
    for eqn in eqns:
        ins = [found.get(v.id) for v in eqn.ins]
        choosers = _CHOOSERS.get(eqn.op, ())
        sources = [v.id for n, v in enumerate(eqn.ins) if n not in choosers]
        first = next((wrapped[id] for id in sources if id in wrapped), None)
        if first is None and may_wrap(eqn, ins):
            first = eqn
        for out, interval in zip(eqn.outs, transfer(eqn, ins), strict=True):
            found[out.id] = interval
            if first is not None:
                wrapped[out.id] = first
    return next((wrapped[v.id] for v in results if v.id in wrapped), None)


def held_in_32(array: np.ndarray, name: str) -> np.ndarray:
    """An array whose int64 is int32. Raises TraceError on integers that don't fit."""
    if array.dtype != np.int64:
        return array
    least, most = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if least < -(2**31) or most >= 2**31:
        raise TraceError(f"{name} needs integers that fit 32 bits: it holds {least}..{most}")
    return array.astype(np.int32)
