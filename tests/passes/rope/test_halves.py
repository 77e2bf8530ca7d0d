"""Which values hold each angle twice."""

from __future__ import annotations

import numpy as np
import pytest

from poot.ir.graph import Graph
from poot.ir.text import parse
from poot.oracle import run
from poot.passes.engine import Scope
from poot.passes.rope.halves import half_of
from tests.support.graphs import random_inputs


def half(text: str, interleaved: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """(the whole value, its half) on random inputs, or None."""
    graph = parse(text)
    scope = Scope(graph)
    eqns = scope.sweep(())
    scope.fresh = []
    got = half_of(scope, graph.outputs[0], interleaved)
    if got is None:
        return None
    both = Graph(graph.inputs, (*eqns, *scope.fresh), (graph.outputs[0], got))
    return run(both, random_inputs(both, 0)).outputs


TABLE = np.float32([[0, 4, 0, 4], [4, 2, 4, 2]])


@pytest.mark.parametrize(
    "text, interleaved",
    [
        ("in v0: f32[3,2]\nv1: f32[3,4] = concat(v0, v0) axis=1\nout v1", False),
        (
            """in v0: f32[3,2]
            in v1: f32[3,1]
            v2: f32[3,4] = concat(v0, v0) axis=1
            v3: f32[3,4] = mul(v2, v1)
            v4: f32[3,4] = cos(v3)
            v5: f16[3,4] = cast(v4) dtype=f16
            out v5""",
            False,
        ),
        (
            """in v0: f32[3,2]
            v1: f32[3,2,1] = reshape(v0) shape=(3, 2, 1)
            v2: f32[3,2,2] = broadcast(v1) shape=(3, 2, 2)
            v3: f32[3,4] = reshape(v2) shape=(3, 4)
            v4: f32[1,3,4] = reshape(v3) shape=(1, 3, 4)
            out v4""",
            True,
        ),
        (
            f"""constant v0: f32[2,4] "t" 0x{TABLE.tobytes().hex()}
            slot v1: i32[3] "p" kind=user range=(0, 2)
            v2: f32[3,4] = gather(v0, v1) axis=0
            out v2""",
            False,
        ),
        ("v0: f32[3,4] = const() dtype=f32 shape=(3, 4) value=2.0\nout v0", True),
    ],
)
def test_a_proved_half_is_the_half(text: str, interleaved: bool):
    got = half(text, interleaved)
    assert got is not None
    whole, part = got
    want = whole[..., 0::2] if interleaved else whole[..., : whole.shape[-1] // 2]
    np.testing.assert_array_equal(part, want)


@pytest.mark.parametrize(
    "text, interleaved",
    [
        ("in v0: f32[3,4]\nout v0", False),
        ("in v0: f32[3,2]\nv1: f32[3,4] = concat(v0, v0) axis=1\nout v1", True),
        ("in v0: f32[3,2]\nin v1: f32[3,2]\nv2: f32[3,4] = concat(v0, v1) axis=1\nout v2", False),
        ("in v0: f32[2,4]\nv1: f32[4,4] = concat(v0, v0) axis=0\nout v1", False),
        ("v0: i32[4] = iota() axis=0 dtype=i32 shape=(4,)\nout v0", False),
        ("in v0: f32[3]\nv1: f32[3] = exp(v0)\nout v1", False),
    ],
)
def test_what_is_not_proved_has_no_half(text: str, interleaved: bool):
    assert half(text, interleaved) is None
