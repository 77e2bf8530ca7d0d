"""Schedules on matrix units: `matrix_ring` on warpgroup products, `matrix` on those of a subgroup.

Units multiply 16-bit numbers and sum in f32. An operand that 16 bits don't hold goes in as several
bf16 parts that add up to it: f32 as three, f16 beside it as two. Of the products of parts those
are left out that lie below f32's last place. So no product is less exact than one of f32 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from poot.codegen.kir.frags import amd_family
from poot.ir.attrs import ints_attr
from poot.ir.contiguity import is_summed_axis_in_a_row
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn, Graph, Var
from poot.limits import DeviceLimits
from poot.planner.request import Schedule, Scratch
from poot.planner.spills import new_part

# Columns of a panel: 128 bytes of 16 bits. Terms that a step of the ring holds.
PANEL = 64
CHUNK = 8  # elements of 16 bits in 16 bytes
# Rows from which units pay, and columns and terms; less is left to other schedules.
LEAST_ROWS, LEAST = 9, 64
# Rows of a warpgroup's product, and columns that a lane's registers hold sums for.
ROWS, MOST_COLUMNS = 64, 256
_WIDTHS, _MOST_STAGES, _BARRIERS = (32, 64, 128, 192, 256), 12, 2048
# f32 columns of a slice of sums on its way out, of a warpgroup's and of a subgroup's tile, and what
# is left free after each row of one: so lanes of a fragment write to banks apart.
SLICE, NARROW, SPARE = 32, 16, 8
FEW_SPARE = 2  # where lanes side by side take rows of a fragment
# Registers of the role that fills the ring (where it computes; where it only asks), and of others.
FILLS, ASKS, SUMS, MORE_SUMS = 88, 40, 208, 232
# Significant bits of each dtype, a bf16 part's, and parts that matter.
_BITS = {"f32": 24, "f16": 11, "bf16": 8, "f8e4m3": 4, "i8": 8, "u8": 8}
_IN_F16 = ("f16", "f8e4m3", "i8", "u8")
_IN_EACH = ("f8e4m3", "i8", "u8")
_PART_BITS, _MOST_PARTS = 8, 3
_MOVES = ("transpose", "reshape", "broadcast", "slice")
# Of an H200: products a clock of a compute unit, bytes a clock that it gets from the level-2 cache,
# clocks that a tile takes before its first and after its last product.
_PRODUCTS, _NBYTES, _AROUND = 2048, 32, 2500


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtype that units multiply, and how many parts of it each operand is."""

    dtype: str
    left: int
    right: int

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return pairs_of(self.left, self.right)


def pairs_of(left: int, right: int) -> tuple[tuple[int, int], ...]:
    """The (left, right) parts whose products count, the largest last."""
    every = [(i, j) for i in range(left) for j in range(right)]
    return tuple(sorted((p for p in every if sum(p) < _MOST_PARTS), key=sum, reverse=True))


def widens(eqn: Eqn) -> bool:
    """Whether a cast keeps every number that its operand's dtype has."""
    source, dtype = eqn.ins[0].type.dtype, eqn.out.type.dtype
    return source == dtype or source in (_BITS if dtype == "f32" else _IN_EACH)


