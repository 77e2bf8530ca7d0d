"""Schedule "subgroup_tiles": attention of several query rows on matrix units that multiply within a
subgroup."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.matrix import family_of
from poot.planner.operands import keys_of, operands_of
from poot.planner.request import Choice, Layout, Schedule

# Matrix units, by what fragments call them.
FAMILIES = ("mma", "mfma", "wmma", "coop")
# The edge of a product's tile.
SIDE = 16
# Elements of 16 bits that are copied at once, and how many a staged row has beyond its own.
CHUNK, PAD = 8, 8
# Groups that the registers of a CUDA multiprocessor have to hold.
RESIDENTS = 2
_MOST_WIDTH = 256
_WARPS = 4
# Widths of subgroups whose lanes share 16 rows evenly.
_LANES = (16, 32, 64)
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


def _family(limits: DeviceLimits) -> str:
    """The family of the device's matrix unit, or "" where it has none."""
    if limits.target == "spirv":
        return "coop" if limits.matrix_dtypes and limits.subgroup in _LANES else ""
    if limits.target == "ptx" and not limits.has_async_copy:
        return ""
    return family_of(limits) if limits.matrix_dtypes or limits.target == "ptx" else ""


def _takes(dtype: str, limits: DeviceLimits) -> bool:
    return dtype in (("f16", "bf16") if limits.target == "ptx" else limits.matrix_dtypes)


def why_not(body: Graph, eqn: Eqn, limits: DeviceLimits) -> str:
    """What keeps an attention from this schedule, or ""."""
    at = operands_of(eqn)
    if not _family(limits):
        return f"{limits.name} has no matrix units that multiply within a subgroup"
    q, k, v = at["q"].type, at["k"].type, at["v"].type
    inputs = {i.var.id for i in body.inputs}
    if any(at[n].id not in inputs for n in ("k", "v", "k_shared") if n in at):
        return "keys or values are computed, not read"
    if not _takes(k.dtype, limits) or not q.dtype == k.dtype == v.dtype:
        named = " and ".join(sorted({q.dtype, k.dtype, v.dtype}))
        return f"{limits.name} has no products of {named} within a subgroup"
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


def shared_nbytes(family: str, warps: int, numbers: Numbers, widths: tuple[int, int]) -> int:
    """Bytes of workgroup memory: a tile of keys and one of values; queries where they stay there,
    scores and weights where they go that way."""
    (width, value_width), tile = widths, numbers.tile
    rows = SIDE * numbers.deep * warps
    own = (width + PAD) * 2 if _keeps(family) else 0
    if family != "mma":
        own += (tile + PAD // 2) * 4 + (tile + PAD) * 2
    return tile * (width + value_width + 2 * PAD) * 2 + rows * own


def _keeps(family: str) -> bool:
    """Whether queries stay in workgroup memory. Cooperative matrices hold them better: they are
    loaded once, and a group has as little as 48 KiB."""
    return family != "coop"


def _fitting(
    family: str, rows: int, widths: tuple[int, int], limits: DeviceLimits
) -> tuple[int, Numbers] | str:
    """Subgroups of a group, and the numbers of each: the largest that workgroup memory holds."""
    if family == "mma":
        wanted = numbers_for(*widths)
        wanted = Numbers(min(wanted.deep, math.ceil(rows / SIDE)), wanted.tile)
        tries = [(max(1, min(_WARPS, math.ceil(rows / (SIDE * wanted.deep)))), wanted)]
    else:
        most = min(_WARPS, math.ceil(rows / SIDE), limits.threads // limits.subgroup)
        counts = [n for n in (4, 2, 1) if n <= most]
        tries = [(n, Numbers(1, tile)) for n in counts for tile in (32, SIDE)]
    for warps, numbers in tries:
        if shared_nbytes(family, warps, numbers, widths) <= limits.workgroup_nbytes:
            return warps, numbers
    nbytes = min(shared_nbytes(family, *one, widths) for one in tries)
    return f"tiles of {nbytes} bytes pass {limits.name}'s workgroup memory"


def choose_subgroup_tiles(body: Graph, limits: DeviceLimits) -> Choice | str:
    """The schedule of an attention of several query rows, or why it is not taken."""
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    reason = why_not(body, eqn, limits)
    if reason:
        return reason
    at, family = operands_of(eqn), _family(limits)
    batch, heads, rows, width = at["q"].type.shape
    widths = (width, at["v"].type.shape[-1])
    keys = keys_of(at)
    kv_heads = at["k"].type.shape[1]
    found = _fitting(family, rows, widths, limits)
    if isinstance(found, str):
        return found
    warps, numbers = found
    params = {
        "family": FAMILIES.index(family), "subgroup": limits.subgroup, "warps": warps,
        "deep": numbers.deep, "tile": numbers.tile, "async": int(family == "mma"),
        "keeps": int(_keeps(family)),
        "section": _section(batch * heads, heads // kv_heads, keys, sum(widths)),
    }  # fmt: skip
    schedule = Schedule("subgroup_tiles", tuple(sorted(params.items())))
    why = f"{rows} query rows, {warps} x {SIDE * numbers.deep} a group, {numbers.tile} keys a tile"
    return Choice(schedule, (Layout(),) * len(body.inputs), (), why)
