"""A graph with the arrays that its program came with."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot.frontends.foreign import Call, Foreign, Given, Ref
from poot.frontends.imported import Imported
from poot.frontends.lower import lower
from poot.ir.graph import Slot, State, TensorType, Weight
from poot.ops.array import Array

F32 = TensorType("f32", (2,))


def counter(start: np.ndarray | None) -> Imported:
    """s becomes s + x * w, and is the output; it starts as `start`."""
    givens = (
        Given(Ref("x"), "x", F32, Slot()),
        Given(Ref("w"), "w", F32, Weight(), np.array([2, 3], np.float32)),
        Given(Ref("s"), "s", F32, State(), start),
    )
    call = Call("muladd", (Ref("x"), Ref("w"), Ref("s")), (Ref("y"),), (F32,))

    def muladd(site: object, x: Array, w: Array, s: Array) -> Array:
        return x * w + s

    foreign = Foreign(givens, (call,), Ref("y"), (("s", Ref("y")),))
    return lower(foreign, {"muladd": muladd}, "the test")


@pytest.mark.parametrize("start", [None, np.array([5, 7], np.float32)])
def test_a_session_has_the_weights_and_what_its_states_start_as(start: np.ndarray | None):
    imported = counter(start)
    session = imported.bind(poot.compile(imported.graph, "oracle"))
    first = np.zeros(2, np.float32) if start is None else start
    np.testing.assert_array_equal(session.state["s"], first)
    np.testing.assert_array_equal(
        session.step(x=np.ones(2, np.float32)), first + np.float32([2, 3])
    )
    np.testing.assert_array_equal(
        session.step(x=np.ones(2, np.float32)), first + np.float32([4, 6])
    )


def test_weights_are_the_arrays_that_came():
    assert list(counter(None).weights) == ["w"]
    assert counter(None).states == {}
