"""The graph: typed values, frozen eqns, and the inputs, states and outputs around them.

Equality is over meaning: where an eqn came from (`loc`) and how outputs are nested (`tree`) don't
count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from poot.ir.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known of a value before it exists. Extents count elements, never bytes."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def elems(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes on a device (a bool is a u32 word)."""
        return self.elems * DTYPES[self.dtype].nbytes


@dataclass(frozen=True, slots=True)
class Var:
    """A value, bound exactly once."""

    id: int
    type: TensorType

    def __str__(self) -> str:
        return f"v{self.id}"


@dataclass(frozen=True, slots=True)
class Eqn:
    """outs = op(*ins) **attrs. Never edited: a pass makes another with `dataclasses.replace`."""

    op: str
    ins: tuple[Var, ...]
    outs: tuple[Var, ...]
    attrs: tuple[tuple[str, object], ...] = ()
    loc: str = field(default="", compare=False)

    @property
    def out(self) -> Var:
        """The only out; an eqn of several has no `out`."""
        (out,) = self.outs
        return out

    def attr(self, name: str, default: object = None) -> object:
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclass(frozen=True, slots=True)
class Weight:
    """Bound once, shared, never written."""


@dataclass(frozen=True, slots=True)
class State:
    """Device-resident and donated: each step may write it in place. Starts as zeros."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Bound at each step. `range` is (lo, hi), hi excluded, checked before anything runs."""

    kind: str = "user"
    range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Const:
    """An array known at trace time, in row-major device bytes (a bool is one byte here, 0 or 1)."""

    data: bytes


Storage = Weight | State | Slot | Const


@dataclass(frozen=True, slots=True)
class Input:
    """A value that the graph is given, by name."""

    var: Var
    name: str
    storage: Storage


@dataclass(frozen=True, slots=True)
class Graph:
    """inputs -> eqns in order -> outputs, with state pairs (in, out) and validation outputs.

    `tree` is how the traced function nested its outputs (see `ir.tree`); it has no meaning here.
    """

    inputs: tuple[Input, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Var, ...]
    states: tuple[tuple[Var, Var], ...] = ()
    validations: tuple[Var, ...] = ()
    tree: object = field(default=None, compare=False)

    def __str__(self) -> str:
        from poot.ir.text import show

        return show(self)
