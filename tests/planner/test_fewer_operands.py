"""Small operands of one dtype travel as one where the device has too few bindings."""

import numpy as np
import pytest

from poot.errors import BindingLimit
from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.ir.verify import verify
from poot.oracle import run
from poot.planner.fewer_operands import fewer_operands
from poot.planner.steps import regions_of
from tests.support.plans import small

TEXT = """
in v0: f32[2,3]
in v1: f32[3]
in v2: f32[1]
in v3: f32[2,1]
v4: f32[2,3] = region(v0, v1, v2, v3) anchor=none updates=() body={
    in v0: f32[2,3]
    in v1: f32[3]
    in v2: f32[1]
    in v3: f32[2,1]
    v5: f32[2,3] = mul(v0, v1)
    v6: f32[2,3] = add(v5, v2)
    v7: f32[2,3] = sub(v6, v3)
    out v7
}
out v4
"""


def packed(buffers: int) -> Graph:
    graph = parse(TEXT)
    limits = small(storage_buffers=buffers)
    eqns = fewer_operands(regions_of(graph, lambda e: False), 100, limits)
    return Graph(graph.inputs, tuple(eqns), graph.outputs)


@pytest.mark.parametrize("buffers, steps", [(5, 1), (4, 2), (3, 2), (2, 2)])
def test_the_smallest_operands_are_packed_and_the_result_is_the_same(buffers: int, steps: int):
    graph = packed(buffers)
    verify(graph)
    assert len(graph.eqns) == steps
    assert len(graph.eqns[-1].ins) + 1 <= max(buffers, 2)
    feed = {
        f"v{n}": np.arange(1, 7, dtype=np.float32)[:size].reshape(shape)
        for n, (size, shape) in enumerate([(6, (2, 3)), (3, (3,)), (1, (1,)), (2, (2, 1))])
    }
    np.testing.assert_array_equal(run(graph, feed).outputs[0], run(parse(TEXT), feed).outputs[0])


def test_operands_that_cannot_be_packed_are_refused_with_both_numbers():
    with pytest.raises(BindingLimit, match="binds 5 buffers and webgpu-baseline has 1"):
        packed(1)
