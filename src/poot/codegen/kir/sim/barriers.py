"""Barriers between waves: of the group, a role, a subgroup, named ones, and mbarriers with phases
and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import numpy as np

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.rules import named_scope
from poot.codegen.kir.sim.program import Maker, Step, Wait, WaitingMaker, WaitingStep
from poot.codegen.kir.sim.team import Meeting, Warp
from poot.codegen.kir.sim.wave import Bools, Ints, Value, Wave

Slots = tuple[int, ...]


def warp_of(wave: Wave) -> Warp:
    assert isinstance(wave, Warp)
    return wave


def uniform_int(warp: Warp, value: Value, ins: Ins) -> int:
    """The one number that every active lane holds."""
    found = np.unique(np.asarray(warp.spread(value))[warp.active_lanes()])
    if len(found) != 1:
        warp.fail("undefined", "lanes of a subgroup name different places", ins)
    return int(found[0])


def _meet(warp: Warp, meeting: Meeting, ins: Ins) -> Iterator[Wait]:
    came = meeting.arrive(warp, ins)
    yield Wait(lambda: came in meeting.done, meeting.what)
    warp.acquire(meeting.done[came])


def _make_barrier(ins: Ins, dsts: Slots, args: Slots) -> WaitingStep:
    scope = ins.attr("scope")
    named = named_scope(scope)

    def run(wave: Wave) -> Iterator[Wait]:
        warp = warp_of(wave)
        warp.whole(ins)
        team = warp.team
        if scope == "subgroup":
            team.clocks.join(warp.number, warp.place.lane)
            return
        if named is not None:
            meeting = team.meeting(("named", named[0]), named[1])
        elif scope == "role":
            meeting = team.meeting(*team.role_of(warp))
        else:
            meeting = team.meeting(("group",), team.group_lanes())
        yield from _meet(warp, meeting, ins)

    return run


def _make_named(ins: Ins, dsts: Slots, args: Slots) -> WaitingStep:
    threads = cast("int", ins.attr("threads"))  # verified

    def run(wave: Wave) -> Iterator[Wait]:
        warp = warp_of(wave)
        warp.whole(ins)
        number = uniform_int(warp, warp.regs[args[0]], ins)
        meeting = warp.team.meeting(("named", number), threads)
        if meeting.lanes != threads:
            what = f"named barrier {number} for {threads} lanes and for {meeting.lanes}"
            warp.fail("undefined", what, ins)
        if ins.op == "barrier_sync":
            yield from _meet(warp, meeting, ins)
        else:
            meeting.arrive(warp, ins)

    return run


class Mbarrier:
    """A barrier with phases. `pending` arrivals and `bytes` are missing from this phase; `copies`
    land bytes when asked to, and are asked only when nothing else is missing.
    """

    def __init__(self, count: int, threads: int, thread: int, clock: int) -> None:
        self.count = count
        self.pending = count
        self.bytes = 0
        self.phase = 0
        self.copies: list[Callable[[], tuple[int, Ints]]] = []
        self._gathered = np.zeros(threads, np.int64)
        self.released = np.zeros(threads, np.int64)
        self.thread = thread
        self.clock = clock

    def gather(self, snapshot: Ints) -> None:
        np.maximum(self._gathered, snapshot, out=self._gathered)

    def settle(self, may_land: bool) -> None:
        """Completes the phase if nothing is missing."""
        if self.pending == 0 and may_land:
            for land in self.copies:
                nbytes, snapshot = land()
                self.bytes -= nbytes
                self.gather(snapshot)
            self.copies = []
        if self.pending == 0 and self.bytes == 0 and not self.copies:
            self.phase += 1
            self.pending = self.count
            self.released = np.maximum(self.released, self._gathered)
            self._gathered = np.zeros_like(self._gathered)

    def is_complete(self, parity: int) -> bool:
        return self.phase & 1 != parity


def _key(mem: str, index: int) -> str:
    return f"{mem}[{index}]"


def mbarrier(warp: Warp, mem: str, index: int, ins: Ins) -> Mbarrier:
    """The barrier at an index, which must have been initialised before what the wave does now."""
    found = warp.team.objects.get(_key(mem, index))
    if not isinstance(found, Mbarrier):
        warp.fail("uninitialised", f"mbarrier {_key(mem, index)} before its init", ins)
    seen = warp.team.clocks.seen[warp.number]
    is_own = found.thread in warp.place.lane
    if not is_own and found.clock > seen[found.thread]:
        warp.fail(
            "race", f"with no barrier between, mbarrier {_key(mem, index)} was initialised", ins
        )
    return found


def _indices(warp: Warp, value: Value) -> list[tuple[int, int]]:
    """Each active lane with its index."""
    whole = np.asarray(warp.spread(value), np.int64)
    return [(int(lane), int(whole[lane])) for lane in warp.active_lanes()]


def _make_init(ins: Ins, dsts: Slots, args: Slots) -> Step:
    mem, count = str(ins.attr("mem")), cast("int", ins.attr("count"))  # verified

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        clocks = warp.team.clocks
        for lane, index in _indices(warp, warp.regs[args[0]]):
            if not 0 <= index < warp.team.mbars[mem]:
                warp.fail("out-of-bounds", f"mbarrier {_key(mem, index)}", ins)
            if _key(mem, index) in warp.team.objects:
                warp.fail("undefined", f"a second init of mbarrier {_key(mem, index)}", ins)
            thread, now = int(warp.place.lane[lane]), int(clocks.now[warp.number])
            warp.team.objects[_key(mem, index)] = Mbarrier(count, clocks.seen.shape[1], thread, now)

    return run


def _make_arrive(ins: Ins, dsts: Slots, args: Slots) -> Step:
    mem, expect = str(ins.attr("mem")), cast("int | None", ins.attr("expect"))  # verified

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        places = _indices(warp, warp.regs[args[0]])
        snapshot = warp.release()
        for _, index in places:
            bar = mbarrier(warp, mem, index, ins)
            if bar.pending == 0:
                what = f"more than {bar.count} arrivals on mbarrier {_key(mem, index)}"
                warp.fail("undefined", what, ins)
            bar.bytes += expect or 0
            bar.pending -= 1
            bar.gather(snapshot)
            bar.settle(may_land=False)

    return run


def _make_wait(ins: Ins, dsts: Slots, args: Slots) -> WaitingStep:
    mem = str(ins.attr("mem"))

    def run(wave: Wave) -> Iterator[Wait]:
        warp = warp_of(wave)
        parities = np.asarray(warp.spread(warp.regs[args[1]]))
        places = _indices(warp, warp.regs[args[0]])
        for index, parity in dict.fromkeys((i, int(parities[lane])) for lane, i in places):
            bar = mbarrier(warp, mem, index, ins)

            def ready(bar: Mbarrier = bar, parity: int = parity) -> bool:
                if not bar.is_complete(parity):
                    bar.settle(may_land=True)
                return bar.is_complete(parity)

            if not ready():
                missing = f"{bar.pending} arrivals and {bar.bytes} bytes missing"
                yield Wait(ready, f"mbarrier {_key(mem, index)}, parity {parity}: {missing}")
            warp.acquire(bar.released)

    return run


def _make_elect(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        chosen: Bools = np.zeros(wave.lanes, np.bool_)
        chosen[warp_of(wave).active_lanes()[0]] = True
        wave.regs[dsts[0]] = chosen

    return run


def _make_nothing(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        return

    return run


def _make_fence(ins: Ins, dsts: Slots, args: Slots) -> Step:
    is_async = ins.attr("scope") == "async"

    def run(wave: Wave) -> None:
        if not is_async:
            wave.is_fenced = True
            return
        for tracker in warp_of(wave).team.trackers():
            tracker.fence(wave)

    return run


MEETINGS: dict[str, WaitingMaker] = {
    "barrier": _make_barrier,
    "barrier_sync": _make_named,
    "barrier_arrive": _make_named,
    "mbar_wait": _make_wait,
}
BARRIERS: dict[str, Maker] = {
    "mbar_init": _make_init,
    "mbar_arrive": _make_arrive,
    "elect": _make_elect,
    "grid_wait": _make_nothing,
    "grid_trigger": _make_nothing,
    "fence": _make_fence,
}
