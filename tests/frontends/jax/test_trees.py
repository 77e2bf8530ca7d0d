"""Trees of arrays as inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import poot
from poot.errors import TraceError
from poot.frontends.jax.trees import read_function
from poot.ir.graph import Const, Slot, State, Weight
from tests.support.jaxpr import floats, storages

X, W = floats(3, 4), {"b": {"c": floats(4, seed=1)}, "a": [floats(4, seed=2), 2]}


def use(w: Any, x: jax.Array) -> jax.Array:
    return x * w["b"]["c"] + w["a"][0] * w["a"][1]


def kinds(fn: Callable[..., Any], *args: Any, **options: Any) -> dict[str, str]:
    got = poot.from_jax(fn, *args, **options)
    return {i.name: type(i.storage).__name__ for i in got.graph.inputs}


def test_a_first_argument_that_is_a_tree_holds_weights():
    assert kinds(use, W, X) == {"w.a.0": "Weight", "w.b.c": "Weight", "x": "Slot"}


def test_the_caller_says_which_hold_weights():
    assert kinds(use, W, X, weights=()) == {"w.a.0": "Slot", "w.b.c": "Slot", "x": "Slot"}
    assert kinds(lambda x, y: x + y, X, X, weights=(1,)) == {"x": "Slot", "y": "Weight"}


def test_a_number_of_no_argument_is_refused():
    with pytest.raises(TraceError, match=r"numbers of arguments: states=\(2,\), of 2 arguments"):
        poot.from_jax(use, W, X, states=(2,))


def test_a_module_is_called_itself():
    linear = eqx.nn.Linear(4, 2, key=jax.random.key(0))
    assert kinds(linear, X[0]) == {"weight": "Weight", "bias": "Weight", "x": "Slot"}
    assert kinds(nnx.Linear(4, 2, rngs=nnx.Rngs(0)), X) == {
        "bias": "Weight", "kernel": "Weight", "inputs": "Slot"
    }  # fmt: skip


def test_what_a_function_closes_over_is_a_weight():
    table = jnp.asarray(X)
    got = poot.from_jax(lambda y: y + table, X)
    assert storages(got, Weight).keys() == {"closed.0"}


def test_integers_and_masks_among_the_weights_are_constants():
    mask = np.where(np.tri(3) > 0, 0, -np.inf).astype(np.float32)
    got = poot.from_jax(lambda w, x: x + w["m"] + w["i"], {"m": mask, "i": np.arange(3)}, X[:, :3])
    assert storages(got, Const).keys() == {"w.m", "w.i"}
    assert got.weights == {}


def test_weights_that_are_tied_are_one():
    w = jnp.asarray(X)
    got = poot.from_jax(lambda w, x: x @ w["a"].T @ w["b"], {"a": w, "b": w}, X)
    assert storages(got, Weight).keys() == {"w.a"}


def test_weights_may_be_shapes_alone():
    shape = jax.ShapeDtypeStruct((4,), jnp.bfloat16)
    got = poot.from_jax(lambda w, x: x * w, shape, X, weights=(0,))
    assert storages(got, Weight).keys() == {"w"}
    assert got.weights == {}


def test_states_are_paired_by_their_places():
    def fn(x: jax.Array, a: Any, b: Any) -> Any:
        return x, ({"n": a["n"] + x}, b * 2)

    got = poot.from_jax(fn, X, {"n": X}, np.zeros((2,), np.float32), states=(1, 2))
    assert storages(got, State).keys() == {"a.n", "b"}
    assert len(got.graph.states) == 2
    assert got.states.keys() == {"a.n"}  # b starts as zeros


@pytest.mark.parametrize(
    "fn, message",
    [
        (lambda x, s: x, r"\(outputs, states\) of a function with states: got"),
        (lambda x, s: (x, {"n": s}), r"states nested as they came, PyTreeDef\(\*\): got"),
        (lambda x, s: (x, s[0]), r"f32\[3,4\] for state s: got f32\[4\]"),
    ],
)
def test_states_that_do_not_come_back_are_refused(fn: Callable[..., Any], message: str):
    with pytest.raises(TraceError, match=message):
        poot.from_jax(fn, X, X, states=(1,))


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(TraceError, match=r"arguments that fit use: missing a required argument"):
        poot.from_jax(use, W)
    with pytest.raises(TraceError, match="from_jax needs a function: got int"):
        poot.from_jax(3, X)  # pyright: ignore[reportArgumentType] - as a user may


def test_dtypes_that_poot_has_not_are_refused_by_name():
    with pytest.raises(TraceError, match=r"poot's dtypes: x is a value of complex64"):
        poot.from_jax(lambda x: x, X.astype(np.complex64))


def test_collected_arguments_are_named_by_number():
    foreign = read_function(lambda *xs: xs[0] + xs[1], (X, X), (), ())
    assert [(g.name, g.storage) for g in foreign.givens] == [("xs.0", Slot()), ("xs.1", Slot())]
