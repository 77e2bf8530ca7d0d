"""The waves of one workgroup, what they meet at, and the loop that runs them in turn until none
can go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from poot.codegen.kir.nodes import Blob, Ins, Roles
from poot.codegen.kir.sim.clocks import Clocks, ClockTracker
from poot.codegen.kir.sim.memory import Space
from poot.codegen.kir.sim.program import Wait
from poot.codegen.kir.sim.wave import Ints, Memory, Place, Value, Wave
from poot.errors import SimulationError

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What a backend puts into a tensor map's blob: a buffer and a tensor in it, extents and
    strides in elements, innermost axis first; the innermost stride is 1. The box and the swizzle
    are the kernel's.
    """

    buffer: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]


class Meeting:
    """One barrier: the lanes that came this round, and what each finished round lets others see."""

    def __init__(self, lanes: int, what: str) -> None:
        self.lanes = lanes
        self.what = what
        self.came = 0
        self.round = 0
        self.waves: list[Warp] = []
        self._snapshot: Ints | None = None
        self.done: dict[int, Ints] = {}

    def arrive(self, warp: Warp, ins: Ins) -> int:
        """Counts the wave's lanes; the round it came in."""
        own = warp.release()
        self._snapshot = own if self._snapshot is None else np.maximum(self._snapshot, own)
        self.came += warp.lanes
        self.waves.append(warp)
        if self.came > self.lanes:
            warp.fail(
                "undefined", f"{self.came} lanes at {self.what}, which is for {self.lanes}", ins
            )
        now = self.round
        if self.came == self.lanes:
            self.done[now] = self._snapshot
            self._pass_fences()
            self.came, self.round, self._snapshot, self.waves = 0, now + 1, None, []
        return now

    def _pass_fences(self) -> None:
        if any(w.is_fenced for w in self.waves):
            epoch = np.maximum.reduce([w.fenced_epoch for w in self.waves]) + 1
            for warp in self.waves:
                warp.fenced_epoch, warp.is_fenced = epoch, False


class Warp(Wave):
    """A subgroup of a workgroup, run as a coroutine."""

    def __init__(
        self, team: Team, place: Place, registers: list[Value], imms: Mapping[str, Value]
    ) -> None:
        memory: dict[str, Memory] = dict(team.spaces)
        super().__init__(place, registers, memory, imms)
        self.team = team

    def active_lanes(self) -> Ints:
        """The active lanes, counted in the wave."""
        return self.order if self.mask is None else np.flatnonzero(self.mask)

    def release(self) -> Ints:
        """What the active lanes did, for whoever they let go on."""
        return self.team.clocks.release(self.number, self.place.lane[self.active_lanes()])

    def acquire(self, snapshot: Ints) -> None:
        self.team.clocks.acquire(self.number, snapshot)

    def whole(self, ins: Ins) -> None:
        """Fails unless every lane is active."""
        if self.mask is not None:
            self.fail("divergent-barrier", "part of a subgroup reaches it", ins)


class Team:
    """One workgroup: its memory, clocks, barriers and waves."""

    def __init__(
        self,
        spaces: Mapping[str, Space],
        clocks: Clocks,
        blobs: Mapping[str, tuple[Blob, TensorMap]],
        roles: Sequence[Roles],
        mbars: Mapping[str, int],
    ) -> None:
        self.spaces = spaces
        self.clocks = clocks
        self.blobs = blobs
        self.warps: list[Warp] = []
        self.objects: dict[str, object] = {}
        self.mbars = mbars
        self._roles = roles
        self._meetings: dict[Key, Meeting] = {}

    def tracker(self, name: str) -> ClockTracker:
        """The tracker of a workgroup array."""
        tracker = self.spaces[name].tracker
        assert isinstance(tracker, ClockTracker), name
        return tracker

    def trackers(self) -> Iterator[ClockTracker]:
        for space in self.spaces.values():
            if isinstance(space.tracker, ClockTracker):
                yield space.tracker

    def meeting(self, key: Key, lanes: int) -> Meeting:
        """The barrier of that key, for so many lanes."""
        if key not in self._meetings:
            self._meetings[key] = Meeting(lanes, f"barrier {' '.join(map(str, key))}")
        return self._meetings[key]

    def group_lanes(self) -> int:
        return sum(w.lanes for w in self.warps)

    def role_of(self, warp: Warp) -> tuple[Key, int]:
        """The key and lanes of the role that holds a wave; the whole group where none does."""
        for roles in self._roles:
            for role in roles.roles:
                if role.first <= warp.number < role.first + role.count:
                    members = range(role.first, role.first + role.count)
                    lanes = sum(w.lanes for w in self.warps if w.number in members)
                    return ("role", role.name, role.first), lanes
        return ("group",), self.group_lanes()


def run_in_turn(coroutines: Sequence[Iterator[Wait]], names: Sequence[str]) -> None:
    """Runs each as far as it goes, round after round. Raises SimulationError when all that are left
    wait in vain.
    """
    waits: dict[int, Wait | None] = dict.fromkeys(range(len(coroutines)))
    while waits:
        moved = False
        for at in list(waits):
            wait = waits[at]
            if wait is not None and wait.ready is not None and not wait.ready():
                continue
            moved = True
            following = next(coroutines[at], None)
            if following is None:
                del waits[at]
            else:
                waits[at] = following
        if not moved:
            stuck = [f"{names[at]} waits for {w.what}" for at, w in waits.items() if w is not None]
            raise SimulationError(f"deadlock: {'; '.join(stuck)}", kind="deadlock")
