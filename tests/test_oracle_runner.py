"""The oracle as a session's target."""

from __future__ import annotations

import numpy as np

import poot
from poot.ir.graph import Graph
from poot.oracle_runner import OracleRunner, OracleWeights
from tests.support.steps import WEIGHTS, X, append_graph


def bound(graphs: dict[str, Graph]) -> OracleRunner:
    runner = OracleRunner(graphs, OracleWeights(WEIGHTS))
    for entry, graph in graphs.items():
        rows = graph.inputs[2].var.type.shape[0]
        runner.write_slot(entry, "x", [(0, np.repeat(X, rows, 0))])
        runner.write_slot(entry, "pos", [(0, np.array(2, np.int32))])
        runner.write_slot(entry, "at", [(0, np.array(5, np.int32))])
    return runner


def go(runner: OracleRunner, entry: str, *, fed: bool = False) -> None:
    """What a session does in a step."""
    runner.prepare(entry, fed)
    runner.send(entry, fed)
    runner.run(entry)


def test_a_step_gives_outputs_and_moves_state_only_if_its_guards_hold():
    runner = bound({"main": append_graph()})
    kv = append_graph().inputs[1]
    go(runner, "main")
    failed, (total, following) = runner.results("main", False)
    assert failed is None
    assert (following, total.tolist()) == (3, [5] * 4)
    runner.write_slot("main", "at", [(0, np.array(9, np.int32))])
    before = runner.read_state(kv)
    go(runner, "main")
    failed, outputs = runner.results("main", False)
    assert "[] is 9" in str(failed)
    assert outputs == []
    np.testing.assert_array_equal(runner.read_state(kv), before)


def test_what_depends_on_weights_alone_is_computed_once_for_all():
    runner = bound({"one": append_graph(1), "two": append_graph(2)})
    folded = runner.weights.folded
    go(runner, "one")
    values = {n: id(x) for n, x in folded.values.items()}
    assert values  # the transposed weight
    go(runner, "two")
    fork = runner.fork()
    go(fork, "one")
    assert {n: id(x) for n, x in folded.values.items()} == values


def test_a_slot_from_the_device_is_checked_before_the_step():
    runner = bound({"main": append_graph()})
    runner.write_slot("main", "pos", [(0, np.array(8, np.int32))])
    go(runner, "main", fed=True)
    assert str(runner.failure("main", True)) == "slot 'pos' needs values in 0..7: [] is 8"
    assert len(runner.stored("main")) == 2


def test_a_fork_moves_alone():
    runner = bound({"main": append_graph()})
    kv = append_graph().inputs[1]
    fork = runner.fork()
    go(fork, "main")
    assert fork.read_state(kv).any()
    assert not runner.read_state(kv).any()
    assert fork.timed("main")[0][:2] == ("oracle", "numpy")


def test_an_entry_point_may_lack_weights_that_another_has():
    spec = poot.state((2,))
    with_weight = poot.trace(lambda kept, w: (kept + w, kept + w), (spec, poot.weight((2,))))
    without = poot.trace(lambda kept: (kept * 1.0, kept * 2.0), (spec,))
    session = poot.compile({"main": with_weight, "double": without}, "oracle").bind(
        {"w": np.ones(2, np.float32)}
    )
    session.step("main")
    session.step("double")
    np.testing.assert_array_equal(session.state["kept"], 2.0)
