"""Hard cases on every target: a function of arrays, run fused and as it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poot.api import Program
from poot.ir.graph import Graph
from poot.ir.tree import Tree, unflatten
from poot.oracle import run
from tests.support.everywhere import compile_on, fused_count, run_program
from tests.support.traced import graph_of

Function = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Both:
    """What a target gives through the passes and without them, nested as the function nests it.
    `attentions` is how many attention eqns the passes formed."""

    fused: object
    plain: object
    attentions: int
    program: Program


def feed_of(graph: Graph, arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return {i.name: x for i, x in zip(graph.inputs, arrays, strict=False)}


def nested(graph: Graph, outputs: tuple[np.ndarray, ...]) -> object:
    assert isinstance(graph.tree, Tree)
    return unflatten(graph.tree, list(outputs))


def on_both(target: str, fn: Function, *arrays: np.ndarray) -> Both:
    """The function on these arrays, with the passes and without. Integers are Slots, the others
    Weights."""
    graph = graph_of(fn, *arrays)
    feed = feed_of(graph, arrays)
    fused = compile_on(target, graph)
    plain = compile_on(target, graph, passes=())
    results = [nested(graph, run_program(p, feed).outputs) for p in (fused, plain)]
    return Both(results[0], results[1], fused_count(fused, "attention"), fused)


def fused_only(target: str, fn: Function, *arrays: np.ndarray, attentions: int = 1) -> object:
    """As `on_both`, through the passes alone; asserts how many attention eqns they formed."""
    graph = graph_of(fn, *arrays)
    program = compile_on(target, graph)
    made = fused_count(program, "attention")
    assert made == attentions, program.explain()
    return nested(graph, run_program(program, feed_of(graph, arrays)).outputs)


def attended(target: str, fn: Function, *arrays: np.ndarray) -> list[np.ndarray]:
    """[fused, as written] of a function that is one attention, which the passes must see."""
    got = on_both(target, fn, *arrays)
    assert got.attentions == 1, got.program.explain()
    assert isinstance(got.fused, np.ndarray)
    assert isinstance(got.plain, np.ndarray)
    return [got.fused, got.plain]


def by_oracle(fn: Function, *arrays: np.ndarray, f64: bool = False) -> object:
    """What the oracle makes of the function as it is written."""
    graph = graph_of(fn, *arrays)
    return nested(graph, run(graph, feed_of(graph, arrays), f64=f64).outputs)
