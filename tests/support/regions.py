"""A graph's regions in short, for tests of how they are formed."""

from __future__ import annotations

from dataclasses import replace

from poot.ir.attrs import graph_attr, str_attr
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.passes.regions.form import form_regions, launch_buffers
from tests.support.check import check_kept
from tests.support.contract import check_regions


def device(buffers: int | None = None) -> DeviceLimits:
    """lavapipe, with so many storage buffers (its own where None)."""
    limits = profile("lavapipe")
    return limits if buffers is None else replace(limits, storage_buffers=buffers)


def formed(text: str, buffers: int | None = None) -> Graph:
    """The graph of a text in regions, asked the five questions, the contract checked."""
    graph, limits = parse(text), device(buffers)
    got = form_regions(graph, limits).graph
    check_regions(got, launch_buffers(limits))
    check_kept(lambda g: form_regions(g, limits).graph, graph)
    return got


def outline(graph: Graph) -> list[str]:
    """One line a region: its anchor, then its ops in order."""
    return [
        " ".join((str_attr(e, "anchor") + ":", *(inner.op for inner in graph_attr(e).eqns)))
        for e in graph.eqns
    ]
