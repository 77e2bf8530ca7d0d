"""Random graphs over every op that gives the same bits everywhere, on every target, through all of
the passes, some, or none: each gives what the oracle gives, or its guard fails as the oracle's."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from poot.errors import DonationError, ValidationError
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.oracle import Result, run
from poot.passes.pipeline import PIPELINE, Pass
from tests.support.check import assert_same, plain
from tests.support.everywhere import compile_on, on, run_program
from tests.support.graphs import EXACT_OPS, FLOATS, random_graph, random_inputs, whole

QUICK = 10
FUZZ = 1500


def drawn(seed: int) -> tuple[Graph, dict[str, object]]:
    """A graph, one in three with axes of no element, and whole numbers for its floats."""
    extents = (0, 1, 2, 3, 4, 5) if seed % 3 == 0 else (1, 2, 3, 4, 5)
    graph = random_graph(
        Random(seed), eqns=20, dtypes=FLOATS, ops=EXACT_OPS, extents=extents, is_whole=True
    )
    feed = random_inputs(graph, seed)
    return graph, {n: whole(x) if isinstance(x, np.ndarray) else x for n, x in feed.items()}


def same(graph: Graph, feed: dict[str, object], want: Result, got: Result) -> None:
    """The same bits; where numbers grew until sums of them round, nearly so."""
    with np.errstate(all="ignore"):
        exact = run(graph, feed, f64=True)
    pairs = zip((*want.outputs, *want.states.values()), (*exact.outputs, *exact.states.values()),
                strict=True)  # fmt: skip
    rounds = any(not np.array_equal(plain(x), plain(y), equal_nan=True) for x, y in pairs)
    assert_same(want, got, 1e-5 if rounds else None)


def some(seed: int) -> tuple[Pass, ...]:
    """None of the passes, or each or not, as the seed says."""
    return tuple(
        p for n, p in enumerate(PIPELINE) if Random(seed * 8 + n).random() < seed % 2 * 0.5
    )


def check(seed: int, target: str, passes: tuple[Pass, ...] = PIPELINE) -> None:
    graph, feed = drawn(seed)
    want = run(graph, feed)
    try:
        program = compile_on(target, graph, passes=passes)
    except DonationError:
        return
    (entry,) = program.entries.values()
    assert [r.name for r in entry.reports if r.name == "apart"] == []
    if all(w.all() for w in want.witnesses):
        same(graph, feed, replace(want, witnesses=()), run_program(program, feed))
    else:
        with pytest.raises(ValidationError):
            run_program(program, feed)


@on()
def test_random_graphs_agree(target: str):
    for seed in range(QUICK):
        check(seed, target)


@on("simulator", "cpu")
def test_random_graphs_agree_through_some_of_the_passes(target: str):
    for seed in range(QUICK):
        check(seed, target, some(seed))


NOT_NUMBERS = """
slot v0: f32[5] "x"
v1: f32[] = const() dtype=f32 shape=() value=0.0
v2: f32[5] = sub(v0, v0)
v3: f32[5] = neg(v0)
v4: f32[5] = add(v0, v3)
v5: f32[5] = add(v3, v0)
v6: f32[5] = mul(v0, v1)
v7: f32[5] = mul(v1, v0)
v8: f32[5] = mul(v0, v0)
v9: f32[5] = sub(v8, v8)
v10: f32[1,5] = reshape(v0) shape=(1, 5)
v11: f32[5] = reduce(v10) axis=(0,) keepdim=False kind=max
v12: f32[5] = sub(v0, v11)
v13: f32[5] = const() dtype=f32 shape=(5,) value=-inf
v14: f32[5] = mul(v13, v1)
v15: f32[5] = sub(v13, v13)
out v2, v4, v5, v6, v7, v9, v12, v14, v15
"""


@pytest.mark.parametrize("passes", [PIPELINE, ()], ids=["all", "none"])
@on()
def test_an_infinity_less_itself_or_times_zero_is_no_number(target: str, passes: tuple[Pass, ...]):
    """A driver may compute these without infinities and NaN, and give 0."""
    graph = parse(NOT_NUMBERS)
    feed = {"x": np.array([1, np.inf, -np.inf, np.nan, -2], np.float32)}
    with np.errstate(invalid="ignore"):
        want = run(graph, feed)
    assert np.isnan(want.outputs[0][1:4]).all()
    assert_same(want, run_program(compile_on(target, graph, passes=passes), feed))


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@on()
def test_many_random_graphs_agree(target: str):
    for seed in range(1000, 1000 + FUZZ):
        check(seed, target)
        check(seed, target, some(seed))
