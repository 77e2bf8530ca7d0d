"""A compiled program as data: graphs before and after the passes, the plan, lowered steps and their
code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from poot.backends.base import Code, Device
from poot.codegen.gen.lowered import Lowered
from poot.ir.graph import Graph
from poot.limits import DeviceLimits
from poot.passes.pipeline import PassReport
from poot.planner.plan import EntryPlan, Plan
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
class CompiledEntry:
    """One entry point: the traced graph, the graph after the passes, what each pass did, and its
    plan."""

    source: Graph
    final: Graph
    reports: tuple[PassReport, ...]
    plan: EntryPlan


@dataclass(frozen=True, slots=True)
class Compiled:
    """Entry points compiled for one device or profile. `device` is None where it was compiled from
    a profile."""

    entries: Mapping[str, CompiledEntry]
    plan: Plan
    lowered: Mapping[Request, Lowered]
    call_keys: Mapping[Request, tuple[str, ...]]
    codes: tuple[Code, ...]
    device: Device | None = field(compare=False)
    target: str
    seconds: Mapping[str, float] = field(compare=False)

    @property
    def limits(self) -> DeviceLimits:
        return self.plan.limits

    @property
    def key(self) -> str:
        return self.plan.key

    def memory(self) -> MemoryReport:
        """What a session will take, and whether it fits."""
        return MemoryReport(self.plan.spaces, self.plan.limits.memory_nbytes)

    def kernel_index(self) -> dict[str, int]:
        """Code key -> its index in `codes`."""
        return {c.key: n for n, c in enumerate(self.codes)}
