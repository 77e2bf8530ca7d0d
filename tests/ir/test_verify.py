"""Each thing that a pass can break is found, and said with its eqn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings

from poot.errors import VerifyError
from poot.ir.graph import Const, Eqn, Graph, Input, Slot, State, TensorType, Var
from poot.ir.text import parse
from poot.ir.verify import verify
from tests.support.graphs import FLOATS, graphs

F2 = TensorType("f32", (2,))
F3 = TensorType("f32", (3,))

GOOD = parse("""
    in v0: f32[2]
    state v1: f32[2] "kv" -> v4
    slot v2: i32[2] "pos" range=(0, 8)
    v3: f32[2] = add(v0, v1)
    v4: f32[2] = mul(v3, v0)
    v5: i32[2], v6: bool[2] = index_guard(v2) lo=0 hi=8
    v7: f32[2] = region(v4, v1) anchor=none updates=((0, 1),) body={
        in v0: f32[2]
        in v1: f32[2]
        v2: f32[2] = add(v0, v1)
        out v2
    }
    validate v6
    out v7
""")


def test_a_good_graph_verifies():
    verify(GOOD)


@given(graphs(dtypes=FLOATS))
@settings(max_examples=50, deadline=None)
def test_random_graphs_verify(graph: Graph):
    verify(graph)


def eqns(graph: Graph, n: int, **changes: object) -> Graph:
    """The graph with fields of eqn n replaced."""
    new = list(graph.eqns)
    new[n] = replace(new[n], **changes)
    return replace(graph, eqns=tuple(new))


def body(change: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
    """The change, made to the region's body."""

    def made(graph: Graph) -> Graph:
        attrs = dict(graph.eqns[3].attrs)
        inner = attrs["body"]
        assert isinstance(inner, Graph)
        attrs["body"] = change(inner)
        return eqns(graph, 3, attrs=tuple(attrs.items()))

    return made


def inputs(graph: Graph, n: int, **changes: object) -> Graph:
    new = list(graph.inputs)
    new[n] = replace(new[n], **changes)
    return replace(graph, inputs=tuple(new))


V0, V1, V2 = (i.var for i in GOOD.inputs)
V3 = GOOD.eqns[0].out

BREAKS: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "an eqn moved above what it reads": (
        lambda g: replace(g, eqns=g.eqns[1:2] + g.eqns[:1] + g.eqns[2:]),
        r"mul reads v3: f32\[2\] before it is bound: v4: f32\[2\] = mul",
    ),
    "an eqn dropped": (lambda g: replace(g, eqns=g.eqns[1:]), "before it is bound"),
    "a value read under another type": (
        lambda g: eqns(g, 1, ins=(Var(3, F3), V0)),
        r"which is bound as f32\[2\]",
    ),
    "a value bound twice": (
        lambda g: eqns(g, 1, outs=(V3,)),
        "v3 is bound twice, the second time by mul",
    ),
    "an out of another type": (
        lambda g: eqns(g, 0, outs=(Var(3, F3),)),
        r"add gives f32\[2\] by its rule: v3: f32\[3\] = add",
    ),
    "an eqn that its rule refuses": (lambda g: eqns(g, 0, ins=(V0,)), "add needs 2 operands"),
    "an unknown op": (lambda g: eqns(g, 0, op="plus"), "there is no op 'plus'"),
    "attributes out of order": (
        lambda g: eqns(g, 2, attrs=(("lo", 0), ("hi", 8))),
        "index_guard needs its attributes sorted",
    ),
    "an attribute of another kind": (
        lambda g: eqns(g, 2, attrs=(("hi", 8.5), ("lo", 0))),
        "index_guard needs hi as int: hi=8.5",
    ),
    "an unbound output": (lambda g: replace(g, outputs=(Var(99, F2),)), "output v99 is not bound"),
    "a validation that is no bool": (
        lambda g: replace(g, validations=(V0,)),
        r"validation v0 is f32\[2\], not bool and no record",
    ),
    "an unbound validation": (
        lambda g: replace(g, validations=(Var(99, TensorType("bool", ())),)),
        "validation v99 is not bound",
    ),
    "a state pair from no State": (
        lambda g: replace(g, states=((V0, V3),)),
        "state pair v0 -> v3 starts at no State input",
    ),
    "a state with two new values": (
        lambda g: replace(g, states=((V1, V3), (V1, V0))),
        "state 'kv' has two new values",
    ),
    "an unbound new state": (
        lambda g: replace(g, states=((V1, Var(99, F2)),)),
        "the new value v99 of state 'kv' is not bound",
    ),
    "a state of another type": (
        lambda g: replace(g, states=((V1, g.eqns[2].outs[0]),)),
        r"state 'kv' is f32\[2\] and its new value i32\[2\]",
    ),
    "two inputs of one name": (lambda g: inputs(g, 0, name="kv"), "two inputs are called 'kv'"),
    "two inputs of one id": (lambda g: inputs(g, 0, var=V1), "v1 is bound twice"),
    "an input of no known dtype": (
        lambda g: inputs(g, 0, var=Var(0, TensorType("f33", (2,)))),
        "needs a known dtype",
    ),
    "a constant of too few bytes": (
        lambda g: inputs(g, 0, storage=Const(b"\0")),
        r"constant 'v0' of f32\[2\] has 1 bytes",
    ),
    "a range on floats": (
        lambda g: inputs(g, 0, storage=Slot("user", (0, 2))),
        "slot 'v0' needs integers",
    ),
    "an empty range": (
        lambda g: inputs(g, 2, storage=Slot("user", (2, 2))),
        "slot 'pos' needs integers and lo < hi",
    ),
    "a body that breaks a rule": (
        body(lambda b: replace(b, eqns=())),
        "in body of region -> v7: output v2 is not bound",
    ),
    "a body with validations": (
        body(
            lambda b: replace(
                b,
                eqns=(*b.eqns, Eqn("eq", b.outputs * 2, (Var(3, TensorType("bool", (2,))),))),
                validations=(Var(3, TensorType("bool", (2,))),),
            )
        ),
        "body of region has states or validations",
    ),
    "a body with states": (
        body(
            lambda b: replace(
                b,
                inputs=(*b.inputs[:1], Input(b.inputs[1].var, "s", State())),
                states=((b.inputs[1].var, b.outputs[0]),),
            )
        ),
        "body of region has states or validations",
    ),
    "an update of no out": (
        lambda g: eqns(g, 3, attrs=tuple({**dict(g.eqns[3].attrs), "updates": ((1, 0),)}.items())),
        r"region needs updates of an out and an in of one type: \(1, 0\)",
    ),
}


@pytest.mark.parametrize("what", sorted(BREAKS))
def test_what_is_broken_is_named(what: str):
    change, message = BREAKS[what]
    with pytest.raises(VerifyError, match=message):
        verify(change(GOOD))


def test_the_users_line_is_named():
    bad = eqns(GOOD, 0, ins=(V0,), loc="model.py:12")
    with pytest.raises(VerifyError, match=r"at model\.py:12"):
        verify(bad)


def test_20000_eqns_verify_within_seconds():
    start = Var(0, F2)
    chain = tuple(Eqn("neg", (Var(n, F2),), (Var(n + 1, F2),)) for n in range(20_000))
    graph = Graph((Input(start, "x", Slot()),), chain, (Var(20_000, F2),))
    began = time.perf_counter()
    verify(graph)
    assert time.perf_counter() - began < 5