def parts_of(dtype: str) -> int:
    """Parts of bf16 that add up to any number of a dtype."""
    return -(-_BITS[dtype] // _PART_BITS)


def exact_dtype(makers: Mapping[int, Eqn], var: Var) -> str:
    """The narrowest dtype known to hold a value's elements: what it was before it was widened."""
    while (eqn := makers.get(var.id)) is not None:
        if eqn.op not in _MOVES and not (eqn.op == "cast" and widens(eqn)):
            break
        var = eqn.ins[0]
    return var.type.dtype


def precision_of(makers: Mapping[int, Eqn], products: list[Eqn]) -> Precision:
    """One precision for products that share a left operand."""
    left = exact_dtype(makers, products[0].ins[0])
    rights = [exact_dtype(makers, p.ins[1]) for p in products]
    if "f16" in (left, *rights) and all(d in _IN_F16 for d in (left, *rights)):
        return Precision("f16", 1, 1)
    return Precision("bf16", parts_of(left), max(map(parts_of, rights)))


def source_of(
    body: Graph, makers: Mapping[int, Eqn], var: Var, dtype: str, *, is_swapped: bool
) -> int | None:
    """The input that holds an operand as units take it: of that dtype, in the operand's own order
    (its last two axes swapped, where `is_swapped`), in rows of whole 16 bytes. None where none
    does."""
    row = var.type.shape[-2 if is_swapped else -1]
    if exact_dtype(makers, var) != dtype or row % CHUNK:
        return None
    while (eqn := makers.get(var.id)) is not None:
        if eqn.op == "transpose" and is_swapped and _swaps(eqn):
            is_swapped = False
        elif not (eqn.op == "reshape" and not is_swapped) and eqn.op != "cast":
            return None
        var = eqn.ins[0]
    found = [n for n, i in enumerate(body.inputs) if i.var.id == var.id]
    return found[0] if found and not is_swapped else None


def _swaps(eqn: Eqn) -> bool:
    """Whether a transpose swaps the last two axes alone."""
    rank = len(eqn.out.type.shape)
    return ints_attr(eqn, "perm") == (*range(rank - 2), rank - 1, rank - 2)


def left_pitch(left: Var) -> int:
    """Elements from a row to the next of a left operand in parts: whole 16 bytes."""
    return -(-left.type.shape[-1] // CHUNK) * CHUNK


def left_scratch(body: Graph) -> tuple[Scratch, ...]:
    """Where a left operand that no input holds as units take it is put, part by part, by a launch
    before: [parts, batches, rows, pitch]."""
    products = [e for e in body.eqns if e.op == "matmul"]
    makers = {v.id: e for e in body.eqns for v in e.outs}
    parts, left = precision_of(makers, products), products[0].ins[0]
    if source_of(body, makers, left, parts.dtype, is_swapped=False) is not None:
        return ()
    rows = math.prod(left.type.shape[:-1])
    return (Scratch(parts.dtype, parts.left * rows * left_pitch(left)),)


def family_of(limits: DeviceLimits) -> str:
    """The fragments that a device's subgroups multiply, or ""."""
    if limits.target == "ptx":
        return "mma" if limits.has_matrix_units and limits.subgroup == 32 else ""
    if limits.target != "hip":
        return ""
    return amd_family(limits.arch.partition(":")[0], limits.subgroup)


def has_warpgroups(limits: DeviceLimits) -> bool:
    """Whether a device multiplies by warpgroups and copies boxes of tensors."""
    return limits.target == "ptx" and limits.arch == "sm_90a" and limits.has_tensor_maps


def together(body: Graph, products: list[Eqn], updates: tuple[tuple[int, int], ...]) -> int:
    """How many products at the most some outputs need at once, directly or by one another."""
    reached = {p.out.id: {p.out.id} for p in products}
    for eqn in body.eqns:
        for ids in reached.values():
            if any(v.id in ids for v in eqn.ins):
                ids.update(v.id for v in eqn.outs)
    groups: list[set[int]] = []
    for n in range(len(body.outputs)):
        part = new_part(body, updates, n)
        mine = {id for id, ids in reached.items() if part.id in ids}
        for group in [g for g in groups if g & mine]:
            groups.remove(group)
            mine |= group
        groups.append(mine)
    return max(map(len, groups), default=1)


def is_turned(makers: Mapping[int, Eqn], products: list[Eqn]) -> bool:
    """Whether of some right operand columns lie in a row, rather than terms of the sum."""
    return not all(is_summed_axis_in_a_row(makers, p) for p in products)


def _why_not(
    body: Graph, products: list[Eqn], updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> str:
    """What keeps a step from matrix units, or ""."""
    if not family_of(limits):
        return f"{limits.name} has no matrix units that poot speaks to"
    rows, cols = products[0].out.type.shape[-2:]
    depth = products[0].ins[0].type.shape[-1]
    if rows < LEAST_ROWS or min(cols, depth) < LEAST or not math.prod(products[0].out.type.shape):
        return f"{rows} x {depth} by {depth} x {cols} is little work for matrix units"
    if any(e.op == "reduce" for e in body.eqns):
        return "a fold stands before the products"
    makers = {v.id: e for e in body.eqns for v in e.outs}
    for product in products:
        dtypes = [exact_dtype(makers, v) for v in product.ins]
        if not is_float(product.out.type.dtype) or any(d not in _BITS for d in dtypes):
            return f"matrix units multiply no {' by '.join(dtypes)}"
    count = together(body, products, updates)
    least = PANEL if is_turned(makers, products) else SLICE
    if count * least > MOST_COLUMNS // 2:
        return f"{count} products that an output needs at once"
    return ""


def choose_matrix(
    body: Graph, products: list[Eqn], updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> tuple[Schedule, str] | str:
    """The schedule of a step and why, or what keeps it from matrix units."""
    reason = _why_not(body, products, updates, limits)
    if reason:
        return reason
    makers = {v.id: e for e in body.eqns for v in e.outs}
    work = _Work.of(body, makers, products, updates, limits)
    if family_of(limits) == "wmma" and len(work.precision.pairs) > 1:
        return "WMMA's fragments of several parts don't fit a lane's registers"
    params = work.ringed() if has_warpgroups(limits) else work.plain()
    name = "matrix_ring" if has_warpgroups(limits) else "matrix"
    if params is None:
        return f"no tile of {work.count} products fits {limits.workgroup_nbytes} bytes"
    parts = work.precision
    what = f"{parts.left} x {parts.right} parts of {parts.dtype}"
    shape = f"{work.rows} x {work.depth} by {work.depth} x {work.columns}"
    turned = ", columns as the units' rows" if params.get("swapped") else ""
    reason = f"{shape} in tiles of {params['tile_m']} x {params['tile_n']}{turned}, {what}"
    return Schedule(name, tuple(sorted(params.items()))), reason


@dataclass(frozen=True, slots=True)
class _Work:
    """What there is to multiply: `columns` of all products, `count` that an output needs at
    once."""

    limits: DeviceLimits
    precision: Precision
    batches: int
    rows: int
    columns: int
    depth: int
    count: int
    least: int

    @staticmethod
    def of(
        body: Graph, makers: Mapping[int, Eqn], products: list[Eqn],
        updates: tuple[tuple[int, int], ...], limits: DeviceLimits,
    ) -> _Work:  # fmt: skip
        shape = products[0].out.type.shape
        return _Work(
            limits, precision_of(makers, products), math.prod(shape[:-2]), shape[-2],
            sum(p.out.type.shape[-1] for p in products), products[0].ins[0].type.shape[-1],
            together(body, products, updates), PANEL if is_turned(makers, products) else SLICE,
        )  # fmt: skip

    def nbytes(self, m: int, n: int) -> int:
        """A step's operands in workgroup memory."""
        return (self.precision.left * m + self.precision.right * n) * PANEL * 2

    def tiles(self, m: int, n: int) -> int:
        return self.batches * -(-self.rows // m) * -(-self.columns // n)

    def clocks(self, m: int, n: int) -> float:
        """About how long all tiles take, on units that take one at a time."""
        products = m * n * PANEL * len(self.precision.pairs) / _PRODUCTS
        step = max(products, self.nbytes(m, n) / _NBYTES)
        turns = -(-self.tiles(m, n) // self.limits.compute_units)
        return turns * (-(-self.depth // PANEL) * step + _AROUND)

    def best(self, tiles: list[tuple[int, int]]) -> tuple[int, int]:
        """The tile that takes the least time; of equals, the smallest."""
        return min(tiles, key=lambda t: (self.clocks(*t), t[0] * t[1]))

    def section(self, m: int) -> int:
        """Tiles of rows that are done side by side for each tile of columns: a divisor of all,
        whose left operand takes a part of the level-2 cache."""
        tiles = -(-self.rows // m)
        most = max(1, (12 << 20) // (m * self.depth * 4))
        return next(n for n in range(min(most, tiles), 0, -1) if tiles % n == 0)

    def ringed(self) -> dict[str, int] | None:
        """The numbers of "matrix_ring", None where no two steps fit."""
        few = self.few() if self.rows <= ROWS and self.least < PANEL else None
        return few or self.ring()

    def few(self) -> dict[str, int] | None:
        """Numbers for few rows: 64 columns of each product are a warpgroup's rows, so that none is
        multiplied or copied for nothing."""
        n = next(h for h in (16, 32, 64) if h >= self.rows)
        each = -(-self.columns // self.count)
        room = self.limits.workgroup_nbytes - _BARRIERS

        def step(m: int) -> int:
            return (self.precision.left * n + self.count * self.precision.right * m) * PANEL * 2

        def stages(m: int) -> int:
            return (room - m * (min(n, SLICE) + FEW_SPARE) * 4 * self.count) // step(m)

        def clocks(m: int) -> float:
            tiles = self.batches * -(-each // m)
            return -(-tiles // self.limits.compute_units) * step(m) / min(stages(m), 4)

        fits = [m for m in _heights(each) if stages(m) >= 2 and n * self.count <= MOST_COLUMNS]
        if not fits:
            return None
        m = min(fits, key=clocks)
        groups = min(self.limits.compute_units, self.batches * -(-self.columns // m) + self.count)
        return {"tile_m": m, "tile_n": n, "stages": min(_MOST_STAGES, stages(m)), "groups": groups,
                "section": 1, "swapped": 1}  # fmt: skip

    def ring(self) -> dict[str, int] | None:
        """Numbers for many rows."""
        room = self.limits.workgroup_nbytes - _BARRIERS
        staged = ROWS * (SLICE + SPARE) * 4 * self.count

        def stages(m: int, n: int) -> int:
            return (room - m // ROWS * staged) // self.nbytes(m, n)

        tiles = [
            (m, n) for m in _heights(self.rows) for n in _WIDTHS
            if n >= self.count * self.least and stages(m, n) >= 2
        ]  # fmt: skip
        if not tiles:
            return None
        m, n = self.best(tiles)
        groups = min(self.limits.compute_units, self.tiles(m, n) + self.count)
        return {"tile_m": m, "tile_n": n, "stages": min(_MOST_STAGES, stages(m, n)),
                "groups": groups, "section": self.section(m), "swapped": 0}  # fmt: skip

    def plain(self) -> dict[str, int] | None:
        """The numbers of "matrix", None where no step fits."""

        def stages(m: int, n: int) -> int:
            staged = m * warps_of(m)[1] * (NARROW + SPARE) * 4 * self.count
            return (self.limits.workgroup_nbytes - staged) // self.nbytes(m, n)

        heights = [min(h for h in (16, 32, 64) if h >= min(self.rows, 64))]
        tiles = [
            (m, n) for m in (*heights, *([128] if self.rows > 64 else [])) for n in (64, 128, 256)
            if n >= self.count * max(self.least, 16 * warps_of(m)[1]) and m * n <= 128 * 128
            and stages(m, n) >= 1
        ]  # fmt: skip
        if not tiles:
            return None
        deep = [t for t in tiles if stages(*t) >= 2]
        m, n = self.best(deep or tiles)
        warps_m, warps_n = warps_of(m)
        most = 3 if self.limits.has_async_copy else 2
        return {"tile_m": m, "tile_n": n, "warps_m": warps_m, "warps_n": warps_n,
                "stages": min(most, stages(m, n)), "section": self.section(m)}  # fmt: skip


def _heights(rows: int) -> tuple[int, ...]:
    return (ROWS,) if rows <= ROWS else (ROWS, 2 * ROWS)


def warps_of(m: int) -> tuple[int, int]:
    """Subgroups that share a tile of m rows, by rows and by columns."""
    return (1, 4) if m <= 32 else (2, 2) if m <= ROWS else (2, 4)
