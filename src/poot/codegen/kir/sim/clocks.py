"""What happened before what, between waves that meet at barriers of any kind; and races by it.

Each wave has a clock that ticks when it releases what it did. `seen[wave, thread]` is the last
clock of a thread's own wave up to which that thread's accesses come before what the wave does now.
Lanes of one wave are ordered only by a subgroup's barrier or a wider one. A later read by another
lane of one wave hides an earlier one of that wave, so that a race with only the earlier one may be
missed; nothing that is ordered is reported.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.wave import Bools, Ints, Wave

# Readers of an element in one wave: a lane (0 ..), several lanes, or the whole wave at once (a
# matrix product), whose end each lane knows of.
SEVERAL, TOGETHER = -1, -2


class Clocks:
    """The clocks of one workgroup's waves. Threads are numbered in the workgroup, waves by their
    first lane.
    """

    def __init__(self, threads: int, width: int) -> None:
        self.width = width
        waves = -(-threads // width)
        self.now = np.ones(waves, np.int64)
        self.seen = np.zeros((waves, threads), np.int64)

    def release(self, wave: int, lanes: Ints) -> Ints:
        """What others see who acquire it: what the wave has seen, and all that these threads of it
        did. Ticks.
        """
        snapshot = self.seen[wave].copy()
        snapshot[lanes] = self.now[wave]
        self.now[wave] += 1
        return snapshot

    def acquire(self, wave: int, snapshot: Ints) -> None:
        np.maximum(self.seen[wave], snapshot, out=self.seen[wave])

    def join(self, wave: int, lanes: Ints) -> None:
        """Orders the lanes of one wave among themselves."""
        self.acquire(wave, self.release(wave, lanes))


class ClockTracker:
    """Accesses of one memory by their clocks, and the elements that asynchronous work still reads
    or writes.

    `unfenced[i]` is the wave, counted from 1, whose ordinary store to element i no async fence has
    followed; 0: none.
    """

    def __init__(self, name: str, elems: int, clocks: Clocks) -> None:
        self.name = name
        self.clocks = clocks
        waves = len(clocks.now)
        self._writer = np.full(elems, -1, np.int64)
        self._wrote = np.zeros(elems, np.int64)
        self._reader = np.full((waves, elems), SEVERAL, np.int64)
        self._read = np.zeros((waves, elems), np.int64)
        self._landing = np.zeros(elems, np.int16)
        self._reading = np.zeros(elems, np.int16)
        self.unfenced = np.zeros(elems, np.int16)

    # Order

    def _fail(
        self, wave: Wave, kind: str, what: str, at: Ints, who: Ints, bad: Bools, ins: Ins
    ) -> NoReturn:
        first = int(np.argmax(bad))
        lanes = np.zeros(wave.lanes, np.bool_)
        lanes[who[first]] = True
        wave.fail(kind, f"{what} element {int(at[first])} of {self.name}", ins, lanes)

    def _check(self, wave: Wave, bad: Bools, what: str, at: Ints, who: Ints, ins: Ins) -> None:
        if bad.any():
            self._fail(
                wave, "race", f"with no barrier between, another lane {what}", at, who, bad, ins
            )

    def _check_flight(self, wave: Wave, at: Ints, who: Ints, is_write: bool, ins: Ins) -> None:
        landing = self._landing[at] > 0
        if landing.any():
            self._fail(
                wave, "in-flight", "a copy not waited for still writes", at, who, landing, ins
            )
        reading = self._reading[at] > 0
        if is_write and reading.any():
            self._fail(wave, "in-flight", "work not waited for still reads", at, who, reading, ins)

    def _threads(self, wave: Wave, who: Ints) -> Ints:
        return wave.place.lane[who]

    def _after_writes(self, wave: Wave, at: Ints, threads: Ints) -> Bools:
        """Where the last write does not come before."""
        seen = self.clocks.seen[wave.number]
        writer = self._writer[at]
        return (writer >= 0) & (writer != threads) & (self._wrote[at] > seen[writer])

    def _after_reads(self, wave: Wave, at: Ints, threads: Ints) -> Bools:
        bad: Bools = np.zeros(at.shape, np.bool_)
        seen = self.clocks.seen[wave.number]
        width = self.clocks.width
        for other in range(len(self.clocks.now)):
            first = other * width
            own = seen[first : first + width]
            lane, clock = self._reader[other, at], self._read[other, at]
            one: Ints = seen[np.maximum(lane, 0)]
            most, least = np.int64(own.max()), np.int64(own.min())
            rest: Ints = np.where(lane == TOGETHER, most, least)
            known: Ints = np.where(lane >= 0, one, rest)
            is_same = (lane == threads) | ((lane == TOGETHER) & (other == wave.number))
            bad = bad | ((clock > known) & np.logical_not(is_same))
        return bad

    # Ordinary accesses

    def read(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None:
        threads = self._threads(wave, who)
        self._check_flight(wave, at, who, False, ins)
        self._check(wave, self._after_writes(wave, at, threads), "wrote", at, who, ins)
        now = self.clocks.now[wave.number]
        reader, clock = self._reader[wave.number], self._read[wave.number]
        fresh = clock[at] < now
        reader[at] = np.where(fresh | (reader[at] == threads), threads, SEVERAL)
        clock[at] = now
        reader[at[reader[at] != threads]] = SEVERAL

    def write(self, wave: Wave, at: Ints, who: Ints, ins: Ins, is_relaxed: bool) -> None:
        threads = self._threads(wave, who)
        self._may_write(wave, at, who, ins)
        self._stamp(wave, at, threads)
        self._check(wave, self._writer[at] != threads, "writes", at, who, ins)
        self.unfenced[at] = wave.number + 1

    def _may_write(self, wave: Wave, at: Ints, who: Ints, ins: Ins) -> None:
        threads = self._threads(wave, who)
        self._check_flight(wave, at, who, True, ins)
        self._check(wave, self._after_writes(wave, at, threads), "wrote", at, who, ins)
        self._check(wave, self._after_reads(wave, at, threads), "read", at, who, ins)

    def _stamp(self, wave: Wave, at: Ints, threads: Ints) -> None:
        self._writer[at] = threads
        self._wrote[at] = self.clocks.now[wave.number]

    def fence(self, wave: Wave) -> None:
        """An async fence: the wave's own stores are there for copies and products."""
        self.unfenced[self.unfenced == wave.number + 1] = 0

    # Asynchronous work

    def begin_write(self, wave: Wave, at: Ints, who: Ints, ins: Ins) -> None:
        self._may_write(wave, at, who, ins)
        np.add.at(self._landing, at, 1)
        twice = self._landing[at] > 1
        if twice.any():
            self._fail(wave, "in-flight", "two copies write", at, who, twice, ins)

    def end_write(self, wave: Wave, at: Ints, threads: Ints, is_async_proxy: bool) -> None:
        self._landing[at] = 0
        self._stamp(wave, at, threads)
        self.unfenced[at] = 0 if is_async_proxy else wave.number + 1

    def begin_read(self, wave: Wave, at: Ints, ins: Ins, lane: int | None = None) -> None:
        """Through the matrix unit or the copy engine, by the whole wave or one lane; each once."""
        who = np.full(at.shape, lane or 0, np.int64)
        self._check_flight(wave, at, who, False, ins)
        own = np.full(at.shape, -1, np.int64) if lane is None else self._threads(wave, who)
        self._check(wave, self._after_writes(wave, at, own), "wrote", at, who, ins)
        loose = self.unfenced[at] > 0
        if loose.any():
            self._fail(
                wave,
                "race",
                "an ordinary store that no async fence followed wrote",
                at,
                who,
                loose,
                ins,
            )
        self._reading[at] += 1

    def end_read(self, wave: Wave, at: Ints) -> None:
        self._reading[at] -= 1
        self._reader[wave.number, at] = TOGETHER
        self._read[wave.number, at] = self.clocks.now[wave.number]
