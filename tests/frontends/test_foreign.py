"""What a foreign program is read into."""

from __future__ import annotations

import pytest

from poot.frontends.foreign import Call, Ref, Site
from poot.ir.graph import TensorType

F32 = TensorType("f32", (2, 3))


def test_a_site_gives_the_type_of_its_only_result():
    site = Site((F32,))
    assert (site.type, site.dtype, site.shape) == (F32, "f32", (2, 3))


def test_a_site_of_two_results_has_no_only_one():
    with pytest.raises(ValueError, match="too many values"):
        _ = Site((F32, F32)).type


def test_calls_are_equal_by_what_they_say():
    a, b = (Call("f", (Ref("x"), 1), (Ref("y"),), (F32,), "m.py:3") for _ in range(2))
    assert a == b
    assert a.options == {}
    assert a.problem == ""
