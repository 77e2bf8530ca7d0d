"""The plan: where every value lies and what runs in which order. Data only; `check.py` shares
nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from poot.ir.graph import Const, Input, TensorType
from poot.limits import DeviceLimits
from poot.planner.request import Layout, Request


def const_name(i: Input) -> str:
    """A Const's name in a plan: by content, so that entry points share it."""
    assert isinstance(i.storage, Const)
    return "const:" + hashlib.sha256(f"{i.var.type}".encode() + i.storage.data).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes [offset, offset + nbytes) of a space: "arena", "results", "weights", "states", "slots",
    "consts", or "rest": scratch whose bytes are 0xff between launches, filled at the bind.

    `name` is the value's: an input's name, or "entry/v12". Places overlap where values share bytes
    in turn: in the arena, and where an update is done in place."""

    space: str
    offset: int
    nbytes: int
    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """One request at work: its operands' places. A State update's out lies where its in lies.

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
class Undo:
    """Step `save` keeps the rows that out `out` of step `write` replaces, and where they lie; step
    `restore` puts them back where the step failed. Numbers of steps."""

    save: int
    write: int
    out: int
    restore: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The words that decide about State, by their values' names: `early` of the guards that no
    State write stands before, `final` of all guards (the same, where there are no others), and
    `failed`, which is true where `final` is not ("" where nothing is undone)."""

    early: str
    final: str
    failed: str = ""
    undo: tuple[Undo, ...] = ()


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """One entry point: steps in order, where its outputs lie at the end, and the records of its
    guards. `late` says of each record whether a State write of the same step stands before it.

    Outputs and records lie in [0, results_nbytes) of "results", the records of it and of its feed
    in [0, records_nbytes). `feed` runs first where a slot came from the device: its outputs are a
    record for each slot of `fed`, and it leaves the slots clamped into their ranges."""

    name: str
    steps: tuple[Step, ...]
    outputs: tuple[tuple[TensorType, Place], ...]
    records: tuple[Place, ...] = ()
    late: tuple[bool, ...] = ()
    verdict: Verdict | None = None
    results_nbytes: int = 0
    records_nbytes: int = 0
    feed: EntryPlan | None = None
    fed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Every entry point over one set of residents and one arena. Space sizes in bytes; `key` names
    the plan."""

    entries: tuple[EntryPlan, ...]
    residents: tuple[Resident, ...]
    spaces: tuple[tuple[str, int], ...]
    limits: DeviceLimits
    key: str

    @property
    def lists(self) -> tuple[EntryPlan, ...]:
        """Everything that is launched: the entry points and their feeds."""
        feeds = tuple(e.feed for e in self.entries if e.feed is not None)
        return (*self.entries, *feeds)
