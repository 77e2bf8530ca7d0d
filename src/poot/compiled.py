"""What a compile makes, whole: graphs before and after the passes, the plan, lowered steps and
their code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from poot.codegen.code import Code
from poot.codegen.gen.lowered import Lowered
from poot.ir.graph import Graph
from poot.passes.pipeline import PassReport
from poot.planner.plan import EntryPlan, Plan
from poot.planner.request import Request


@dataclass(frozen=True, slots=True)
class CompiledEntry:
    """One entry point: the traced graph, the graph after the passes, what each pass did, and its
    plan."""

    source: Graph
    final: Graph
    reports: tuple[PassReport, ...]
    plan: EntryPlan


@dataclass(frozen=True, slots=True)
class Whole:
    """All stages of one compile. `call_keys` has the key of each call's code, in the order of the
    request's calls; each key is that of one of `codes`."""

    entries: Mapping[str, CompiledEntry]
    plan: Plan
    lowered: Mapping[Request, Lowered]
    call_keys: Mapping[Request, tuple[str, ...]]
    codes: tuple[Code, ...]
