"""Running whole graphs: feeding, states, witnesses, both modes."""

from __future__ import annotations

import time
import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

from poot.errors import BindError, RangeError, SlotMapError
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.oracle import run
from poot.slots import ForwardSlotMap
from tests.support.check import assert_same
from tests.support.graphs import FLOATS, graphs, random_graph, random_inputs

STEP = parse("""
    weight v0: f32[2] "w"
    state v1: f32[2] "kv" -> v4
    state v2: f32[2] "kept"
    slot v3: i32[] "pos" kind=pos range=(0, 2)
    v4: f32[2] = add(v1, v0)
    v5: i32[], v6: bool[] = index_guard(v3) lo=0 hi=1
    validate v6
    out v1, v4
""")
W = np.array([1, 2], np.float32)


def test_a_step_gives_outputs_new_states_and_witnesses():
    kv = np.array([10, 20], np.float32)
    got = run(STEP, {"w": W, "kv": kv, "pos": 1})
    assert [x.tolist() for x in got.outputs] == [[10, 20], [11, 22]]
    assert {n: x.tolist() for n, x in got.states.items()} == {"kv": [11, 22], "kept": [0, 0]}
    assert [w.item() for w in got.witnesses] == [False]


def test_results_are_the_callers_own():
    kv = np.zeros(2, np.float32)
    got = run(STEP, {"w": W, "kv": kv, "pos": 0})
    got.outputs[0][:] = 7
    assert kv.tolist() == [0, 0]
    assert got.outputs[0].flags.writeable


def test_what_does_not_fit_is_refused():
    with pytest.raises(BindError, match=r"input 'w' needs f32\[2\], and nothing was given"):
        run(STEP, {"pos": 0})
    with pytest.raises(BindError, match="there is no input 'pas'; the inputs are kept, kv, pos, w"):
        run(STEP, {"w": W, "pas": 0})
    with pytest.raises(BindError, match="input 'w' needs"):
        run(STEP, {"w": W.astype(np.float64), "pos": 0})
    with pytest.raises(RangeError, match=r"slot 'pos' needs values in 0\.\.1"):
        run(STEP, {"w": W, "pos": 2})


def test_f64_mode_takes_and_gives_float64():
    first = run(STEP, {"w": W, "pos": 0}, f64=True)
    assert {x.dtype for x in first.outputs} == {np.dtype(np.float64)}
    again = run(STEP, {"w": W, "pos": 0, **first.states}, f64=True)
    assert again.states["kv"].tolist() == [2, 4]


def test_a_write_map_is_checked_however_it_comes():
    graph = parse("""
        state v0: f32[4,1] "pool" -> v3
        in v1: f32[2,1]
        slot v2: i32[2] "write" kind=write_map range=(-1, 4)
        v3: f32[4,1] = scatter_update(v0, v1, v2)
        out
    """)
    new = np.array([[5], [6]], np.float32)
    for rows in (np.array([-1, 2], np.int32), ForwardSlotMap(np.array([-1, 2]), 4)):
        got = run(graph, {"v1": new, "write": rows})
        assert got.states["pool"].ravel().tolist() == [0, 0, 6, 0]
    with pytest.raises(SlotMapError):
        run(graph, {"v1": new, "write": np.array([2, 2], np.int32)})


def test_a_constant_is_read_from_the_graph():
    graph = parse('constant v0: f32[2] "c" 0x0000803f00000040\nout v0')
    assert run(graph, {}).outputs[0].tolist() == [1, 2]


@given(graphs(dtypes=FLOATS))
@settings(max_examples=60, deadline=None)
def test_random_graphs_run_on_edges_without_a_warning(graph: Graph):
    feed = random_inputs(graph, 0, edges=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(run(graph, feed), run(graph, feed))
        run(graph, feed, f64=True)


def test_values_are_dropped_after_their_last_reader():
    """A chain of 400 values of 4 MiB each passes in far less than 1.6 GiB, and quickly."""
    n = 400
    lines = "".join(f"v{i + 1}: f32[1048576] = neg(v{i})\n" for i in range(n))
    graph = parse(f"in v0: f32[1048576]\n{lines}out v{n}\n")
    began = time.perf_counter()
    (got,) = run(graph, {"v0": np.ones(1 << 20, np.float32)}).outputs
    assert got[0] == 1
    assert time.perf_counter() - began < 20


def test_f64_and_f32_agree_where_nothing_is_lost():
    graph = random_graph(Random(3), ops=("add", "mul", "transpose", "reshape", "select"))
    feed = random_inputs(graph, 0)
    for a, b in zip(run(graph, feed).outputs, run(graph, feed, f64=True).outputs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
