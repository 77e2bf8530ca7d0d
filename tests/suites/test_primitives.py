"""Every primitive on every target, at every dtype and edge, as written and through the passes.

A family of cases is one program, so that a target compiles few programs of many small kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from poot.ir.graph import Graph
from poot.ir.ops import OPS
from poot.oracle import Result, run
from poot.passes.pipeline import PIPELINE
from tests.support.everywhere import on, run_everywhere
from tests.support.primitives import Case, graph_of
from tests.support.primitives_wide import FAMILIES
from tests.support.tol import difference, dtype_name

LEAST = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
Made = list[tuple[Case, int, str]]


def flushed(x: object) -> object:
    """The array with its subnormals gone, as a device may read it."""
    if not isinstance(x, np.ndarray) or dtype_name(x) not in LEAST:
        return x
    with np.errstate(all="ignore"):
        small = np.abs(x.astype(np.float64)) < LEAST[dtype_name(x)]
    return np.where(small, np.zeros((), x.dtype), x)


@cache
def family(name: str) -> tuple[Graph, dict[str, object], Made, tuple[Result, Result]]:
    """The family's graph and feed, its outputs' cases, and what the oracle gives with and without
    subnormal operands."""
    graph, feed, made = graph_of(list(FAMILIES[name]()))
    with np.errstate(all="ignore"):
        whole = run(graph, feed)
        cut = run(graph, {key: flushed(x) for key, x in feed.items()})
    return graph, feed, made, (whole, cut)


def wrong(made: Made, got: Result, wants: tuple[Result, Result]) -> list[str]:
    """One line for each case that differs."""
    lines: list[str] = []
    at = 0
    for case, which, state in made:
        if state:
            mine, theirs = got.states[state], [w.states[state] for w in wants]
        else:
            mine, theirs = got.outputs[at], [w.outputs[at] for w in wants]
            at += 1
        found = difference(mine, theirs, case.row if which == 0 else "exact")
        if found is not None:
            lines.append(f"{case.name}: {found}")
    return lines


@pytest.mark.parametrize("passes", ["as written", "through the passes"])
@pytest.mark.parametrize("name", FAMILIES)
@on()
def test_every_primitive_is_the_oracles(name: str, target: str, passes: str):
    graph, feed, made, wants = family(name)
    chosen = () if passes == "as written" else PIPELINE
    got = run_everywhere(graph, feed, target, passes=chosen)
    assert wrong(made, got, wants) == []


def test_the_families_hold_every_primitive():
    seen = {case.op for cases in FAMILIES.values() for case in cases()}
    assert seen == {name for name, row in OPS.items() if not row.fused}


def test_each_case_is_named_once():
    names = [case.name for cases in FAMILIES.values() for case in cases()]
    assert sorted(set(names)) == sorted(names)


def test_a_wrong_number_is_found():
    graph, feed, made, wants = family("folds")
    result = run(graph, feed)
    spoiled = list(result.outputs)
    spoiled[3] = spoiled[3] + np.ones((), spoiled[3].dtype)
    (line,) = wrong(made, Result(tuple(spoiled), result.states, ()), wants)
    assert line.startswith(made[3][0].name)
