"""Plans of small texts, with a chooser that knows no device: for the planner's own tests."""

from dataclasses import replace

from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import PROFILES, DeviceLimits
from poot.passes.records import form_records
from poot.planner.feed import feed_of
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


def graph_of(text: str) -> Graph:
    """The text's graph, its witnesses as records."""
    return form_records(parse(text), LIMITS).graph


def plan_text(
    limits: DeviceLimits = LIMITS,
    budget: int | None = None,
    feeds: bool = False,
    **entries: str,
) -> Plan:
    """The plan of the texts, an entry point each; with `feeds`, slots may come from the device."""
    graphs = {name: graph_of(text) for name, text in entries.items()}
    checks = {name: feed for name, g in graphs.items() if feeds and (feed := feed_of(g))}
    return make_plan(graphs, choose_any, limits, feeds=checks, memory_budget=budget)


def small(**numbers: int) -> DeviceLimits:
    return replace(LIMITS, **numbers)
