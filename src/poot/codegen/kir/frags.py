"""Where the elements of a matrix fragment lie: for each family and role a map from (lane,
register) to (row, column).

A map is a linear layout over bits: each bit of the lane number and of the element number adds a
(row, column) step inside one base tile; a larger frag repeats the base tile, columns first. Also
the swizzles of workgroup tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poot.codegen.kir.nodes import Frag

Step = tuple[int, int]
Ints = npt.NDArray[np.int64]
# The lanes of a wave of each AMD family, and the architectures whose unit has its lane maps.
AMD_FAMILIES = {
    "mfma": (64, ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")),
    "wmma": (32, ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152")),
}


def amd_family(arch: str, wave: int) -> str:
    """The family of an AMD matrix unit in waves of so many lanes, or "" where there is none."""
    found = (f for f, (lanes, archs) in AMD_FAMILIES.items() if wave == lanes and arch in archs)
    return next(found, "")


@dataclass(frozen=True, slots=True)
class LaneMap:
    """One family's map of one role. `tile` is the base tile (rows, columns); `lane_steps` one step
    for each bit of the lane number, `elem_steps` one for each bit of the element number in the
    tile. (0, 0) means a copy.
    """

    tile: tuple[int, int]
    lane_steps: tuple[Step, ...]
    elem_steps: tuple[Step, ...]

    @property
    def lanes(self) -> int:
        return 1 << len(self.lane_steps)

    @property
    def elems(self) -> int:
        """Elements of the base tile in one lane."""
        return 1 << len(self.elem_steps)

    def lane_masks(self, axis: int) -> tuple[int, ...]:
        """The lane bits, as masks of shuffle_xor, whose lanes share an index on the other axis:
        what a reduction along `axis` (1: over columns) has still to fold after frag_reduce.
        """
        return tuple(1 << i for i, step in enumerate(self.lane_steps) if step[axis])


def _halves(*steps: int) -> tuple[Step, ...]:
    return tuple((s, 0) for s in steps)


def _across(*steps: int) -> tuple[Step, ...]:
    return tuple((0, s) for s in steps)


_QUAD = (*_across(2, 4), *_halves(1, 2, 4))  # lane = 4 * row + pair of columns, an 8x8 block
_WARPS = _halves(16, 32)

# PTX ISA, "Matrix fragments for mma.m16n8k16", "wgmma.mma_async register fragments", "ldmatrix";
# AMD matrix instruction calculator for V_MFMA_F32_16X16X16_F16 (CDNA) and RDNA 3 ISA, section 7.9,
# for V_WMMA_F32_16X16X16_F16.
LANE_MAPS: dict[tuple[str, str], LaneMap] = {
    ("mma", "a"): LaneMap((16, 16), _QUAD, ((0, 1), (8, 0), (0, 8))),
    ("mma", "b"): LaneMap((16, 8), (*_halves(2, 4), *_across(1, 2, 4)), ((1, 0), (8, 0))),
    ("mma", "acc"): LaneMap((16, 8), _QUAD, ((0, 1), (8, 0))),
    ("ldmatrix", "8x8"): LaneMap((8, 8), _QUAD, ((0, 1),)),
    ("wgmma", "a"): LaneMap((64, 16), (*_QUAD, *_WARPS), ((0, 1), (8, 0), (0, 8))),
    ("wgmma", "acc"): LaneMap((64, 8), (*_QUAD, *_WARPS), ((0, 1), (8, 0))),
    ("mfma", "a"): LaneMap((16, 16), (*_halves(1, 2, 4, 8), *_across(4, 8)), _across(1, 2)),
    ("mfma", "b"): LaneMap((16, 16), (*_across(1, 2, 4, 8), *_halves(4, 8)), _halves(1, 2)),
    ("mfma", "acc"): LaneMap((16, 16), (*_across(1, 2, 4, 8), *_halves(4, 8)), _halves(1, 2)),
    ("wmma", "a"): LaneMap((16, 16), (*_halves(1, 2, 4, 8), (0, 0)), _across(1, 2, 4, 8)),
    ("wmma", "b"): LaneMap((16, 16), (*_across(1, 2, 4, 8), (0, 0)), _halves(1, 2, 4, 8)),
    ("wmma", "acc"): LaneMap((16, 16), (*_across(1, 2, 4, 8), (1, 0)), _halves(2, 4, 8)),
}
# A cooperative matrix's layout is the driver's own: its elements can't be named.
OPAQUE = ("coop",)
ROLES = ("a", "b", "acc")


def lane_map(frag: Frag) -> LaneMap | None:
    """The row of a frag's family and role, or None where there is none or it is opaque."""
    return LANE_MAPS.get((frag.family, frag.role))


def frag_problem(frag: Frag) -> str:
    """What keeps a frag from being one, or ""."""
    if frag.family in OPAQUE and frag.role in ROLES:
        return ""
    row = lane_map(frag)
    if row is None:
        return f"there is no lane map for {frag.family}, {frag.role}"
    m, n = row.tile
    if frag.m % m or frag.n % n or frag.m < m or frag.n < n:
        return f"{frag.family} {frag.role} is a multiple of {m}x{n}"
    return ""


def elems_per_lane(frag: Frag) -> int:
    """Elements that one lane holds. An opaque frag counts as spread evenly over 32 lanes."""
    row = lane_map(frag)
    if row is None:
        return -(-frag.m * frag.n // 32)
    m, n = row.tile
    return row.elems * (frag.m // m) * (frag.n // n)


def _bits(number: Ints, steps: tuple[Step, ...], axis: int) -> Ints:
    total = np.zeros_like(number)
    for bit, step in enumerate(steps):
        total += (number >> bit & 1) * step[axis]
    return total


def coords(frag: Frag) -> tuple[Ints, Ints]:
    """Row and column of each element: two arrays [elems a lane, lanes]."""
    row = lane_map(frag)
    assert row is not None, frag
    lanes, elem = np.arange(row.lanes)[None, :], np.arange(elems_per_lane(frag))[:, None]
    inside, tile = elem % row.elems, elem // row.elems
    across = frag.n // row.tile[1]
    corner = (tile // across * row.tile[0], tile % across * row.tile[1])
    r, c = (
        _bits(lanes, row.lane_steps, x) + _bits(inside, row.elem_steps, x) + corner[x]
        for x in (0, 1)
    )
    return r, c


def held(frag: Frag, axis: int) -> int:
    """How many rows (axis 1, as frag_reduce counts) or columns (axis 0) one lane has parts of."""
    return len(np.unique(coords(frag)[0 if axis == 1 else 1][:, 0]))


def _swizzle_128b(at: Ints, pitch: int, nbytes: int) -> Ints:
    """Byte address bits 4..6 are xored with bits 7..9 (PTX ISA, tensor maps, 128-byte swizzle)."""
    byte = at * nbytes
    return (byte ^ (byte >> 7 & 7) << 4) // nbytes


def _swizzle_row(at: Ints, pitch: int, nbytes: int) -> Ints:
    """Chunk c of 16 bytes in row r of `pitch` elements lies at chunk c ^ (r & 7)."""
    return at ^ (at // pitch & 7) * (16 // nbytes)


SWIZZLES = {"128B": _swizzle_128b, "row": _swizzle_row}


def swizzle(name: str | None, at: Ints, pitch: int, nbytes: int) -> Ints:
    """Where element `at` of a workgroup tile lies. `pitch` is a row's elements, `nbytes` an
    element's size. The tile's memory is aligned to eight rows of 128 bytes; rows are whole
    multiples of 128 bytes.
    """
    return at if name is None else SWIZZLES[name](at, pitch, nbytes)
