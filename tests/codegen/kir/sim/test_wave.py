"""What a failing lane reports."""

from __future__ import annotations

import numpy as np
import pytest

from poot.codegen.kir.build import I32
from poot.codegen.kir.nodes import Ins, Reg
from poot.codegen.kir.sim.wave import Place, Wave
from poot.errors import SimulationError

pytestmark = pytest.mark.quick
INS = Ins("lane", (Reg("l", I32),), ())


def wave() -> Wave:
    place = Place(
        ((0, 0, 0), (5, 1, 0)), (6, 2, 1), np.tile(np.arange(4), 2), np.repeat([0, 1], 4), 4, 4
    )
    return Wave(place, [], {}, {})


def test_the_first_bad_lane_is_named_with_its_group_and_instruction():
    bad = np.zeros(8, np.bool_)
    bad[6] = True
    with pytest.raises(SimulationError) as found:
        wave().refuse(bad, "undefined", "a thing", INS)
    assert str(found.value) == "undefined: a thing: lane 2 of group (5, 1, 0), at `l: i32 = lane`"
    assert found.value.kind == "undefined"


def test_lanes_that_are_not_active_are_not_refused():
    w = wave()
    w.mask = np.arange(8) < 4
    w.refuse(np.arange(8) > 4, "undefined", "a thing", INS)
    with pytest.raises(SimulationError, match="lane 3 of group"):
        w.refuse(np.arange(8) > 2, "undefined", "a thing", INS)


def test_a_vector_is_bad_where_any_element_is():
    bad = np.zeros((2, 8), np.bool_)
    bad[1, 5] = True
    with pytest.raises(SimulationError, match=r"lane 1 of group \(5, 1, 0\)"):
        wave().refuse(bad, "undefined", "a thing", INS)


def test_a_bad_number_of_all_lanes_names_the_first_active_one():
    w = wave()
    w.mask = np.arange(8) >= 5
    with pytest.raises(SimulationError, match=r"lane 1 of group \(5, 1, 0\)"):
        w.refuse(np.asarray(True), "undefined", "a thing", INS)


def test_a_number_of_all_lanes_can_be_spread():
    assert wave().spread(np.asarray(3)).shape == (8,)
    assert wave().active() == 8
