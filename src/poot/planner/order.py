"""The order of an entry point's regions: what reads a State's old value before what updates it in
place, and the guards' cones before all that need not wait for them.

Three phases. `early`: what the witnesses need that no State write stands before. `late`: what the
other witnesses need, State writes among it. `rest`: everything else. Within a phase regions keep
their order, as far as the old values allow.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from poot.errors import DonationError
from poot.ir.graph import Eqn, Var
from poot.planner.steps import updates_of


@dataclass(frozen=True, slots=True)
class Phases:
    """Regions in the order in which they run."""

    early: tuple[Eqn, ...]
    late: tuple[Eqn, ...]
    rest: tuple[Eqn, ...]
    late_witnesses: frozenset[int]  # ids of the witnesses that wait for a State write

    @property
    def all(self) -> tuple[Eqn, ...]:
        return (*self.early, *self.late, *self.rest)


def _waits(regions: list[Eqn]) -> list[set[int]]:
    """For each region, which others have to run before it: makers of what it reads, and readers of
    what it writes over. Raises DonationError where a region reads what it writes over."""
    makers = {v.id: n for n, region in enumerate(regions) for v in region.outs}
    readers: dict[int, list[int]] = {}
    for n, region in enumerate(regions):
        for v in dict.fromkeys(region.ins):
            readers.setdefault(v.id, []).append(n)
    waits: list[set[int]] = []
    for n, region in enumerate(regions):
        before = {makers[v.id] for v in region.ins if v.id in makers}
        for _, at in updates_of(region):
            x = region.ins[at]
            if region.ins.count(x) > 1:
                raise _donation(x, region, region)
            before.update(m for m in readers[x.id] if m != n)
        waits.append(before)
    return waits


def _donation(x: Var, writer: Eqn, reader: Eqn) -> DonationError:
    who = f"the step at {reader.loc}" if reader.loc else f"the step of {reader.outs[0]}"
    return DonationError(
        f"State {x} {x.type} is updated in place, but {who} reads its old value later; read it "
        "before the update, or keep a copy",
        writer.loc,
    )


def _sorted(regions: list[Eqn], waits: list[set[int]]) -> list[int]:
    """Positions, each after what it waits for, in their old order as far as may be."""
    left = [len(w) for w in waits]
    followers: list[list[int]] = [[] for _ in regions]
    for n, before in enumerate(waits):
        for m in before:
            followers[m].append(n)
    ready = [n for n, count in enumerate(left) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for m in followers[n]:
            left[m] -= 1
            if left[m] == 0:
                heapq.heappush(ready, m)
    if len(order) < len(regions):
        raise _circle(regions, waits, {n for n, count in enumerate(left) if count})
    return order


def _circle(regions: list[Eqn], waits: list[set[int]], stuck: set[int]) -> DonationError:
    """The error of a writer whose own result leads to a reader of the value it writes over."""
    makers = {v.id: n for n, region in enumerate(regions) for v in region.outs}
    for n in sorted(stuck):
        for _, at in updates_of(regions[n]):
            x = regions[n].ins[at]
            for m in sorted(stuck & waits[n]):
                if x in regions[m].ins and makers.get(x.id) != m and _leads(waits, n, m):
                    return _donation(x, regions[n], regions[m])
    raise AssertionError("regions wait for one another, and no State is written over")


def _leads(waits: list[set[int]], start: int, end: int) -> bool:
    """Whether `end` waits for `start`, through others or not."""
    seen: set[int] = set()
    stack = [end]
    while stack:
        n = stack.pop()
        if n == start:
            return True
        if n not in seen:
            seen.add(n)
            stack.extend(waits[n])
    return False


def _cone(waits: list[set[int]], roots: list[int], known: set[int]) -> set[int]:
    """The roots and all they wait for, without what is known."""
    found: set[int] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n not in found and n not in known:
            found.add(n)
            stack.extend(waits[n])
    return found


def phases_of(regions: list[Eqn], witnesses: tuple[Var, ...], writers: set[int]) -> Phases:
    """The regions by phase. `writers` holds the ids of region outs that write State in place.

    Raises DonationError, naming the reader, where an old value is needed after it is written
    over."""
    waits = _waits(regions)
    order = _sorted(regions, waits)
    writes = [any(v.id in writers for v in region.outs) for region in regions]
    follows: list[bool] = list(writes)
    for n in order:
        follows[n] = writes[n] or any(follows[m] for m in waits[n])
    makers = {v.id: n for n, region in enumerate(regions) for v in region.outs}
    roots = {v.id: makers[v.id] for v in witnesses if v.id in makers}
    early = _cone(waits, [n for n in roots.values() if not follows[n]], set())
    late = _cone(waits, [n for n in roots.values() if follows[n]], early)
    return Phases(
        tuple(regions[n] for n in order if n in early),
        tuple(regions[n] for n in order if n in late),
        tuple(regions[n] for n in order if n not in early and n not in late),
        frozenset(id for id, n in roots.items() if follows[n]),
    )
