"""Folds over rows: each row of a value is folded by a run of lanes, and every lane gets the
result.

A row is what the kept axes name, a column what the folded axes name. `lanes` lanes (a power of
two) share a row: each folds every `lanes`-th column, then the group folds the partial results
through workgroup memory, eight at a time, in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.math import INF
from poot.codegen.gen.numbers import held
from poot.codegen.gen.pull import Leaf
from poot.codegen.kir.build import Val
from poot.errors import CapabilityError
from poot.ir.attrs import ints_attr, str_attr
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn

RADIX = 8
_INT_LIMITS = {"i32": (-(1 << 31), (1 << 31) - 1), "u32": (0, (1 << 32) - 1)}


@dataclass(frozen=True, slots=True)
class Rows:
    """The row space of a reduce's operand: its shape, which axes fold, and the counts."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(n for i, n in enumerate(self.shape) if i not in self.axes)

    @property
    def folded(self) -> tuple[int, ...]:
        return tuple(self.shape[i] for i in self.axes)

    @property
    def rows(self) -> int:
        return math.prod(self.kept)

    @property
    def cols(self) -> int:
        return math.prod(self.folded)

    @property
    def is_trailing(self) -> bool:
        """The folded axes are the last, but for axes of one element."""
        first = min((i for i in self.axes if self.shape[i] > 1), default=len(self.shape))
        return all(i in self.axes or self.shape[i] == 1 for i in range(first, len(self.shape)))

    def coords(self, job: Job, row: Index, col: Index) -> Coords:
        """The operand's coordinates of one column of one row."""
        if self.is_trailing:
            return job.indexer.split(row * self.cols + col, self.shape)
        kept = iter(job.indexer.split(row, self.kept))
        folded = iter(job.indexer.split(col, self.folded))
        return tuple(next(folded) if i in self.axes else next(kept) for i in range(len(self.shape)))


def rows_of(reduce: Eqn) -> Rows:
    return Rows(reduce.ins[0].type.shape, ints_attr(reduce, "axis"))


@dataclass(frozen=True, slots=True)
class Team:
    """How lanes share rows in a group: `lanes` lanes a row; `row` is this lane's row in the group,
    `col` its place among that row's lanes, and `step` how many lanes apart the row's lanes are."""

    lanes: int
    row: Val
    col: Val
    step: int

    @staticmethod
    def of(lane: Val, lanes: int, rows: int, adjacent: bool) -> Team:
        """A group of rows * lanes lanes; a row's lanes are neighbours where `adjacent`, else
        neighbouring lanes have neighbouring rows."""
        if adjacent:
            return Team(lanes, lane // lanes, lane % lanes, 1)
        return Team(lanes, lane % rows, lane // rows, rows)


def start_of(job: Job, kind: str, dtype: str) -> Val:
    """What a fold starts from: 0, or the least or greatest value."""
    if kind == "sum":
        return job.k.lit(0, held(dtype))
    if is_float(dtype):
        return job.k.lit(-INF if kind == "max" else INF)
    return job.k.lit(_INT_LIMITS[dtype][0 if kind == "max" else 1], held(dtype))


def combine(job: Job, kind: str, dtype: str, a: Val, b: Val) -> Val:
    """One step of a fold; a NaN stays."""
    if kind == "sum":
        return a + b
    return job.k.op(f"nan{kind}" if is_float(dtype) else kind, a, b)


def across_lanes(
    job: Job, team: Team, name: str, mine: list[Val], fold: Callable[[Val, Val], Val]
) -> list[Val]:
    """Every lane of a row gets the folds of its lanes' values, which are of one type. Workgroup
    array `name` holds them meanwhile. Control is uniform: there are two barriers at the least."""
    if team.lanes == 1:
        return mine
    k, lane = job.k, job.k.lane()
    k.need_shared(name, mine[0].ty.dtype, k.threads * len(mine))
    slots = [lane + i * k.threads for i in range(len(mine))]
    for slot, value in zip(slots, mine, strict=True):
        k.store(name, slot, value)
    k.barrier()
    left = team.lanes
    while left > 1:
        ways = min(RADIX, left)
        left //= ways
        with k.if_(team.col < left):
            for slot in slots:
                total = k.load(name, slot)
                for i in range(1, ways):
                    total = fold(total, k.load(name, slot + i * left * team.step))
                k.store(name, slot, total)
        k.barrier()
    results = [k.load(name, slot - team.col * team.step) for slot in slots]
    k.barrier()
    return results


def fold_row(job: Job, reduce: Eqn, row: Index, team: Team) -> Val:
    """The reduce's result of a row, in every lane of its team, rounded to its dtype."""
    k, space = job.k, rows_of(reduce)
    kind, dtype = str_attr(reduce, "kind"), reduce.out.type.dtype
    total = k.var(start_of(job, kind, dtype))
    if space.cols:
        with k.for_(team.col, space.cols, team.lanes) as c:
            col = job.indexer.atom(c, space.cols)
            value = job.pull.value(reduce.ins[0], space.coords(job, row, col))
            k.set(total, combine(job, kind, dtype, total, value))
    name = f"fold_{held(dtype).dtype}"
    (result,) = across_lanes(
        job, team, name, [k.copy(total)], lambda a, b: combine(job, kind, dtype, a, b)
    )
    return job.numbers.rounded(result, dtype) if is_float(dtype) else result


def row_leaf(job: Job, value: Val, row: Index, reduce: Eqn) -> Leaf:
    """A fold's result for its own row; another row's is a CapabilityError."""
    shape, loc = reduce.out.type.shape, reduce.loc

    def leaf(coords: Coords) -> Val:
        if job.indexer.number(coords, shape) != row:
            raise CapabilityError("a step asks for a fold of another row than its own", loc)
        return value

    return leaf


def fold_rows(job: Job, reduces: list[Eqn], row: Index, team: Team) -> None:
    """Each reduce in order; what follows may ask for the results of this row, and of no other."""
    for reduce in reduces:
        result = fold_row(job, reduce, row, team)
        job.pull.leaves[reduce.out.id] = row_leaf(job, result, row, reduce)
