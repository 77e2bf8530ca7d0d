"""A request: everything a generator needs to write one step's kernels, and nothing else.

The kernel cache is keyed by it, so it holds no names, no source lines and no layer number. Equal
layers make equal
requests, and share kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Layout:
    """How an operand lies in memory: "row_major", or a packing that `planner/layouts.py` has a row
    for."""

    kind: str = "row_major"
    params: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The loops chosen: a name of the schedule tables and its numbers, e.g. ("streaming",
    (("lanes", 64),))."""

    name: str
    params: tuple[tuple[str, int], ...] = ()

    def get(self, key: str) -> int:
        return dict(self.params)[key]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory a step needs besides its operands, alive while it runs. Not initialised; with
    `at_rest` every byte is 0xff before each launch of the step, and the step leaves it so."""

    dtype: str
    elems: int
    at_rest: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """Under what some outs are stored: `ok` is the position of a bool[] input that no eqn reads;
    where it is false, nothing of the `outs` is stored. All others are stored in any case."""

    ok: int
    outs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """One step: `body` is canonical (renumbered, nameless). Its inputs and outputs are the step's,
    one for one.

    `updates` holds (out, in) pairs done in place: that out's buffer is that in's, and only what
    changes is stored. `condition` is of the steps that write State."""

    body: Graph
    anchor: str
    updates: tuple[tuple[int, int], ...]
    layouts: tuple[Layout, ...]
    schedule: Schedule
    scratch: tuple[Scratch, ...] = ()
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What the schedule tables decide for a step: loops, the scratch they need, why, and a layout
    for each operand."""

    schedule: Schedule
    layouts: tuple[Layout, ...]
    scratch: tuple[Scratch, ...] = ()
    reason: str = ""
