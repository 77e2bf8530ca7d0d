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
    with (of a Weight; of a State what it starts as, None for zeros)."""

    ref: Ref
    name: str
    type: TensorType
    storage: Storage
    array: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """results = op(*args, **options) at the line `loc`. Arguments may hold Refs, in tuples and
    lists too. `problem` says why the reader already knows that it can't be done, or is empty."""

    op: str
    args: tuple[object, ...]
    results: tuple[Ref, ...]
    types: tuple[TensorType, ...]
    loc: str = ""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The whole program. `outputs` nests Refs as the program nests its results; `states` pairs the
    name of a State with the value that it becomes."""

    givens: tuple[Given, ...]
    calls: tuple[Call, ...]
    outputs: object
    states: tuple[tuple[str, Ref], ...] = ()


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
