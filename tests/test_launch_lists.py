"""A compiled program as launch lists."""

from __future__ import annotations

import numpy as np

import poot
from poot import ops
from poot.ir.graph import Const, State
from poot.launch_lists import signature_of
from tests.support.steps import append_graph


def test_a_list_has_each_call_of_each_step_in_order():
    program = poot.compile(append_graph(), "cpu-avx2")
    (plan,) = program.plan.entries
    made = program.lists().lists["main"]
    wanted = [
        (s.op, call.kernel.name) for s in plan.steps for call in program.lowered[s.request].calls
    ]
    assert list(made.steps) == wanted
    assert [program.codes[x.kernel].name for x in made.launches] == [k for _, k in wanted]
    assert (made.records, made.outputs, made.fed) == (plan.records, plan.outputs, ("pos",))
    assert made.feed is not None
    assert len(made.feed.outputs) == 1


def test_a_signature_names_inputs_written_states_and_guards():
    graph = append_graph()
    made = signature_of(graph, graph)
    assert [i.name for i in made.inputs if isinstance(i.storage, State)] == ["kv"]
    assert made.written == ("kv",)
    (guard,) = made.guards
    assert (guard.op, guard.bounds, guard.shape) == ("index_guard", (0, 8), ())
    assert "steps.py:" in guard.loc


def test_consts_are_named_by_their_content_and_hold_device_bytes():
    table = np.array([True, False, True])

    def pick(x):
        return ops.where(table, x, 0.0)

    graph = poot.trace(pick, (poot.slot((3,), "f32"),))
    assert any(isinstance(i.storage, Const) for i in graph.inputs)
    made = poot.compile(graph, "cpu-avx2").lists()
    (data,) = made.consts.values()
    assert np.frombuffer(data, np.uint32).tolist() == [1, 0, 1]
    assert [i.name for i in made.signatures["main"].inputs] == ["x"]
    assert set(made.consts) <= {r.name for r in made.residents}
