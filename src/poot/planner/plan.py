"""The plan: where every value lies and what runs in which order. Data only; `check.py` shares
nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import TensorType
from poot.limits import DeviceLimits
from poot.planner.request import Layout, Request


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes [offset, offset + nbytes) of a space: "arena", "weights", "states", "slots" or
    "consts".

    `name` is the value's: an input's name, or "entry/v12"; two places may overlap in time-shared
    arena bytes."""

    space: str
    offset: int
    nbytes: int
    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """One request at work: its operands' places. A State update's out place is its in place.

    `op` and `loc` are for people: what the step is, and the user's line; `reason` why its schedule
    was chosen."""

    request: Request
    ins: tuple[Place, ...]
    outs: tuple[Place, ...]
    scratch: tuple[Place, ...]
    op: str
    loc: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resident:
    """A Weight, State, Slot or Const on the device: logical type, physical layout, place."""

    name: str
    type: TensorType
    layout: Layout
    place: Place


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """One entry point: steps in order, where its outputs lie at the end, and its witnesses, which
    the first `guards`
    steps make before any State is written."""

    name: str
    steps: tuple[Step, ...]
    outputs: tuple[tuple[TensorType, Place], ...]
    witnesses: tuple[tuple[TensorType, Place], ...] = ()
    guards: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Every entry point over one set of residents and one arena. Space sizes in bytes; `key` names
    the plan."""

    entries: tuple[EntryPlan, ...]
    residents: tuple[Resident, ...]
    spaces: tuple[tuple[str, int], ...]
    limits: DeviceLimits
    key: str
