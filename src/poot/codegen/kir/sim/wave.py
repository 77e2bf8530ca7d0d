"""The lanes that run together: their registers, which of them are active, and where they stand in
the grid.

A scalar register is an array over the lanes, or a numpy scalar where all lanes hold the same; a
vector or frag has its elements on the first axis: [elements, lanes], or [elements, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.text import show_stmt
from poot.errors import SimulationError

Value = npt.NDArray[np.generic]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Coord = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the lanes of a wave are. `lane` counts in the workgroup, `slot` says which of the
    groups that run together the lane is of; `threads` and `width` are the workgroup's and the
    subgroup's lanes.
    """

    groups: tuple[Coord, ...]
    grid: Coord
    lane: Ints
    slot: Ints
    threads: int
    width: int


class Memory(Protocol):
    """What a wave's loads and stores go to."""

    def load(self, wave: Wave, index: Value, count: int, ins: Ins) -> Value: ...

    def prefetch(self, wave: Wave, index: Value, ins: Ins) -> None: ...

    def store(self, wave: Wave, index: Value, value: Value, count: int, ins: Ins) -> None: ...

    def atomic(self, wave: Wave, index: Value, value: Value, ins: Ins) -> Value: ...


class Wave:
    """Lanes in lockstep. `mask` is None while all are active. `epoch` counts the barriers that each
    lane has passed, `fenced_epoch` those of them that a fence for other readers of buffers came
    before.
    """

    def __init__(
        self,
        place: Place,
        registers: list[Value],
        memory: Mapping[str, Memory],
        imms: Mapping[str, Value],
    ) -> None:
        self.place = place
        self.memory = memory
        self.imms = imms
        self.regs = registers
        self.lanes = len(place.lane)
        self.number = int(place.lane[0]) // place.width
        self.mask: Bools | None = None
        self.epoch: Ints = np.zeros((), np.int64)
        self.fenced_epoch: Ints = np.zeros((), np.int64)
        self.is_fenced = False
        self.order = np.arange(self.lanes)

    def active(self) -> int:
        """How many lanes are active."""
        return self.lanes if self.mask is None else int(self.mask.sum())

    def spread(self, value: Value) -> Value:
        """A scalar register as one value for each lane."""
        return np.broadcast_to(value, (self.lanes,)) if value.ndim == 0 else value

    def fail(self, kind: str, what: str, ins: Ins, bad: Bools | None = None) -> NoReturn:
        """Raises SimulationError: what happened, the instruction, and the first bad lane with its
        group.
        """
        at = (
            0
            if bad is None or bad.ndim == 0
            else int(np.argmax(bad.reshape(-1, self.lanes).any(axis=0)))
        )
        if bad is None or bad.ndim == 0:
            at = 0 if self.mask is None else int(np.argmax(self.mask))
        group = self.place.groups[int(self.place.slot[at])]
        where = f"lane {int(self.place.lane[at])} of group {group}"
        raise SimulationError(f"{kind}: {what}: {where}, at `{show_stmt(ins)}`", kind=kind)

    def refuse(self, bad: Bools, kind: str, what: str, ins: Ins) -> None:
        """Fails where `bad` holds in an active lane."""
        if not bad.any():
            return
        if self.mask is not None and bad.ndim:
            bad = bad & self.mask
            if not bad.any():
                return
        self.fail(kind, what, ins, bad)
