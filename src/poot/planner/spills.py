"""Which outputs go through scratch because their dtype is stored only as whole words. Scratch is
theirs first, in order."""

from __future__ import annotations

from poot.ir.dtypes import DTYPES
from poot.ir.graph import Graph, Var
from poot.limits import DeviceLimits
from poot.planner.request import Scratch

UPDATE_OPS = ("dynamic_update_slice", "scatter_update")
_WIDE = {"float": "f32", "int": "i32", "uint": "u32"}


def wide_dtype(dtype: str) -> str:
    """The 4-byte dtype that holds a narrow one's numbers."""
    return _WIDE[DTYPES[dtype].kind]


def stores_whole_words(dtype: str, limits: DeviceLimits) -> bool:
    """The target can store this dtype only as words of several."""
    if DTYPES[dtype].nbytes == 4 or limits.target != "spirv":
        return False
    return not (dtype == "f16" and limits.has_f16_storage)


def spilled(
    body: Graph, anchor: str, updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> tuple[int, ...]:
    """The outputs that need a wide scratch, in order: the n-th of them has scratch n."""
    if anchor == "none" and not any(e.op in ("topk", "argmax") for e in body.eqns):
        return ()
    return tuple(
        n for n, v in enumerate(body.outputs)
        if v.type.elems and stores_whole_words(v.type.dtype, limits)
    )  # fmt: skip


def new_part(body: Graph, updates: tuple[tuple[int, int], ...], n: int) -> Var:
    """What is stored for output n: the output, or the new part of the update that makes it."""
    out = body.outputs[n]
    if n in dict(updates):
        for eqn in body.eqns:
            if eqn.op in UPDATE_OPS and eqn.out.id == out.id:
                return eqn.ins[1]
    return out


def spill_scratch(
    body: Graph, anchor: str, updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> tuple[Scratch, ...]:
    """A scratch for each spilled output."""
    found: list[Scratch] = []
    for n in spilled(body, anchor, updates, limits):
        part = new_part(body, updates, n)
        found.append(Scratch(wide_dtype(part.type.dtype), part.type.elems))
    return tuple(found)
