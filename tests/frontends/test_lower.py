"""A foreign program by a table of rows."""

from __future__ import annotations

import pytest

from poot import ops
from poot.errors import TraceError, UnsupportedOps
from poot.frontends.foreign import Call, Foreign, Given, Ref, Row, Site
from poot.frontends.lower import lower, refusal
from poot.ir.graph import Slot, State, TensorType
from poot.ops.array import Array
from poot.ops.record import refuse

F32, I32 = TensorType("f32", (2,)), TensorType("i32", (2,))


def double(site: Site, x: Array) -> Array:
    return x + x


def both(site: Site, xs: tuple[Array, Array], *, turned: bool) -> tuple[Array, Array]:
    a, b = xs
    return (b, a) if turned else (a, b)


def never(site: Site, x: Array) -> Array:
    refuse("never", "another day", x=x.type)


ROWS: dict[str, Row] = {"double": double, "both": both, "never": never}
X = Given(Ref("x"), "x", F32, Slot())


def call(op: str, arg: object, out: str, loc: str = "m.py:1", type: TensorType = F32) -> Call:
    return Call(op, (arg,), (Ref(out),), (type,), loc)


def test_calls_become_eqns_at_their_lines():
    calls = (call("double", Ref("x"), "y", "m.py:7"), call("double", Ref("y"), "z", "m.py:9"))
    graph = lower(Foreign((X,), calls, {"out": Ref("z")}), ROWS, "the test").graph
    assert [(e.op, e.loc) for e in graph.eqns] == [("add", "m.py:7"), ("add", "m.py:9")]
    assert [i.name for i in graph.inputs] == ["x"]


def test_refs_in_tuples_and_options_reach_the_row():
    more = Call(
        "both", ((Ref("x"), Ref("y")),), (Ref("a"), Ref("b")), (F32, F32), "", {"turned": True}
    )
    foreign = Foreign((X,), (call("double", Ref("x"), "y"), more), (Ref("a"), Ref("b")))
    graph = lower(foreign, ROWS, "the test").graph
    assert graph.outputs == (graph.eqns[0].out, graph.inputs[0].var)


def test_every_call_that_cannot_be_done_is_listed_with_its_lines():
    calls = (
        call("strange", Ref("x"), "a", "m.py:1"),
        call("strange", Ref("a"), "b", "m.py:2"),
        call("never", Ref("b"), "c", "m.py:3"),
        call("double", Ref("c"), "d", "m.py:4"),
        call("double", Ref("d"), "e", "m.py:5", I32),
        Call("gone", (), (Ref("f"),), (F32,), "", problem="a value of complex64"),
    )
    with pytest.raises(UnsupportedOps) as e:
        lower(Foreign((X,), calls, Ref("e")), ROWS, "from_there")
    assert e.value.message.splitlines() == [
        "from_there can't do 5 of this program's calls:",
        "  strange (2 times): there is no row for it; at m.py:1, m.py:2",
        "  never: never needs another day: x=f32[2]; at m.py:3",
        "  double: its row gives f32[2] where the program has i32[2]; at m.py:5",
        "  gone: a value of complex64; at a line unknown",
    ]
    assert [(u.op, u.loc) for u in e.value.ops][:2] == [
        ("strange", "m.py:1"),
        ("strange", "m.py:2"),
    ]


def test_what_no_result_needs_is_not_in_the_graph():
    calls = (call("double", Ref("x"), "y"), call("double", Ref("y"), "z"))
    assert len(lower(Foreign((X,), calls, Ref("y")), ROWS, "the test").graph.eqns) == 1


def test_a_state_pairs_with_what_it_becomes():
    held = Given(Ref("s"), "s", F32, State())
    foreign = Foreign((held,), (call("double", Ref("s"), "y"),), (), (("s", Ref("y")),))
    graph = lower(foreign, ROWS, "the test").graph
    assert graph.states == ((graph.inputs[0].var, graph.eqns[0].out),)


def test_a_result_that_is_no_array_is_refused():
    with pytest.raises(TraceError, match="results that are arrays: output n is 3"):
        lower(Foreign((X,), (), {"n": 3}), ROWS, "the test")
    with pytest.raises(TraceError, match="a program with a result"):
        lower(Foreign((X,), (), ()), ROWS, "the test")


def test_an_input_may_not_be_called_as_a_steps_own_option():
    with pytest.raises(TraceError, match="names other than device_outputs"):
        lower(Foreign((Given(Ref("x"), "device_outputs", F32, Slot()),), (), Ref("x")), ROWS, "it")


def test_one_call_can_be_asked_for_without_a_program():
    assert refusal(call("double", Ref("x"), "y"), ROWS, {"x": F32}) == ""
    assert "another day" in refusal(call("never", Ref("x"), "y"), ROWS, {"x": F32})


def test_a_row_that_makes_something_from_nothing_needs_no_operand():
    def ones(site: Site) -> Array:
        return ops.ones(site.shape, site.dtype)

    made = Call("ones", (), (Ref("y"),), (F32,))
    assert lower(Foreign((), (made,), Ref("y")), {"ones": ones}, "it").graph.outputs[0].type == F32
