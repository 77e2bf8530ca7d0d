"""Where rows stand: positions, what is added to them, and the blocks that are complete before them.

C = div(reshape(add(p, 1)), ratio)          "tail": a row lists blocks complete with itself
C = div(reshape(p), ratio)                  "own": a row lists blocks before its own
C = div(reshape(add(p, 1 - w)), ratio)      "window(w)": a row lists blocks before its last w keys
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Var
from poot.ir.rules.selected import Always
from poot.passes.attention.views import reshaped
from poot.passes.engine import Scope
from poot.passes.facts import number_of
from poot.passes.selection.pattern import unshaped


@dataclass(frozen=True, slots=True)
class Place:
    """base + plus, element by element in order; but for clamps of guards that is root + total."""

    base: Var
    plus: int
    root: Var
    total: int

    def written(self, scope: Scope, shape: tuple[int, ...], more: int = 0) -> Var:
        """The value in that shape, with `more` added."""
        x = reshaped(scope, self.base, shape)
        if self.plus + more == 0:
            return x
        number = scope.emit("const", shape=(), dtype="i32", value=self.plus + more)
        return scope.emit("add", x, number)


@dataclass(frozen=True, slots=True)
class Count:
    """(base + plus) / ratio: how many blocks come before."""

    place: Place
    ratio: int

    def is_like(self, other: Count) -> bool:
        """Whether both count the same, but for clamps of guards."""
        mine, theirs = self.place, other.place
        return (mine.root, mine.total, self.ratio) == (theirs.root, theirs.total, other.ratio)

    def always(self, row: Place) -> str | None:
        """What rows at `row` always visit, if this counts their candidates."""
        last = 1 - (self.place.total - row.total)
        return Always.named(last) if self.place.root == row.root and last >= 0 else None


def place_of(scope: Scope, var: Var) -> Place:
    """A value as a base and a number added to it, through reshapes."""
    base, plus = _summand(scope, var)
    root, total = base, plus
    while (eqn := scope.producer(root)) is not None and eqn.op == "index_guard":
        if eqn.outs[0] != root:
            break
        root, more = _summand(scope, eqn.ins[0])
        total += more
    return Place(base, plus, root, total)


def _summand(scope: Scope, var: Var) -> tuple[Var, int]:
    """(x, n) where var is x + n, element by element in order."""
    plus, base = 0, unshaped(scope, var)
    while (eqn := scope.producer(base)) is not None and eqn.op in ("add", "sub"):
        number = number_of(scope, eqn.ins[1])
        if number is None or eqn.ins[0].type.elems != base.type.elems:
            break
        plus += int(number) if eqn.op == "add" else -int(number)
        base = unshaped(scope, eqn.ins[0])
    return base, plus


def count_of(scope: Scope, var: Var) -> Count:
    """A value as a number of whole blocks; of ratio 1 where nothing divides it."""
    eqn = scope.producer(unshaped(scope, var))
    if eqn is not None and eqn.op == "div":
        ratio = number_of(scope, eqn.ins[1])
        if ratio is not None and ratio >= 1:
            return Count(place_of(scope, eqn.ins[0]), int(ratio))
    return Count(place_of(scope, var), 1)


def start_of(scope: Scope, var: Var) -> Count | None:
    """Where the block after the counted ones begins: count * ratio."""
    eqn = scope.producer(unshaped(scope, var))
    if eqn is None or eqn.op != "mul":
        got = count_of(scope, var)
        return got if got.ratio == 1 else None
    by = number_of(scope, eqn.ins[1])
    got = count_of(scope, eqn.ins[0])
    return got if by is not None and int(by) == got.ratio else None


def is_one_a_row(var: Var, batch: int, rows: int) -> bool:
    """Whether a value [B,1,Lq,1] has its own element for each batch row and query row."""
    padded = (1,) * (4 - len(var.type.shape)) + var.type.shape
    return padded == (batch, 1, rows, 1)
