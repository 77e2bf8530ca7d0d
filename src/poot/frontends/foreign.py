"""A program as a front end has read it: calls of ops in order, in the foreign language's own names.

A front end makes a `Foreign` and has a table of rows, one for each op that it knows; what is in
between (`lower.py`) is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from poot.ir.graph import Storage, TensorType
from poot.ops.array import Array


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the foreign program, by its name there."""

    id: str


@dataclass(frozen=True, slots=True)
class Given:
    """An input: the value that it is, the name and storage that it gets, and the array that it came
    with (of a Weight; of a State what it starts as, None for zeros). One that `is_wide` holds
    integers of 64 bits there."""

    ref: Ref
    name: str
    type: TensorType
    storage: Storage
    array: np.ndarray | None = None
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """results = op(*args, **options) at the line `loc`. Arguments may hold Refs, in tuples and
    lists too. `problem` says why the reader already knows that it can't be done, or is empty.

    `wide` are the results that are integers of 64 bits in the foreign program: their row's
    arithmetic, which is of 32, has to be proved to be the same. `known` gives each result exactly,
    where that depends on nothing that is given."""

    op: str
    args: tuple[object, ...]
    results: tuple[Ref, ...]
    types: tuple[TensorType, ...]
    loc: str = ""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    problem: str = ""
    wide: frozenset[Ref] = frozenset()
    known: Callable[[], tuple[np.ndarray, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Foreign:
    """The whole program. `outputs` nests Refs as the program nests its results; `states` pairs the
    name of a State with the value that it becomes. `limits` are (lo, hi), hi excluded, of integers
    by their Refs' ids: a slot gets them as its range, a State is guarded by them."""

    givens: tuple[Given, ...]
    calls: tuple[Call, ...]
    outputs: object
    states: tuple[tuple[str, Ref], ...] = ()
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


@dataclass(frozen=True, slots=True)
class Site:
    """Where a row is called: the types that its results have in the foreign program."""

    types: tuple[TensorType, ...]

    @property
    def type(self) -> TensorType:
        """The type of the only result."""
        (only,) = self.types
        return only

    @property
    def dtype(self) -> str:
        return self.types[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.types[0].shape


# An op as a composition of `poot.ops`: row(site, *args, **options).
Row = Callable[..., Array | tuple[Array, ...]]
