"""Asks a body for one element of a value: the eqns that make it run on registers, down to loads
and leaves.

A body's eqns are never run over arrays: a generator asks for the element at an index, each op
turns that index into its operands' (whole-number arithmetic, mostly folded away), and the
inputs load. Equal questions in a scope are answered once. Every address is inside its buffer
whatever the data: data-dependent indices clamp, and the side a select drops is read at a
clamped index.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from poot.codegen.gen.index import ZERO, Coords, Indexer, flat
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.numbers import Numbers
from poot.codegen.kir.build import KernelBuilder, Val
from poot.errors import CapabilityError
from poot.ir.graph import Eqn, Graph, TensorType, Var

Ask = tuple[Var, Coords]
Steps = Generator[Ask, Val, Val]
Row = Callable[["Pull", Eqn, int, Coords], Steps]
Leaf = Callable[[Coords], Val]

PULL_ROWS: dict[str, Row] = {}


def pull_row(*names: str) -> Callable[[Row], Row]:
    """Adds the row of one op or several: a generator that yields (operand, index) and is sent its
    element."""

    def add(row: Row) -> Row:
        for name in names:
            assert name not in PULL_ROWS, name
            PULL_ROWS[name] = row
        return row

    return add


def stretched(x: TensorType, coords: Coords) -> Coords:
    """An operand's coordinates from those of what it broadcasts to."""
    own = coords[len(coords) - len(x.shape) :]
    return tuple(ZERO if n == 1 else c for n, c in zip(x.shape, own, strict=True))


@dataclass(slots=True)
class Pull:
    """One kernel's view of a body. `leaves` gives the elements of values that are not to be
    computed here."""

    k: KernelBuilder
    body: Graph
    indexer: Indexer
    numbers: Numbers
    leaves: dict[int, Leaf] = field(default_factory=dict[int, Leaf])
    memories: dict[int, Memory] = field(default_factory=dict[int, Memory])
    _makers: dict[int, tuple[Eqn, int]] = field(default_factory=dict[int, tuple[Eqn, int]])
    _memo: dict[tuple[int, Coords], Val] = field(default_factory=dict[tuple[int, Coords], Val])

    def __post_init__(self) -> None:
        for eqn in self.body.eqns:
            for n, out in enumerate(eqn.outs):
                self._makers[out.id] = (eqn, n)

    def bind(self, var: Var, memory: Memory) -> None:
        """The value's elements lie in memory, row-major."""
        self.leaves[var.id] = lambda coords: memory.load(flat(coords, var.type.shape))
        self.memories[var.id] = memory

    def fetch(self, var: Var, coords: Coords, count: int) -> None:
        """Hints that `count` elements of a value from `coords` on, in its order, will be asked for
        soon: the lines of the input that they are made of, element by element."""
        while var.id not in self.memories:
            eqn = self._makers.get(var.id, (None, 0))[0]
            same = [] if eqn is None else [v for v in eqn.ins if v.type.shape == var.type.shape]
            if len(same) != 1:
                return
            var = same[0]
        self.memories[var.id].fetch(flat(coords, var.type.shape), count)

    def maker(self, var: Var) -> Eqn | None:
        """The eqn that makes a value, None for an input."""
        found = self._makers.get(var.id)
        return None if found is None else found[0]

    def value(self, var: Var, coords: Coords) -> Val:
        """The element of `var` at `coords`. No recursion: a body may be thousands of eqns deep."""
        found = self._ready(var, coords)
        if found is not None:
            return found
        stack = [(var, coords, self._start(var, coords))]
        answer: Val | None = None
        while stack:
            var, coords, steps = stack[-1]
            try:
                ask = next(steps) if answer is None else steps.send(answer)
            except StopIteration as done:
                stack.pop()
                answer = done.value
                assert answer is not None
                self._memo[var.id, coords] = answer
                continue
            answer = self._ready(*ask)
            if answer is None:
                stack.append((*ask, self._start(*ask)))
        assert answer is not None
        return answer

    def _ready(self, var: Var, coords: Coords) -> Val | None:
        key = (var.id, coords)
        found = self._memo.get(key)
        if found is not None and self.k.is_open(found):
            return found
        leaf = self.leaves.get(var.id)
        if leaf is None:
            return None
        self._memo[key] = leaf(coords)
        return self._memo[key]

    def _start(self, var: Var, coords: Coords) -> Steps:
        if var.id not in self._makers:
            raise CapabilityError(f"{var} is an input that this kernel has no buffer for")
        eqn, n = self._makers[var.id]
        row = PULL_ROWS.get(eqn.op)
        if row is None:
            raise CapabilityError(
                f"{eqn.op} can't be asked for one element; it needs a step of its own", eqn.loc
            )
        return row(self, eqn, n, coords)
