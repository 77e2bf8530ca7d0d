"""Limits by which more is proved."""

from __future__ import annotations

import numpy as np
import pytest

from poot import ops
from poot.errors import UnsupportedOps
from poot.frontends.foreign import Call, Foreign, Given, Ref, Row, Site
from poot.frontends.lower import lower
from poot.frontends.narrow import narrowed
from poot.ir.graph import Slot, State, Storage, TensorType
from poot.ops.array import Array

I32, BOOL = TensorType("i32", (4,)), TensorType("bool", (4,))


def add(site: Site, a: Array, b: Array | int) -> Array:
    return a + b


def total(site: Site, a: Array) -> Array:
    return ops.broadcast_to(a.sum() * 1000, a.shape)


def positive(site: Site, a: Array) -> Array:
    return a > 0


def pick(site: Site, mask: Array, a: Array) -> Array:
    return ops.where(mask, a, 0)


ROWS: dict[str, Row] = {"add": add, "total": total, "positive": positive, "pick": pick}


def given(name: str, storage: Storage | None = None, *, is_wide: bool = True) -> Given:
    return Given(Ref(name), name, I32, storage or Slot(), is_wide=is_wide)


def call(op: str, out: str, *args: object, type: TensorType = I32, **more: object) -> Call:
    wide = frozenset({Ref(out)}) if type is I32 else frozenset[Ref]()
    return Call(op, args, (Ref(out),), (type,), f"m.py:{out}", wide=wide, **more)  # pyright: ignore


def tried(givens: tuple[Given, ...], *calls: Call):
    return narrowed(Foreign(givens, calls, calls[-1].results[0]), ROWS)


def test_what_is_proved_as_it_is_gets_no_limits():
    assert tried((given("x"),), call("positive", "y", Ref("x"), type=BOOL)).foreign.limits == {}


def test_a_sum_asks_its_givens_for_as_little_as_proves_it():
    found = tried((given("x"), given("z")), call("add", "y", Ref("x"), 1))
    assert found.misses == ()
    assert found.foreign.limits == {"x": (-(2**24), 2**24)}
    graph = lower(found.foreign, ROWS, "it").graph
    assert graph.inputs[0].storage == Slot("user", (-(2**24), 2**24))
    found = tried((given("x"),), call("total", "y", Ref("x")))
    assert found.foreign.limits == {"x": (-(2**15), 2**15)}


def test_what_decides_alone_is_asked_for_nothing():
    calls = (
        call("positive", "m", Ref("x"), type=BOOL),
        call("pick", "p", Ref("m"), Ref("z")),
        call("total", "y", Ref("p")),
    )
    assert tried((given("x"), given("z")), *calls).foreign.limits.keys() == {"z"}


def test_a_declared_range_stays_and_a_call_that_no_limits_prove_is_a_miss():
    wide = given("x", Slot("user", (0, 2**31 - 1)))
    found = tried((wide,), call("add", "y", Ref("x"), 5))
    assert [m.is_wide for m in found.misses] == [True]
    with pytest.raises(UnsupportedOps, match=r"add: it has integers of 64 bits.*; at m\.py:y"):
        lower(found.foreign, ROWS, "it")
    none = tried((given("x"),), call("total", "a", Ref("x")), call("total", "b", Ref("a")))
    assert [m.call.loc for m in none.misses] == ["m.py:b"]
    assert none.foreign.limits == {"x": (-(2**15), 2**15)}


def test_integers_of_32_bits_wrap_in_both():
    plain = Call("add", (Ref("x"), 1), (Ref("y"),), (I32,))
    assert tried((given("x", is_wide=False),), plain).misses == ()


def test_a_state_is_guarded_where_a_sum_asks_it():
    state = given("n", State())
    done = call("add", "y", Ref("n"), 1)
    foreign = Foreign((state,), (done,), Ref("y"), (("n", Ref("y")),))
    graph = lower(narrowed(foreign, ROWS).foreign, ROWS, "it").graph
    assert [e.op for e in graph.eqns if e.op == "index_guard"] == ["index_guard"]
    assert len(graph.validations) == 1


def test_what_is_known_is_taken_as_it_is_and_nothing_that_poot_has_not():
    big = call("wide", "b", known=lambda: (np.full(4, 2**40 + 1),))
    small = call("add", "s", Ref("b"), -(2**40), known=lambda: (np.full(4, 1),))
    found = tried((given("x"),), big, small, call("positive", "y", Ref("s"), type=BOOL))
    assert found.misses == ()
    assert found.known.keys() == {"s"}
    found = tried((given("x"),), big, call("add", "y", Ref("b"), Ref("x")))
    assert "numbers that poot's dtypes hold" in found.misses[0].why
