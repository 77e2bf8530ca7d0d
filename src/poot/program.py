"""A compiled program: what a device replays, and every stage of the compile for who asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from poot.backends.base import Code, Device
from poot.codegen.gen.lowered import Lowered
from poot.compiled import CompiledEntry, Whole
from poot.ir.graph import Graph
from poot.later import Later
from poot.launch_lists import LaunchLists, const_bytes, lists_of
from poot.limits import DeviceLimits
from poot.planner.plan import Plan
from poot.planner.request import Request


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Device memory a session of the program takes, in bytes, by space; `budget` is what the device
    has."""

    spaces: tuple[tuple[str, int], ...]
    budget: int

    @property
    def nbytes(self) -> int:
        return sum(n for _, n in self.spaces)

    @property
    def fits(self) -> bool:
        return self.nbytes <= self.budget

    def __str__(self) -> str:
        rows = [f"{name:<12} {nbytes:>14,} bytes" for name, nbytes in self.spaces]
        verdict = "fits" if self.fits else "does not fit"
        return "\n".join(
            [*rows, f"{'in all':<12} {self.nbytes:>14,} bytes; {verdict} in {self.budget:,}"]
        )


class Bindable(Protocol):
    """What a session's program answers, be it compiled here or loaded from a bundle."""

    @property
    def target(self) -> str: ...
    @property
    def limits(self) -> DeviceLimits: ...
    @property
    def key(self) -> str: ...
    @property
    def device(self) -> Device | None: ...
    def memory(self) -> MemoryReport: ...
    def explain(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Compiled:
    """Entry points compiled for one device or profile. `device` is None where it was compiled from
    a profile.

    `sources` are the traced graphs. `kept` is what an earlier run's compile of them left in the
    disk cache, but for the Consts that the sources hold; None where this one compiled. `whole` is
    every stage: what only it has (plan, lowered steps, graphs after the passes) is made anew when
    it is first asked for, where the program was kept."""

    sources: Mapping[str, Graph]
    codes: tuple[Code, ...]
    limits: DeviceLimits
    key: str
    device: Device | None = field(compare=False)
    target: str
    seconds: Mapping[str, float] = field(compare=False)
    whole: Later[Whole] = field(compare=False, repr=False)
    kept: LaunchLists | None = field(compare=False, repr=False, default=None)

    @property
    def entries(self) -> Mapping[str, CompiledEntry]:
        return self.whole().entries

    @property
    def plan(self) -> Plan:
        return self.whole().plan

    @property
    def lowered(self) -> Mapping[Request, Lowered]:
        return self.whole().lowered

    @property
    def call_keys(self) -> Mapping[Request, tuple[str, ...]]:
        return self.whole().call_keys

    @property
    def spaces(self) -> tuple[tuple[str, int], ...]:
        """Buffers of a session by name, with their bytes."""
        return self.plan.spaces if self.kept is None else self.kept.spaces

    def lists(self) -> LaunchLists:
        """What a device replays."""
        if self.kept is None:
            return lists_of(self.whole())
        consts = const_bytes(self.sources.values())
        there = {r.name for r in self.kept.residents}
        mine = {name: data for name, data in consts.items() if name in there}
        return replace(self.kept, consts={**mine, **self.kept.consts})

    def memory(self) -> MemoryReport:
        """What a session will take, and whether it fits."""
        return MemoryReport(self.spaces, self.limits.memory_nbytes)

    def kernel_index(self) -> dict[str, int]:
        """Code key -> its index in `codes`."""
        return {c.key: n for n, c in enumerate(self.codes)}
