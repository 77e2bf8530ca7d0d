"""The plan's name: a digest of all that decides it."""

from __future__ import annotations

import hashlib

from poot.ir.graph import Const, Graph
from poot.ir.walk import canonical_text
from poot.limits import DeviceLimits
from poot.planner.plan import EntryPlan

GENERATOR_VERSION = "9"  # raised by a change that makes other kernels of the same request


def entry_text(name: str, graph: Graph) -> bytes:
    """All that decides how an entry point is compiled: its name, its inputs' names and storage, and
    the graph's canonical text."""
    names = [
        (i.name, str(i.storage) if not isinstance(i.storage, Const) else "const")
        for i in graph.inputs
    ]
    return f"{name}\n{names}\n{canonical_text(graph)}\n".encode()


def plan_key(
    graphs: dict[str, Graph], limits: DeviceLimits, entries: list[EntryPlan], options: str
) -> str:
    """sha256, in hex, of canonical graph texts, entry names, input names, limits, schedules,
    layouts and options."""
    h = hashlib.sha256(f"{GENERATOR_VERSION}\n{options}\n{limits}\n".encode())
    for name, graph in sorted(graphs.items()):
        h.update(entry_text(name, graph))
    requests = [step.request for entry in entries for step in entry.steps]
    shown = {id(r): f"{r.schedule}{r.layouts}\n".encode() for r in requests}
    for request in requests:
        h.update(shown[id(request)])
    return h.hexdigest()
