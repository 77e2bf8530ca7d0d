"""Finds two lanes that touch one element, one of them writing, with nothing between that orders
them.

Workgroup memory: a barrier of the group orders what came before it. Buffers: lanes of different
groups are never ordered, lanes of one group by a fence and a barrier. Used where only whole groups
meet; `clocks` is for the rest.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.wave import Bools, Ints, Wave


class Tracker(Protocol):
    """Is told of each access: the elements, flat, and which lane of the wave (0 ..) touches each;
    active lanes only. `is_relaxed` ones may meet each other.
    """

    def read(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None: ...

    def write(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None: ...


def _refuse(wave: Wave, bad: Bools, at: Ints, who: Ints, other: str, name: str, ins: Ins) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        lanes = np.zeros(wave.lanes, np.bool_)
        lanes[who[first]] = True
        what = f"another lane {other} element {int(at[first])} of {name} with no barrier between"
        wave.fail("race", what, ins, lanes)


class GroupTracker:
    """Workgroup memory of groups that run together: a stamp an element for its last writer and its
    last reader.

    A stamp is epoch * (lanes + 1) + lane; the lane number `lanes` stands for several readers.
    """

    def __init__(self, name: str, elems: int, lanes: int) -> None:
        self._name = name
        self._unit = lanes + 1
        self._writer = np.full(elems, -1, np.int64)
        self._reader = np.full(elems, -1, np.int64)

    def _stamps(self, wave: Wave, who: Ints) -> tuple[Ints, Ints]:
        """The least stamp of each lane's epoch, and each lane's own."""
        epoch = wave.epoch if wave.epoch.ndim == 0 else wave.epoch[who]
        base = np.multiply(np.add(epoch, 1), self._unit)
        return np.broadcast_to(base, who.shape), np.add(base, who)

    def read(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None:
        base, own = self._stamps(wave, who)
        last = self._writer[at]
        _refuse(wave, (last >= base) & (last != own), at, who, "wrote", self._name, ins)
        seen = self._reader[at]
        several = base + (self._unit - 1)
        self._reader[at] = np.where((seen < base) | (seen == own), own, several)
        lost = self._reader[at] != own
        self._reader[at[lost]] = several[lost]

    def write(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None:
        base, own = self._stamps(wave, who)
        last, seen = self._writer[at], self._reader[at]
        _refuse(wave, (last >= base) & (last != own), at, who, "wrote", self._name, ins)
        _refuse(wave, (seen >= base) & (seen != own), at, who, "read", self._name, ins)
        self._writer[at] = own
        _refuse(wave, self._writer[at] != own, at, who, "writes", self._name, ins)


_NOBODY, _SEVERAL = -1, -2


class LaunchTracker:
    """A buffer over a whole launch: group, epoch, lane and kind of each element's last writer and
    last reader.

    Epochs are the waves' `fenced_epoch`.
    """

    def __init__(self, name: str, elems: int) -> None:
        self._name = name
        self._wrote = np.full((3, elems), _NOBODY, np.int64)  # group, epoch, lane
        self._read = np.full((3, elems), _NOBODY, np.int64)
        self._relaxed = np.zeros((2, elems), np.bool_)  # last writer's kind, last reader's

    def _own(self, wave: Wave, who: Ints) -> Ints:
        place = wave.place
        x, y = place.grid[0], place.grid[1]
        number = np.asarray([g[0] + x * (g[1] + y * g[2]) for g in place.groups], np.int64)
        epoch = np.broadcast_to(wave.fenced_epoch, (wave.lanes,))
        return np.stack([number[place.slot[who]], epoch[who], place.lane[who]])

    def _unordered(self, last: Ints, own: Ints) -> Bools:
        """Where the last access is neither this lane's nor before a barrier of its group."""
        is_other = (last[0] != own[0]) | (last[2] != own[2])
        is_before = (last[0] == own[0]) & (last[1] < own[1])
        return (last[0] != _NOBODY) & is_other & np.logical_not(is_before)

    def read(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None:
        own = self._own(wave, who)
        bad = self._unordered(self._wrote[:, at], own) & ~(self._relaxed[0, at] & is_relaxed)
        _refuse(wave, bad, at, who, "wrote", self._name, ins)
        seen = self._read[:, at]
        apart = (seen[0] != _NOBODY) & (seen[0] != own[0])
        beside = (seen[0] == own[0]) & (seen[1] == own[1]) & (seen[2] != own[2])
        own = np.where(beside, np.stack([own[0], own[1], np.full_like(own[2], _SEVERAL)]), own)
        own = np.where(apart, _SEVERAL, own)
        self._read[:, at] = own
        both = (self._read[:, at] != own).any(axis=0)
        self._read[:, at[both]] = _SEVERAL
        self._relaxed[1, at] = is_relaxed

    def write(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None:
        own = self._own(wave, who)
        for last, other, kind in ((self._wrote, "wrote", 0), (self._read, "read", 1)):
            bad = self._unordered(last[:, at], own) & ~(self._relaxed[kind, at] & is_relaxed)
            _refuse(wave, bad, at, who, other, self._name, ins)
        self._wrote[:, at] = own
        twice = (self._wrote[:, at] != own).any(axis=0)
        _refuse(wave, twice & (not is_relaxed), at, who, "writes", self._name, ins)
        self._relaxed[0, at] = is_relaxed
