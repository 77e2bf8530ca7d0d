"""The kernel IR's target-only ops in their kinds, so that a target says once why it has none of a
kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from poot.codegen.kir.nodes import Ins
from poot.errors import DtypeLowering

# Kind -> its ops. Together they are the ops of KIR_OPS that are not portable.
TARGET_ONLY: dict[str, tuple[str, ...]] = {
    "copies": ("cp_async", "async_commit", "wait"),
    "phases": ("mbar_init", "mbar_arrive", "mbar_wait"),
    "named": ("barrier_sync", "barrier_arrive"),
    "maps": ("tma_load", "tma_store"),
    "fragments": (
        "frag_fill", "frag_pack", "frag_coord", "frag_load", "frag_store", "frag_slice",
        "frag_cast", "frag_reduce", "frag_apply", "mma",
    ),
    "moves": ("frag_move",),
    "codes": ("unpack",),
    "warpgroups": ("wgmma", "wgmma_commit"),
    "election": ("elect",),
    "order": ("grid_wait", "grid_trigger"),
}  # fmt: skip
Refusal = Callable[..., NoReturn]


def refused(target: str, why: dict[str, str]) -> dict[str, Refusal]:
    """A row for each op of the kinds in `why`, which raises DtypeLowering with the reason. An
    emitter's rows begin with its body and the instruction."""

    def row(reason: str) -> Refusal:
        def refuse(_body: object, ins: Ins, *_rest: object) -> NoReturn:
            raise DtypeLowering(f"{target} has no {ins.op}: {reason}")

        return refuse

    return {op: row(reason) for kind, reason in why.items() for op in TARGET_ONLY[kind]}
