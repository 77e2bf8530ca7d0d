"""Plans of small texts, with a chooser that knows no device: for the planner's own tests."""

from dataclasses import replace

from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.planner.make import make_plan
from poot.planner.plan import Plan
from poot.planner.request import Choice, Layout, Schedule, Scratch

LIMITS = PROFILES["webgpu-baseline"]


def choose_any(
    body: Graph, anchor: str, updates: tuple[tuple[int, int], ...], limits: DeviceLimits
) -> Choice:
    """Every step row-major, matmuls with a scratch of 64 floats."""
    scratch = (Scratch("f32", 64),) if anchor == "matmul" else ()
    return Choice(Schedule(anchor), (Layout(),) * len(body.inputs), scratch)


def plan_text(limits: DeviceLimits = LIMITS, budget: int | None = None, **entries: str) -> Plan:
    graphs = {name: parse(text) for name, text in entries.items()}
    return make_plan(graphs, choose_any, limits, memory_budget=budget)


def small(**numbers: int) -> DeviceLimits:
    return replace(LIMITS, **numbers)
