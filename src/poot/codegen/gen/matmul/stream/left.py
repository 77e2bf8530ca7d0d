"""The left operand in workgroup memory: its rows folded, then every element computed once a group.

It lies in planes of four neighbouring terms, as many as a piece has fours, so that the lanes of a
subgroup, each at a piece of its own, read side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.codegen.gen.index import ZERO, Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.parts import Products, Segment, left_coords, row_number
from poot.codegen.gen.numbers import held
from poot.codegen.gen.row_reduce import combine, row_leaf, rows_of, start_of
from poot.codegen.kir.build import BOOL, I32, Val
from poot.ir.attrs import str_attr
from poot.ir.dtypes import is_float
from poot.ir.graph import Eqn
from poot.planner.stream import LEAST

FOUR = 4
LEFT, RUNS = "left", "runs"


@dataclass(slots=True)
class Left:
    """Rows of `depth` terms, for pieces of `width`; `folds` has each row's folds."""

    job: Job
    segment: Segment
    products: Products
    width: int
    folds: list[list[tuple[Eqn, Val, Index]]] = field(
        default_factory=list[list[tuple[Eqn, Val, Index]]]
    )

    @property
    def depth(self) -> int:
        return self.segment.depth

    @property
    def plane(self) -> int:
        """Elements of a plane: four of each piece."""
        return self.depth // self.width * FOUR

    def use(self, row: int) -> None:
        """What follows may ask for the folds of this row."""
        for fold, value, number in self.folds[row]:
            self.job.pull.leaves[fold.out.id] = row_leaf(self.job, value, number, fold)

    def stage(self, with_runs: bool) -> None:
        """All lanes fold and store every row. With runs, the sums of pieces lie there too."""
        k = self.job.k
        k.shared(LEFT, "f32", max(self.segment.rows * self.depth, LEAST))
        for row in range(self.segment.rows):
            fours = self._fours()
            self.folds.append(self._folded(row, fours))
            self._store(row, fours)
        k.barrier()
        if with_runs:
            self._sum_runs()
            k.barrier()

    def _own(self, row: int) -> Coords:
        return self.segment.own(self.job, ZERO, ZERO + row, ZERO)

    def _fours(self) -> list[tuple[Index, Val]]:
        """This lane's fours of a row, neighbours in neighbouring lanes: its number, held below
        their count, and whether it is one."""
        k, ix = self.job.k, self.job.indexer
        count = self.depth // FOUR
        out: list[tuple[Index, Val]] = []
        for turn in range(-(-count // k.threads)):
            at = k.lane() + turn * k.threads
            if (turn + 1) * k.threads <= count:
                out.append((ix.atom(at, count), k.lit(True, BOOL)))
            else:
                out.append((ix.atom(k.op("min", at, count - 1), count), at < count))
        return out

    def _folded(self, row: int, fours: list[tuple[Index, Val]]) -> list[tuple[Eqn, Val, Index]]:
        job = self.job
        left = self.segment.products[0].ins[0].type.shape
        number = row_number(left, left_coords(self.segment, self._own(row), ZERO))
        out: list[tuple[Eqn, Val, Index]] = []
        for fold in self.products.folds:
            value = self._fold(fold, number, fours)
            job.pull.leaves[fold.out.id] = row_leaf(job, value, number, fold)
            out.append((fold, value, number))
        return out

    def _fold(self, fold: Eqn, number: Index, fours: list[tuple[Index, Val]]) -> Val:
        """A row's fold, the same in every lane: lanes, then subgroups in order."""
        job, k = self.job, self.job.k
        kind, dtype = str_attr(fold, "kind"), fold.out.type.dtype
        space, neutral = rows_of(fold), start_of(job, kind, dtype)
        total = neutral
        for four, is_there in fours:
            for e in range(FOUR):
                got = job.pull.value(fold.ins[0], space.coords(job, number, four * FOUR + e))
                if is_there.literal is not True:
                    got = k.select(is_there, got, neutral)
                total = combine(job, kind, dtype, total, got)
        subgroup = k.subgroup or 1
        step = subgroup // 2
        while step:
            total = combine(job, kind, dtype, total, k.op("shuffle_xor", total, mask=step))
            step //= 2
        name = k.need_shared(f"fold_{held(dtype).dtype}", held(dtype).dtype, k.threads // subgroup)
        with k.if_(k.op("subgroup_lane", type=I32).eq(0)):
            k.store(name, k.op("subgroup_id", type=I32), total)
        k.barrier()
        result = k.load(name, 0)
        for warp in range(1, k.threads // subgroup):
            result = combine(job, kind, dtype, result, k.load(name, warp))
        k.barrier()
        return job.numbers.rounded(result, dtype) if is_float(dtype) else result

    def _store(self, row: int, fours: list[tuple[Index, Val]]) -> None:
        job, k, ix = self.job, self.job.k, self.job.indexer
        left = self.segment.products[0].ins[0]
        for four, is_there in fours:
            values = [
                job.pull.value(left, left_coords(self.segment, self._own(row), four * FOUR + e))
                for e in range(FOUR)
            ]
            piece, plane = ix.divmod(four, self.width // FOUR)
            at = plane * self.plane + piece * FOUR + row * self.depth
            with job.when(is_there):
                k.store(LEFT, ix.value(at), k.vec(*values))

    def _sum_runs(self) -> None:
        k, ix = self.job.k, self.job.indexer
        pieces, rows = self.depth // self.width, self.segment.rows
        k.shared(RUNS, "f32", rows * pieces)
        for row in range(rows):
            with k.for_(k.lane(), pieces, k.threads, name="r") as r:
                piece = ix.atom(r, pieces)
                total = k.lit(0.0)
                for value in self.terms(row, piece):
                    total = total + value
                k.store(RUNS, ix.value(piece + row * pieces), total)

    def terms(self, row: int, piece: Index) -> list[Val]:
        """The terms of one piece of a row."""
        k, ix = self.job.k, self.job.indexer
        out: list[Val] = []
        for plane in range(self.width // FOUR):
            at = piece * FOUR + (plane * self.plane + row * self.depth)
            four = k.load(LEFT, ix.value(at), FOUR)
            out.extend(k.extract(four, e) for e in range(FOUR))
        return out

    def run(self, row: int, piece: Index) -> Val:
        """The sum of a piece's terms."""
        pieces = self.depth // self.width
        return self.job.k.load(RUNS, self.job.indexer.value(piece + row * pieces))
