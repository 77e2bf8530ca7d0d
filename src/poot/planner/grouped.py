"""Schedule "grouped": a decode on a GPU with asynchronous copies.

All query heads of a key head are served together, so that each key and value byte is read once.
Numbers of warps, stages and keys a tile are those that were fastest on an H200: 128 KiB of copies
in flight in each compute unit.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Eqn, Graph, Var
from poot.ir.rules.selected import always_of
from poot.limits import DeviceLimits
from poot.planner.codes import Coded, coded_pair
from poot.planner.operands import keys_of, operands_of
from poot.planner.request import Choice, Layout, Schedule, Scratch

WARP = 32
# Query heads of a key head that one product's columns hold.
MOST_HEADS = 8
# Workgroup memory that each resident group takes besides its own (CUDA C++ Programming Guide,
# compute capability 8 and 9).
_RESERVED = 1 << 10
MATRIX_WIDTHS = (64, 128, 256)
LANE_WIDTHS = (64, 128)
# Groups that share a unit of listed blocks at the most: the last one adds up the others' parts,
# and a list is short.
MOST_PARTS = 16
# What is older than the conversion from f8e4m3 (PTX ISA, cvt: sm_89).
_NO_FP8 = ("sm_80", "sm_86", "sm_87")
# Forms of the op that this schedule has no code for.
_UNTAKEN = ("k_shared",)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the choice hangs on."""

    batch: int
    heads: int
    kv_heads: int
    keys: int
    width: int
    dtype: str
    is_live: bool
    is_paged: bool
    # Of listed blocks, lists a batch row; else 0.
    lists: int = 0
    # Whether keys and values are codes with a scale a row.
    is_coded: bool = False

    @property
    def cuts(self) -> int:
        """Sets into which a key head's query heads are cut, so that a unit takes them; 0 where no
        cut is even. Heads with lists of their own are units of their own."""
        repeat = self.heads // self.kv_heads
        if self.lists == self.heads:
            return repeat
        least = -(-repeat // MOST_HEADS)
        return next((n for n in range(least, repeat) if repeat % n == 0), 0) if least > 1 else 1

    @property
    def repeat(self) -> int:
        """Query heads of a unit."""
        return self.heads // self.kv_heads // max(self.cuts, 1)

    @property
    def units(self) -> int:
        return self.batch * self.kv_heads * self.cuts


def _shape_of(at: dict[str, Var], codes: tuple[Coded, Coded] | None) -> _Shape:
    batch, heads, _, width = at["q"].type.shape
    k = at["k"].type
    keys = keys_of(at)
    lists = at["ids"].type.shape[1] if "ids" in at else 0
    if codes is not None:
        is_paged = codes[0].index is not None
        return _Shape(batch, heads, k.shape[1], keys, width, codes[0].dtype, "len" in at, is_paged,
                      is_coded=True)  # fmt: skip
    return _Shape(
        batch, heads, k.shape[1], keys, width, k.dtype, "len" in at, "read" in at, lists
    )  # fmt: skip


def why_not(
    body: Graph, eqn: Eqn, limits: DeviceLimits, codes: tuple[Coded, Coded] | None = None
) -> str:
    """What keeps a decode from this schedule, or "". `codes`: where keys and values are codes."""
    at = operands_of(eqn)
    q, k, v = at["q"].type, at["k"].type, at["v"].type
    if not limits.has_async_copy or limits.subgroup != WARP or limits.target != "ptx":
        return f"{limits.name} has no asynchronous copies that grouped knows"
    if not limits.counts_residents:
        return f"{limits.name} as it is driven can't count resident groups, and grouped's all are"
    if q.shape[2] != 1:
        return "several query rows"
    untaken = [n for n in _UNTAKEN if n in at]
    if untaken:
        return f"grouped has no {untaken[0]} yet"
    if codes is not None:
        return _why_not_coded(at, codes, limits)
    inputs = {i.var.id for i in body.inputs}
    if any(at[n].id not in inputs for n in ("k", "v", "ids") if n in at):
        return "keys, values or lists are computed, not read"
    widths = MATRIX_WIDTHS if k.dtype in ("f16", "bf16") else LANE_WIDTHS
    if k.dtype not in ("f16", "bf16", "f32") or q.dtype != k.dtype or v.dtype != k.dtype:
        return f"grouped has no cache of {k.dtype}"
    if k.dtype != "f32" and not limits.has_matrix_units:
        return f"{limits.name} has no matrix units"
    if q.shape[3] not in widths or v.shape[-1] != q.shape[3]:
        return f"grouped has widths {', '.join(map(str, widths))}, keys as wide as values"
    return _why_uneven(_shape_of(at, None))


def _why_uneven(shape: _Shape) -> str:
    repeat = shape.heads // shape.kv_heads
    return "" if shape.cuts else f"{repeat} query heads of a key head make no even sets"


def _why_not_coded(
    at: dict[str, Var], codes: tuple[Coded, Coded], limits: DeviceLimits
) -> str:  # fmt: skip
    q, v = at["q"].type, at["v"].type
    if q.shape[3] not in MATRIX_WIDTHS or v.shape[-1] != q.shape[3]:
        return f"grouped has widths {', '.join(map(str, MATRIX_WIDTHS))}, keys as wide as values"
    if not limits.has_matrix_units:
        return f"{limits.name} has no matrix units"
    if codes[0].dtype == "f8e4m3" and limits.arch in _NO_FP8:
        return f"{limits.name} has no instruction that makes f16 of f8e4m3"
    return _why_uneven(_shape_of(at, codes))


# (warps, groups a compute unit, stages, keys a tile).
Numbers = tuple[int, int, int, int]
# In which order shares run over units: the key heads of a row, or the rows of a key head.
ROWS_FIRST, HEADS_FIRST = 0, 1
# Of codes of 8 bits, by width: the choice, then what is taken where that doesn't fit.
CODED: dict[int, tuple[Numbers, ...]] = {
    64: ((8, 2, 5, 16), (8, 1, 9, 16)),
    128: ((8, 1, 5, 16), (8, 1, 4, 16)),
    256: ((6, 1, 4, 16), (4, 1, 5, 16), (8, 1, 2, 16)),
}
# Where two groups don't fit: one, with a longer ring.
_LARGE = (8, 1, 5, 16)


def geometry(units: int, slots: int) -> tuple[int, int]:
    """(groups, groups a unit where rows are equal). As many groups as divide the units, or are a
    multiple of them, within a tenth of what is resident: equal rows are never cut unevenly."""
    if units <= slots:
        spread = slots // units
        return (units * spread, spread) if units * spread * 10 >= slots * 9 else (slots, 0)
    for groups in range(slots, slots * 9 // 10, -1):
        if units % groups == 0:
            return groups, 0
    return slots, 0


def _numbers(shape: _Shape, limits: DeviceLimits) -> Numbers:
    """(warps, groups a compute unit, stages, keys a tile)."""
    if shape.dtype == "f32":
        tile, stages = (4, 4) if shape.repeat > 4 else (8, 3)
        return 8, 1, stages, tile * (128 // shape.width)
    if shape.width == 256:
        return 4, 1, 3, 16
    if shape.width == 64:
        return 8, 2, 3, 16
    if shape.batch == 1:
        tiles = -(-shape.keys // 16)
        spread = max(1, limits.compute_units // shape.units)
        return 8, 1, 2 if tiles <= 2 * 8 * spread else 3, 16
    return 8, 1, 3, 16


def choose_grouped(
    body: Graph,
    limits: DeviceLimits,
    numbers: Numbers | None = None,
    parts: int = MOST_PARTS,
    order: int = ROWS_FIRST,
) -> Choice | str:
    """The schedule of a decode, or why it is not taken. `numbers`, `order`, and `parts`, the groups
    that share a unit of listed blocks at the most, are for experiments. Of selected blocks a unit's
    keys are the slots of its list."""
    (eqn,) = (e for e in body.eqns if e.op in ("attention", "selected_attention"))
    at = operands_of(eqn)
    codes = coded_pair(body, at)
    reason = why_not(body, eqn, limits, codes)
    if reason:
        return reason
    shape = _shape_of(at, codes)
    is_matrix = shape.dtype != "f32"
    usual = CODED[shape.width] if codes is not None else (_numbers(shape, limits), _LARGE)
    candidates = [numbers] if numbers else usual
    found = next((n for n in candidates if _fits(shape, n, limits)), None)
    if found is None:
        return f"{limits.name} has too little workgroup memory"
    warps, residents, stages, tile = found
    groups, spread = geometry(shape.units, limits.compute_units * residents)
    mergers = 0
    if shape.lists:
        groups, spread, mergers = _of_lists(eqn, shape, found, limits, (groups, spread), parts)
        # Two tiles a subgroup are on their way from the start: a third stage is only more code.
        if _slots(eqn, shape) <= 2 * tile * warps * spread:
            stages = 2
    params = {
        "warps": warps, "stages": stages, "tile": tile, "groups": groups, "spread": spread,
        "residents": residents, "cuts": shape.cuts, "matrix": int(is_matrix),
        "mergers": mergers,
    } | ({"order": order} if order else {})  # fmt: skip
    schedule = Schedule("grouped", tuple(sorted(params.items())))
    why = (
        f"{shape.units} units of {shape.repeat} query heads on {groups} groups of {warps} warps, "
        f"{residents} a compute unit, all resident at once"
        + (f", over {codes[0].dtype} codes with a scale a row" if codes is not None else "")
        + f", and {mergers} a unit that add up parts" * (mergers > 0)
    )
    scratch = Scratch("u32", _word_count(shape, warps, groups), True)
    return Choice(schedule, (Layout(),) * len(body.inputs), (scratch,), why)


def _of_lists(
    eqn: Eqn, shape: _Shape, numbers: Numbers, limits: DeviceLimits, usual: tuple[int, int],
    most: int,
) -> tuple[int, int, int]:  # fmt: skip
    """(groups, groups a unit, groups a unit that only add up parts) over short lists. Where there
    is room, a round of channels has a merger, and the fewest groups share a unit with which their
    subgroups take as few tiles as with all."""
    warps, residents, _, tile = numbers
    groups, spread = usual
    each = limits.compute_units * residents // shape.units
    rounds = _rounds(shape, warps)
    tiles = -(-_slots(eqn, shape) // tile)
    if each >= rounds + 2 and tiles > warps:
        deep = -(-tiles // (warps * (each - rounds)))
        spread = -(-tiles // (warps * deep))
        return shape.units * spread, spread, rounds
    if spread > most:
        return shape.units * most, most, 0
    return groups, spread, 0


def _slots(eqn: Eqn, shape: _Shape) -> int:
    """Keys that a row visits at the most."""
    listed, ratio = operands_of(eqn)["ids"].type.shape[3], int_attr(eqn, "ratio")
    return min(listed * ratio + always_of(eqn.attr("always")).reach(ratio), shape.keys)


def _rounds(shape: _Shape, warps: int) -> int:
    """Rounds of channel pairs in which a group's lanes go over a unit's results."""
    return -(-(shape.repeat * shape.width // 2) // (warps * WARP))


def _fits(shape: _Shape, numbers: Numbers, limits: DeviceLimits) -> bool:
    """Whether so many groups have their workgroup memory in a compute unit."""
    warps, residents, stages, tile = numbers
    ring = warps * stages * 2 * tile * shape.width * DTYPES[shape.dtype].nbytes
    rows = warps * shape.repeat
    heads = 1 << (shape.repeat - 1).bit_length()
    weights = warps * tile * heads * 4 if shape.dtype == "f32" else 0
    marks = warps * stages * 4 if shape.lists else 0
    marks += warps * stages * 2 * tile * 4 if shape.is_coded else 0
    nbytes = ring + rows * (shape.width + 4) * 4 + rows * 8 + weights + marks
    return nbytes <= (limits.workgroup_nbytes + _RESERVED) // residents - _RESERVED


def _word_count(shape: _Shape, warps: int, groups: int) -> int:
    pairs = shape.repeat * shape.width // 2
    return groups * pairs * 2 + groups * _rounds(shape, warps) * warps * 2
