"""The generator reaches every primitive, and what it makes is good."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np

from poot.ir.graph import Slot
from poot.ir.ops import OPS
from poot.ir.text import parse
from poot.ir.verify import verify
from poot.slots import ForwardSlotMap, check_slot
from tests.support.graphs import FLOATS, random_graph, random_inputs


def test_every_primitive_is_reached():
    seen: Counter[str] = Counter()
    for seed in range(200):
        graph = random_graph(Random(seed), dtypes=FLOATS)
        verify(graph)
        seen.update(e.op for e in graph.eqns)
    missing = [name for name, row in OPS.items() if not row.fused and seen[name] < 5]
    assert missing == []


def test_a_seed_gives_one_graph_and_its_inputs():
    a, b = (random_graph(Random(9)) for _ in range(2))
    assert a == b
    for name, x in random_inputs(a, 4).items():
        np.testing.assert_array_equal(x, random_inputs(b, 4)[name])


def test_only_the_ops_asked_for_are_drawn():
    graph = random_graph(Random(1), ops=("add", "neg"))
    assert {e.op for e in graph.eqns} <= {"add", "neg", "const"}


def test_inputs_lie_inside_the_declared_ranges():
    graph = parse("""
        slot v0: i32[50] "pos" kind=pos range=(3, 5)
        slot v1: i32[8] "write" kind=write_map range=(-1, 9)
        out v0
    """)
    for seed in range(20):
        feed = random_inputs(graph, seed, edges=True)
        assert isinstance(feed["write"], ForwardSlotMap)
        for i in graph.inputs:
            assert isinstance(i.storage, Slot)
            check_slot(i, feed[i.name])
