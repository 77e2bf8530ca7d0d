"""The five questions asked of every pass, and how two runs are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poot.ir.graph import Graph
from poot.ir.text import parse, show
from poot.ir.verify import verify
from poot.ir.walk import renumber
from poot.oracle import Result, run
from tests.support.graphs import random_inputs

Rewrite = Callable[[Graph], Graph]


def check_pass(rewrite: Rewrite, before: str, after: str, *, within: float | None = None) -> None:
    """Asserts that rewrite turns one text into the other, ids renumbered, and `check_kept`."""
    given, want = parse(before), parse(after)
    got = rewrite(given)
    assert show(renumber(got)) == show(renumber(want))
    check_kept(rewrite, given, within=within)


def check_kept(rewrite: Rewrite, graph: Graph, *, within: float | None = None) -> None:
    """Asserts of rewrite(graph): it verifies; twice changes nothing; its text is all of it; it
    means the same, bit for bit, on inputs with and without edges. A pass that reassociates floats
    gives `within`: then the two are compared in f64, to that fraction of the largest value."""
    got = rewrite(graph)
    verify(got)
    assert show(renumber(rewrite(got))) == show(renumber(got))
    assert parse(show(got)) == got
    assert show(parse(show(got))) == show(got)
    for seed, edges in ((0, False), (1, True)):
        feed = random_inputs(graph, seed, edges=edges)
        if within is None:
            assert_same(run(graph, feed), run(got, feed))
        elif not edges:
            assert_same(run(graph, feed, f64=True), run(got, feed, f64=True), within)


def assert_same(want: Result, got: Result, within: float | None = None) -> None:
    """Asserts equal outputs, states and witnesses: exactly, NaN like NaN, or floats to a fraction
    `within` of the largest finite magnitude among those wanted, and of 1."""
    assert want.states.keys() == got.states.keys()
    names = [f"output {n}" for n in range(len(want.outputs))]
    names += [f"state {name}" for name in want.states]
    names += [f"witness {n}" for n in range(len(want.witnesses))]
    ours = (*want.outputs, *want.states.values(), *want.witnesses)
    theirs = (*got.outputs, *(got.states[name] for name in want.states), *got.witnesses)
    for name, x, y in zip(names, ours, theirs, strict=True):
        assert x.dtype == y.dtype, name
        assert x.shape == y.shape, name
        if within is None or x.dtype.kind in "iub":
            np.testing.assert_array_equal(plain(x), plain(y), err_msg=name)
            continue
        finite = np.abs(plain(x))[np.isfinite(plain(x))]
        scale = max(1.0, float(finite.max(initial=0.0)))
        np.testing.assert_allclose(plain(y), plain(x), rtol=0, atol=within * scale, err_msg=name)


def plain(x: np.ndarray) -> np.ndarray:
    """x in a dtype that numpy itself knows: 16- and 8-bit floats as f64."""
    return x.astype(np.float64) if x.dtype.kind in "fV" else x
