"""Schedule "subgroup_tiles": attention of several query rows on matrix units that multiply within a
subgroup."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

from poot.ir.graph import Eqn, Graph, Var
from poot.limits import DeviceLimits
from poot.planner.request import Choice, Layout, Schedule

# Matrix units, by what fragments call them.
FAMILIES = ("mma",)
# The edge of a product's tile.
SIDE = 16
# Elements of 16 bits that are copied at once, and how many a staged row has beyond its own.
CHUNK, PAD = 8, 8
# Groups that the registers of a CUDA multiprocessor have to hold.
RESIDENTS = 2
_MOST_WIDTH = 256
_WARPS = 4
# Keys and values of the heads that run side by side: about half of a large level-2 cache.
_SECTION_NBYTES = 17_000_000


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the choice depends on the widths for: 16s of query rows a subgroup, keys a tile."""

    deep: int
    tile: int


def numbers_for(width: int, value_width: int) -> Numbers:
    """By the registers that a lane has: channels of its rows, and a tile's scores."""
    widest = max(width, value_width)
    if widest <= 64:
        return Numbers(2, 64)
    return Numbers(2, 32) if widest <= 128 else Numbers(1, 32)


def operands_of(eqn: Eqn) -> dict[str, Var]:
    """An attention's operands by name."""
    names = cast("tuple[str, ...]", eqn.attr("operands"))  # the typing rule says so
    return dict(zip(names, eqn.ins, strict=True))


def _family(limits: DeviceLimits) -> str:
    """The family of the device's matrix unit, or "" where it has none."""
    if limits.target == "ptx" and limits.has_matrix_units and limits.has_async_copy:
        return "mma" if limits.subgroup == 32 else ""
    return ""


def why_not(body: Graph, eqn: Eqn, limits: DeviceLimits) -> str:
    """What keeps an attention from this schedule, or ""."""
    at = operands_of(eqn)
    if not _family(limits):
        return f"{limits.name} has no matrix units that multiply within a subgroup"
    q, k, v = at["q"].type, at["k"].type, at["v"].type
    inputs = {i.var.id for i in body.inputs}
    if any(at[n].id not in inputs for n in ("k", "v", "k_shared") if n in at):
        return "keys or values are computed, not read"
    if k.dtype not in ("f16", "bf16") or q.dtype != k.dtype or v.dtype != k.dtype:
        return f"subgroup_tiles has no operands of {q.dtype} and {k.dtype}"
    widths = (q.shape[3], v.shape[-1])
    if any(w % SIDE or w > _MOST_WIDTH for w in widths):
        return f"subgroup_tiles has widths of whole {SIDE}s up to {_MOST_WIDTH}"
    if k.shape[-1] % CHUNK:
        return f"keys of {k.shape[-1]} channels of their own are not whole chunks of {CHUNK}"
    return ""


def _section(heads: int, repeat: int, keys: int, width: int) -> int:
    """Query heads that run side by side: a divisor of all of them whose keys and values fit."""
    most = max(1, _SECTION_NBYTES // (2 * keys * width)) * repeat
    return next(n for n in range(min(most, heads), 0, -1) if heads % n == 0)


def shared_nbytes(rows: int, tile: int, width: int, value_width: int) -> int:
    """Bytes of workgroup memory: queries, a tile of keys and one of values."""
    return 2 * ((rows + tile) * (width + PAD) + tile * (value_width + PAD))


def choose_subgroup_tiles(body: Graph, limits: DeviceLimits) -> Choice | str:
    """The schedule of an attention of several query rows, or why it is not taken."""
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    reason = why_not(body, eqn, limits)
    if reason:
        return reason
    at = operands_of(eqn)
    batch, heads, rows, width = at["q"].type.shape
    value_width = at["v"].type.shape[-1]
    keys = at["read"].type.shape[1] if "read" in at else at["k"].type.shape[2]
    kv_heads = at["k"].type.shape[1]
    numbers = numbers_for(width, value_width)
    warps = max(1, min(_WARPS, math.ceil(rows / (SIDE * numbers.deep))))
    deep = min(numbers.deep, math.ceil(rows / SIDE))
    nbytes = shared_nbytes(SIDE * deep * warps, numbers.tile, width, value_width)
    if nbytes > limits.workgroup_nbytes:
        return f"tiles of {nbytes} bytes pass {limits.name}'s workgroup memory"
    params = {
        "family": FAMILIES.index(_family(limits)), "subgroup": limits.subgroup, "warps": warps,
        "deep": deep, "tile": numbers.tile, "async": int(limits.has_async_copy),
        "section": _section(batch * heads, heads // kv_heads, keys, width + value_width),
    }  # fmt: skip
    schedule = Schedule("subgroup_tiles", tuple(sorted(params.items())))
    why = f"{rows} query rows, {warps} x {SIDE * deep} a group, {numbers.tile} keys a tile"
    return Choice(schedule, (Layout(),) * len(body.inputs), (), why)
