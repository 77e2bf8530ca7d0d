"""Ranges that a caller declares for integer inputs: what becomes of them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from poot.errors import PootError, TraceError
from poot.frontends.foreign import Foreign, Given, Ref
from poot.frontends.ranges import declared
from poot.ir.graph import Slot, TensorType, Weight
from tests.support.wrong import WRONG

IDS, AT, X, W = (Ref(n) for n in ("ids", "at", "x", "w"))
PROGRAM = Foreign(
    (
        Given(IDS, "ids", TensorType("i32", (1, 3)), Slot()),
        Given(AT, "at", TensorType("i32", (1,)), Slot()),
        Given(X, "x", TensorType("f32", (3,)), Slot()),
        Given(W, "w", TensorType("i32", (3,)), Weight()),
    ),
    (),
    X,
)


def test_a_range_makes_a_position_of_what_has_one_axis():
    given = {"ids": (0, 11), "at": np.array([0, 4])}
    found = declared(PROGRAM, cast("Mapping[str, tuple[int, int]]", given), "from_x").givens
    storages = [g.storage for g in found]
    assert storages == [Slot("user", (0, 11)), Slot("pos", (0, 4)), Slot(), Weight()]


def test_without_ranges_nothing_changes():
    assert declared(PROGRAM, None, "from_x") == PROGRAM
    assert declared(PROGRAM, {}, "from_x") == PROGRAM


@pytest.mark.parametrize(
    "ranges, words",
    [
        ({"x": (0, 4)}, "from_x needs ranges of integer inputs, at, ids: got x"),
        ({"w": (0, 4), "q": (0, 1)}, "at, ids: got q, w"),
        ([("at", (0, 4))], "needs ranges as a dict of .lo, hi. by names: got list"),
        ({3: (0, 4)}, "by names, which are texts: got 3"),
        ({"at": None}, "needs whole .lo, hi. for at: got None"),
        ({"at": (0, 1, 2)}, "for at: got .0, 1, 2."),
        ({"at": (0.0, 4.0)}, "for at: got .0.0, 4.0."),
    ],
)
def test_what_is_no_range_of_an_integer_input_is_refused(ranges: object, words: str):
    with pytest.raises(TraceError, match=words):
        declared(PROGRAM, cast("Mapping[str, tuple[int, int]]", ranges), "from_x")


@pytest.mark.parametrize("value", [v for v in WRONG if v is not None], ids=lambda v: str(v)[:20])
def test_wrong_kinds_are_typed_errors(value: object):
    with pytest.raises(PootError):
        declared(PROGRAM, cast("Mapping[str, tuple[int, int]]", {"at": value}), "from_x")
    if not isinstance(value, dict) or value:
        with pytest.raises(PootError):
            declared(PROGRAM, cast("Mapping[str, tuple[int, int]]", value), "from_x")
