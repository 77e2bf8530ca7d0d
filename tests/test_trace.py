"""What a traced function's specs and results become, and what is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import TraceError, TypeRuleError
from poot.ir.graph import Const, Graph, Slot, State, Weight
from poot.ir.tree import Tree, unflatten
from poot.ir.verify import verify
from poot.oracle import run
from poot.trace import Spec
from tests.support.llama_like import llama_like, llama_like_specs

W = poot.weight((2, 3))


@dataclass(frozen=True, slots=True)
class Cache:
    k: object
    v: object


def names(graph: Graph) -> list[str]:
    return [i.name for i in graph.inputs]


def test_inputs_take_their_arguments_names_in_order():
    def fn(w: dict[str, object], x: object) -> object:
        layers = w["layers"]
        assert isinstance(layers, list)
        return x + layers[0]["q"] + layers[1]["q"] + w["b"]

    graph = poot.trace(fn, ({"layers": [{"q": W}, {"q": W}], "b": W}, W))
    assert names(graph) == ["w.layers.0.q", "w.layers.1.q", "w.b", "x"]
    by_keyword = poot.trace(fn, {"x": W, "w": {"layers": [{"q": W}, {"q": W}], "b": W}})
    assert names(by_keyword) == names(graph)


def test_variable_arguments_are_numbered_and_named():
    def fn(*xs: object, **more: object) -> object:
        return xs[0] + xs[1]

    assert names(poot.trace(fn, (W, W))) == ["xs.0", "xs.1"]

    def keyed(x: object, *, y: object, **more: object) -> object:
        return x + y + more["z"]

    assert names(poot.trace(keyed, {"x": W, "y": W, "z": W})) == ["x", "y", "more.z"]


def test_an_argument_with_a_default_needs_no_spec():
    graph = poot.trace(lambda x, scale=2.0: x * scale, (W,))
    assert names(graph) == ["x"]
    assert graph.eqns[0].attr("value") == 2.0


def test_what_follows_an_argument_left_out_goes_by_its_name():
    def scaled(x, bias=None, by=None):
        return x * by if bias is None else bias

    graph = poot.trace(scaled, {"x": poot.slot((2,), "f32"), "by": poot.slot((2,), "f32")})
    assert [i.name for i in graph.inputs] == ["x", "by"]
    assert [e.op for e in graph.eqns] == ["mul"]


def test_storage_is_what_the_spec_says():
    table = np.arange(6, dtype=np.int32)
    graph = poot.trace(
        lambda w, p, t, c: w[0, 0] + (p + t.sum() + c.sum()).astype("f32"),
        (
            poot.weight((1, 1)),
            poot.slot((), kind="pos", range=(0, 9)),
            poot.slot((4,), kind="mine"),
            poot.const(table),
        ),
    )
    assert [i.storage for i in graph.inputs] == [
        Weight(),
        Slot("pos", (0, 9)),
        Slot("mine"),
        Const(table.tobytes()),
    ]


def test_outputs_keep_their_nesting():
    graph = poot.trace(lambda x, y: {"a": (x, None), "b": [y, x + y]}, (W, W))
    assert isinstance(graph.tree, Tree)
    assert unflatten(graph.tree, [1, 2, 3]) == {"a": (1, None), "b": [2, 3]}
    assert graph.outputs[0] == graph.inputs[0].var


def test_states_pair_with_what_is_returned_for_them():
    state = poot.state((2, 3))

    def fn(kv: list[Cache], x: object) -> object:
        return x, [Cache(c.k + x, c.v) for c in kv]

    graph = poot.trace(fn, ([Cache(state, state)], W))
    k, v = graph.inputs[0].var, graph.inputs[1].var
    assert [i.storage for i in graph.inputs] == [State(), State(), Weight()]
    assert graph.states == ((k, graph.eqns[0].out), (v, v))
    after = run(graph, {"x": np.ones((2, 3), np.float32)}).states
    assert after["kv.0.k"].tolist() == [[1.0] * 3] * 2
    assert after["kv.0.v"].tolist() == [[0.0] * 3] * 2


def test_states_of_several_arguments_come_as_a_tuple_or_by_name():
    state = poot.state((2, 3))
    given = (state, W, {"b": state})
    for fn in (
        lambda a, x, c: (x, (a + x, {"b": c["b"] - x})),
        lambda a, x, c: (x, {"c": {"b": c["b"] - x}, "a": a + x}),
    ):
        graph = poot.trace(fn, given)
        assert names(graph) == ["a", "x", "c.b"]
        ops_by_state = {
            before.id: next(e.op for e in graph.eqns if after in e.outs)
            for before, after in graph.states
        }
        assert ops_by_state == {0: "add", 2: "sub"}


def test_what_is_no_state_in_a_state_argument_may_be_left_out_or_handed_back():
    spec = {"k": poot.state((2, 3)), "read": poot.slot((2,))}
    for fn in (
        lambda kv, x: (x, {"k": kv["k"] + x}),
        lambda kv, x: (x, {"k": kv["k"] + x, "read": kv["read"]}),
    ):
        assert len(poot.trace(fn, (spec, W)).states) == 1
    with pytest.raises(TraceError, match=r"the states kv.k: .*unexpected=\['kv.read'\]"):
        poot.trace(lambda kv, x: (x, {"k": kv["k"], "read": kv["read"] + 1}), (spec, W))


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda kv, x: x, r"\(outputs, states\) returned .*Return the new kv.k, kv.v"),
        (lambda kv, x: (x, {"k": kv["k"]}), r"missing=\['kv.v'\]"),
        (lambda kv, x: (x, {**kv, "w": x}), r"unexpected=\['kv.w'\]"),
        (lambda kv, x: (x, {**kv, "k": 1.0}), r"a value of this trace for each state: name=kv.k"),
        (lambda kv, x: (x, {**kv, "k": x.T}), r"f32\[2,3\] for state kv.k: got=f32\[3,2\]"),
        (lambda kv, x: (x, {**kv, "k": x.astype("f16")}), r"for state kv.k: got=f16\[2,3\]"),
    ],
)
def test_states_that_differ_from_their_arguments_are_refused(fn: object, message: str):
    kv = {"k": poot.state((2, 3)), "v": poot.state((2, 3))}
    assert callable(fn)
    with pytest.raises(TraceError, match=message):
        poot.trace(fn, (kv, W))


@pytest.mark.parametrize(
    "fn, specs, message",
    [
        (lambda x, y: x, (W,), "missing a required argument: 'y'"),
        (lambda x: x, (W, W), "too many positional arguments"),
        (lambda x: x, {"z": W}, "'x'|'z'"),
        (lambda x: x, [W], "a tuple of positional specs or a dict of keyword specs"),
        (lambda x: x, W, "a tuple of positional specs or a dict of keyword specs"),
        (lambda x: x["a"], ({"a": (2, 3)},), "a spec for each leaf: name=x.a.0, got=2"),
        (lambda x: x, (np.zeros(2),), "a spec for each leaf: name=x"),
        (lambda x: 1.0, (W,), "a traced value for each output: name=output, got=1.0"),
        (lambda x: [x, np.zeros(2)], (W,), "a traced value for each output: name=output.1"),
        (lambda x: None, (W,), "at least one output"),
    ],
)
def test_specs_and_outputs_that_do_not_fit_are_refused(fn: object, specs: object, message: str):
    assert callable(fn)
    with pytest.raises(TraceError, match=message):
        poot.trace(fn, specs)  # pyright: ignore[reportArgumentType] - wrong on purpose


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: poot.weight((2,), "f64"), "a dtype among f32, f16"),
        (lambda: poot.state((-1,)), "extents of 0 or more"),
        (lambda: poot.slot((2, 2), kind="pos"), "kind pos needs i32 of rank 0 or 1"),
        (lambda: poot.slot((2,), "f32", kind="tokens"), "kind tokens needs i32"),
        (lambda: poot.slot((2,), range=(3, 3)), "lo < hi"),
        (lambda: poot.slot((2,), "f32", range=(0, 3)), "needs integers"),
        (lambda: poot.slot((2,), range=(0, 2**31 + 1)), "a range that i32 holds"),
        (lambda: poot.slot((2,), kind="a b"), "a kind that is a plain name"),
        (lambda: poot.const(np.zeros(2)), "an array of a dtype among .*dtype=float64"),
        (lambda: poot.const(np.asarray([2**31])), "an int64 array that fits i32"),
    ],
)
def test_specs_that_nothing_can_bind_are_refused(make: object, message: str):
    assert callable(make)
    with pytest.raises((TraceError, TypeRuleError), match=message) as error:
        make()
    assert "test_trace.py" in error.value.loc


def test_a_closed_over_array_is_one_constant():
    table = np.arange(3, dtype=np.float32)
    other = np.ones(3, np.float32)
    graph = poot.trace(lambda x: (x + table) * table - other, (W,))
    assert names(graph) == ["x", "const#0", "const#1"]
    assert graph.inputs[1].storage == Const(table.tobytes())
    feed = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        run(graph, {"x": feed}).outputs[0], (feed + table) * table - other
    )


def test_a_constant_spec_proves_its_own_numbers():
    rows = poot.const(np.asarray([1, 0, 1]))
    graph = poot.trace(lambda x, rows: x[rows], (W, rows))
    assert graph.inputs[1].var.type.dtype == "i32"
    assert graph.outputs[0].type.shape == (3, 3)


def test_each_eqn_names_the_users_line():
    def fn(x: object) -> object:
        y = ops.softmax(x)
        return y + 1.0

    first = fn.__code__.co_firstlineno
    graph = poot.trace(fn, (W,))
    lines = {e.op: e.loc for e in graph.eqns}
    assert lines["exp"] == f"{__file__}:{first + 1}"
    assert lines["add"] == f"{__file__}:{first + 2}"


def test_an_error_names_the_users_line():
    def fn(x: object) -> object:
        return ops.matmul(x, x)

    with pytest.raises(TypeRuleError, match="matmul needs as many columns") as error:
        poot.trace(fn, (W,))
    assert error.value.loc == f"{__file__}:{fn.__code__.co_firstlineno + 1}"


def test_values_of_two_traces_do_not_mix():
    kept: list[object] = []
    poot.trace(lambda x: kept.append(x) or x, (W,))
    with pytest.raises(TraceError, match="add needs operands of one trace"):
        poot.trace(lambda x: x + kept[0], (W,))
    with pytest.raises(TraceError, match="neg needs a trace in progress"):
        -kept[0]
    with pytest.raises(TraceError, match="outputs of this trace"):
        poot.trace(lambda x: kept[0], (W,))


def test_a_trace_within_a_trace_is_its_own():
    inner: list[Graph] = []

    def fn(x: object) -> object:
        inner.append(poot.trace(lambda y: y + ops.ones((3,)), (W,)))
        return x * ops.ones((3,))

    graph = poot.trace(fn, (W,))
    assert [e.op for e in inner[0].eqns] == ["const", "add"]
    assert [e.op for e in graph.eqns] == ["const", "mul"]


def test_a_value_from_nothing_needs_a_trace():
    with pytest.raises(TraceError, match="iota needs a trace in progress"):
        ops.arange(3)


def test_what_the_function_raises_passes_through():
    def fn(x: object) -> object:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        poot.trace(fn, (W,))


def test_gradients_are_refused_by_name():
    for name in ("grad", "value_and_grad"):
        with pytest.raises(TraceError, match=f"{name} needs gradients. Gradients are not in poot"):
            getattr(poot, name)(lambda x: x)


def test_a_spec_is_data():
    assert poot.weight([2, 3]) == Spec(W.type, Weight())  # pyright: ignore[reportArgumentType]
    assert hash(poot.slot((2,), range=(0, 4))) == hash(poot.slot((2,), range=(0, 4)))


@pytest.mark.quick
def test_thirty_two_layers_trace_in_a_fifth_of_a_second():
    """Processor time, the least of three runs; the whole compile has a second."""
    specs = llama_like_specs(32)
    took: list[float] = []
    for _ in range(3):
        start = time.process_time()
        graph = poot.trace(llama_like, specs)
        took.append(time.process_time() - start)
    verify(graph)
    assert len(graph.states) == 64
    assert min(took) < 0.2


@pytest.mark.parametrize("shape", [(1.5,), 3, "ab", None])
def test_a_shape_that_is_no_tuple_of_whole_numbers_is_refused(shape):
    with pytest.raises(TraceError, match="whole extents"):
        poot.slot(shape, "f32")


@pytest.mark.parametrize("limits", [(1,), "ab", (0, 1.5)])
def test_a_range_that_is_no_pair_of_whole_numbers_is_refused(limits):
    with pytest.raises(TraceError, match="whole numbers"):
        poot.slot((), "i32", range=limits)


def test_an_argument_may_not_have_the_name_of_a_keyword_of_step():
    with pytest.raises(TraceError, match="a name other than device_outputs"):
        poot.trace(lambda device_outputs: device_outputs, (poot.slot((2,), "f32"),))
