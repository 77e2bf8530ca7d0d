"""Arguments of the wrong kind: every function of `ops` names its own."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest

import poot
from poot import ops
from poot.errors import PootError, TraceError
from poot.ops.array import Array
from poot.ops.edge import KINDS, all_at_the_edge, at_the_edge, kinds_of
from poot.oracle import run
from tests.support.wrong import WRONG, typed_or_fine

FUNCTIONS = tuple(n for n in ops.__all__ if inspect.isfunction(getattr(ops, n)))
# Arguments that any function takes for another parameter, by annotation.
RIGHT = {
    "int": 1, "float": 1.0, "str": "f32", "Sequence[int]": (2,), "tuple[int, ...]": (2,),
    "bool | int | float": 1, "int | float": 2, "int | Sequence[int]": 1, "float | Array": 1.0,
}  # fmt: skip
METHODS = {
    "reshape": 1, "transpose": 1, "swapaxes": 2, "astype": 1, "sum": 2, "max": 2, "min": 2,
    "mean": 2, "__getitem__": 1, "__pow__": 1,
}  # fmt: skip


def traced(body: object) -> poot.ir.graph.Graph:
    return poot.trace(body, (poot.slot((1, 2, 4, 8), "f32"),))


def call_with(name: str, wrong: str, value: object) -> None:
    """The function called with one wrong argument and right ones where it has no defaults."""
    fn = getattr(ops, name)

    def body(x: Array) -> Array:
        placed: list[object] = []
        named: dict[str, object] = {}
        for p in inspect.signature(fn).parameters.values():
            if p.name != wrong and p.default is not p.empty:
                continue
            given = value if p.name == wrong else RIGHT.get(p.annotation, x)
            if p.kind is p.KEYWORD_ONLY:
                named[p.name] = given
            elif len(placed) == list(inspect.signature(fn).parameters).index(p.name):
                placed.append(given)
            else:
                named[p.name] = given
        fn(*placed, **named)
        return x

    traced(body)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_kind_is_a_typed_error_in_every_place(name: str):
    for parameter in inspect.signature(getattr(ops, name)).parameters:
        for value in WRONG:
            typed_or_fine(lambda p=parameter, v=value: call_with(name, p, v))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
def test_so_it_is_for_the_methods_of_a_traced_value(name: str, dtype: str):
    for place, value in itertools.product(range(METHODS[name]), WRONG):

        def body(x: Array, place: int = place, value: object = value) -> Array:
            given: list[object] = [0, False][: METHODS[name]] if place else [0]
            given[place:] = [value]
            getattr(x, name)(*given, *[1] * (name == "swapaxes" and not place))
            return x

        typed_or_fine(lambda body=body: poot.trace(body, (poot.slot((2, 3), dtype),)))


def test_every_annotation_of_ops_is_of_a_known_kind():
    seen = {
        kind
        for name in FUNCTIONS
        for p in inspect.signature(getattr(ops, name)).parameters.values()
        for kind in kinds_of(p.annotation)
    }
    assert seen == set(KINDS)


def test_the_error_names_function_argument_and_line():
    with pytest.raises(TraceError, match="silu needs a traced value for x: got=NoneType") as e:
        traced(lambda x: ops.silu(None))
    assert e.value.loc.rpartition(":")[0] == __file__
    with pytest.raises(TraceError, match=r"rope needs a number for theta: got=str '1e4'"):
        traced(lambda x: ops.rope(x, x, theta="1e4"))
    with pytest.raises(TraceError, match="softmax needs an int for axis: got=bool True"):
        traced(lambda x: ops.softmax(x, True))


def test_a_wrong_count_of_arguments_stays_pythons_error():
    with pytest.raises(TypeError, match="positional argument"):
        traced(lambda x: ops.silu(x, x, x))
    with pytest.raises(TypeError, match="unexpected keyword"):
        traced(lambda x: ops.silu(x, wide=True))


def test_a_numpy_array_stands_for_a_traced_value():
    known = np.arange(3, dtype=np.float32)
    graph = poot.trace(lambda x: ops.exp(known) + x, (poot.slot((3,), "f32"),))
    got = run(graph, {"x": np.zeros(3, np.float32)}).outputs[0]
    np.testing.assert_allclose(got, np.exp(known), rtol=1e-6)


def test_numpys_ints_and_lists_are_plain_ones_inside():
    def double(x: Array, times: int, shape: object = None) -> object:
        return times, shape

    double.__annotations__.update(x="Array", times="int", shape="Sequence[int] | None")
    checked = at_the_edge(double)
    seen: list[object] = []

    def body(x: Array) -> Array:
        seen.append(checked(x, np.int64(2), shape=[1, np.int32(3)]))
        return x

    traced(body)
    assert seen == [(2, (1, 3))]
    assert checked.__name__ == "double"
    assert list(all_at_the_edge({"double": double, "Array": Array}, ["double", "Array"])) == [
        "double"
    ]


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: ops.LinearScaling("2"), "LinearScaling needs a number above 0 for factor"),
        (lambda: ops.LinearScaling(0), "got=0"),
        (lambda: ops.Llama3Scaling(8.0, 1.0, 4.0, None), "for original: got=None"),
        (lambda: ops.Llama3Scaling(8.0, 4.0, 1.0, 8192), "needs low < high"),
        (lambda: ops.YarnScaling(math.inf, 4096), "for factor: got=inf"),
        (lambda: ops.frequencies(1.0, 8, ops.YarnScaling(2.0, 64)), "theta above 1"),
    ],
)
def test_a_scaling_holds_numbers(make, words: str):
    with pytest.raises(PootError, match=words):
        make()
