"""What a right operand reads of memory for one piece of its terms, and those terms from what was
read.

A piece is `width` neighbouring terms of one column. Where its elements lie is found by index
arithmetic alone, so that a piece can be read long before its terms are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.index import ZERO, Coords, Index, flat
from poot.codegen.gen.job import Job
from poot.codegen.gen.matmul.parts import right_coords
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.pull import Leaf, stretched
from poot.codegen.kir.build import I32, Val
from poot.codegen.kir.nodes import Ty
from poot.errors import CapabilityError
from poot.ir.attrs import ints_attr
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Eqn, Var
from poot.passes.regions.streams import PIECE_NBYTES

Flats = dict[int, list[Index]]


@dataclass(frozen=True, slots=True)
class Load:
    """`lanes` elements of an input from `offset` elements behind the piece's first on."""

    var: Var
    offset: int
    lanes: int
    type: Ty


@dataclass(slots=True)
class Pieces:
    """The pieces of one product's right operand. `memories` are the parameters, by input."""

    job: Job
    product: Eqn
    width: int
    memories: dict[int, Memory]
    loads: tuple[Load, ...] = ()

    def __post_init__(self) -> None:
        ix, k = self.job.indexer, self.job.k
        cols, depth = self.product.out.type.shape[-1], self.product.ins[0].type.shape[-1]
        col = ix.atom(k.group_id(0), cols)
        piece = ix.atom(k.lane(), depth // self.width)
        flats: Flats = {}
        for e in range(self.width):
            self._walk(self.product.ins[1], self.coords(col, piece, e), flats)
        loads: list[Load] = []
        for var in (i.var for i in self.job.request.body.inputs if i.var.id in flats):
            loads.extend(self._cut(var, flats[var.id]))
        self.loads = tuple(loads)

    def coords(self, col: Index, piece: Index, term: int) -> Coords:
        """Where the right operand is asked for a term of a piece."""
        own = (*(ZERO for _ in self.product.out.type.shape[:-2]), ZERO, col)
        return right_coords(self.product, own, piece * self.width + term)

    def _walk(self, var: Var, coords: Coords, flats: Flats) -> None:
        """Books which element of each input stands behind an element of `var`."""
        pull = self.job.pull
        stack = [(var, coords)]
        while stack:
            v, at = stack.pop()
            eqn = pull.maker(v)
            if eqn is None:
                flats.setdefault(v.id, []).append(flat(at, v.type.shape))
            elif eqn.op == "transpose":
                own = list(at)
                for axis, source in enumerate(ints_attr(eqn, "perm")):
                    own[source] = at[axis]
                stack.append((eqn.ins[0], tuple(own)))
            elif eqn.op == "reshape":
                x = eqn.ins[0]
                moved = self.job.indexer.reshape(at, eqn.out.type.shape, x.type.shape)
                stack.append((x, moved))
            else:
                stack.extend((x, stretched(x.type, at)) for x in reversed(eqn.ins))

    def _cut(self, var: Var, flats: list[Index]) -> list[Load]:
        """The loads that cover these elements of an input."""
        first = flats[0]
        apart = [(f - first).literal for f in flats]
        offsets = sorted({o for o in apart if o is not None})
        if None in apart or offsets[0] < 0:
            raise CapabilityError(f"the terms of a piece of {var.type} lie apart in memory")
        cell = self.memories[var.id].cell
        most = PIECE_NBYTES // DTYPES[cell.param].nbytes
        loads: list[Load] = []
        while offsets:
            at, lanes = first + offsets[0], 1
            while 2 * lanes <= most and _is_run(at, offsets, 2 * lanes * cell.per):
                lanes *= 2
            start = offsets[0]
            if not _is_multiple(at, cell.per):
                raise CapabilityError(f"a piece of {var.type} begins within a word")
            loads.append(Load(var, start, lanes, Ty(cell.param, lanes)))
            offsets = [o for o in offsets if o >= start + lanes * cell.per]
        return loads

    def _bases(self, col: Index, piece: Index) -> dict[int, Index]:
        flats: Flats = {}
        self._walk(self.product.ins[1], self.coords(col, piece, 0), flats)
        return {id: found[0] for id, found in flats.items()}

    def read(
        self,
        registers: list[Val],
        col: Index,
        piece: Index,
        is_wanted: Val | None = None,
        cache: str = "stream",
    ) -> None:
        """Starts the piece's loads, each into its register. Where it isn't wanted, all lanes read
        one place at the buffer's start, which costs next to nothing, and no branch keeps the
        loads from being issued early."""
        k, ix = self.job.k, self.job.indexer
        bases = self._bases(col, piece)
        for load, register in zip(self.loads, registers, strict=True):
            memory = self.memories[load.var.id]
            at, _ = ix.divmod(bases[load.var.id] + load.offset, memory.cell.per)
            if is_wanted is None:
                where = ix.value(at)
            else:
                start = ix.value(Index(at.terms))
                where = k.select(is_wanted, start, k.lit(0, I32)) + at.const
            k.set(register, k.load(memory.name, where, load.lanes, cache))

    def hold(self, registers: list[Val], col: Index, piece: Index) -> None:
        """From here on the inputs' elements are those in the registers, of that piece alone."""
        bases = self._bases(col, piece)
        for id, base in bases.items():
            mine = [
                (load, r)
                for load, r in zip(self.loads, registers, strict=True)
                if load.var.id == id
            ]
            self.job.pull.leaves[id] = self._leaf(mine, base)

    def _leaf(self, mine: list[tuple[Load, Val]], base: Index) -> Leaf:
        var, k = mine[0][0].var, self.job.k
        memory = self.memories[var.id]
        per = memory.cell.per

        def leaf(coords: Coords) -> Val:
            at = (flat(coords, var.type.shape) - base).literal
            for load, register in mine:
                if at is not None and load.offset <= at < load.offset + load.lanes * per:
                    n, place = divmod(at - load.offset, per)
                    got = k.copy(register) if load.lanes == 1 else k.extract(register, n)
                    return memory.element(got, place)
            raise CapabilityError("a piece is asked for an element that it did not read")

        return leaf


def _is_multiple(at: Index, count: int) -> bool:
    return at.const % count == 0 and all(c % count == 0 for _, c in at.terms)


def _is_run(at: Index, offsets: list[int], count: int) -> bool:
    """Whether the next `count` elements are all wanted, and begin at a multiple of that."""
    is_whole = offsets[:count] == list(range(offsets[0], offsets[0] + count))
    return is_whole and _is_multiple(at, count)
