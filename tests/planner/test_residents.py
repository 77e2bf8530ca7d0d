"""Places of what stays on the device."""

import pytest

from poot.errors import BindingLimit
from poot.ir.graph import Const, Graph, Input, TensorType, Var
from poot.planner.residents import Spaces, match_inputs, slot_name
from tests.support.plans import LIMITS, small


def test_places_are_aligned_and_apart():
    spaces = Spaces(LIMITS)
    a, b = spaces.take("weights", 5, "a"), spaces.take("weights", 300, "b")
    assert (a.offset, b.offset) == (0, 256)
    assert spaces.sizes == {"weights": 768}


def test_a_value_without_bytes_still_has_a_place():
    assert Spaces(LIMITS).take("slots", 0, "x").nbytes == 0


def test_a_value_larger_than_a_binding_is_refused():
    with pytest.raises(
        BindingLimit, match="w has 1024 bytes and webgpu-baseline binds at most 512"
    ):
        Spaces(small(binding_nbytes=512)).take("weights", 1024, "w")


def test_slots_are_named_by_their_entry_point():
    assert slot_name("decode", "tokens") == "decode:tokens"


def test_entry_points_may_name_different_consts_alike():
    graphs = [
        Graph((Input(Var(0, TensorType(dtype, (2,))), "const#0", Const(b"\0" * 8)),), (), ())
        for dtype in ("f32", "i32")
    ]
    assert match_inputs({"a": graphs[0], "b": graphs[1]}) == {}
