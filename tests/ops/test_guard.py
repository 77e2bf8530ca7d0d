"""Guards clamp, and a validated witness tells."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TypeRuleError
from poot.oracle import run
from tests.support.traced import evaluate

N = np.asarray([3, -1, 0, 7], np.int32)


def test_a_guard_clamps_and_witnesses():
    clamped, witness = evaluate(lambda i: ops.index_guard(i, 0, 4), N)
    assert clamped.tolist() == [3, 0, 0, 3]
    assert witness.tolist() == [True, False, True, False]


def test_a_checked_index_declares_its_witness_once():
    def fn(i: object) -> object:
        clamped, witness = ops.index_guard(i, 0, 4)
        ops.validate(witness)
        ops.validate(witness)
        return ops.checked(clamped, 0, 2)

    graph = poot.trace(fn, (poot.slot((4,)),))
    assert [v.type.dtype for v in graph.validations] == ["bool", "bool"]
    result = run(graph, {"i": N})
    assert result.outputs[0].tolist() == [1, 0, 0, 1]
    assert [w.tolist() for w in result.witnesses] == [
        [True, False, True, False],
        [False, True, True, False],
    ]


def test_a_witness_is_bool():
    with pytest.raises(TypeRuleError, match=r"validate needs a bool witness.*Write ops.validate"):
        poot.trace(lambda i: ops.validate(i) or i, (poot.slot((4,)),))


def test_a_guard_wants_i32_and_bounds_in_order():
    for fn in (
        lambda x: ops.index_guard(x.astype("f32"), 0, 4),
        lambda x: ops.index_guard(x, 4, 4),
    ):
        with pytest.raises(TypeRuleError, match="index_guard needs"):
            poot.trace(fn, (poot.slot((4,)),))
