"""Jaxprs as calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import poot
from poot.errors import UnsupportedOps
from poot.frontends.foreign import Call
from poot.frontends.jax.read import MOST_STEPS, Calls
from tests.support.jaxpr import check, floats

X = floats(3, 4)


def calls_of(fn: Callable[..., Any], *args: Any) -> list[Call]:
    jaxpr = jax.make_jaxpr(fn)(*args)
    calls = Calls()
    calls.run(jaxpr.jaxpr, (), [calls.ref() for _ in args])
    return calls.calls


def test_jaxprs_within_are_read_in_place():
    def fn(x: jax.Array) -> jax.Array:
        return jax.jit(jnp.sin)(jax.checkpoint(jnp.cos)(jax.nn.relu(x)))

    assert [c.op for c in calls_of(fn, X) if c.op != "literal"] == ["max", "cos", "sin"]


def test_a_call_knows_its_line():
    (call,) = calls_of(lambda x: lax.sin(x), X)
    path, line = call.loc.rsplit(":", 1)
    assert path == __file__
    assert "lax.sin" in Path(__file__).read_text().splitlines()[int(line) - 1]


def test_custom_derivatives_are_passed_over():
    @jax.custom_vjp
    def own(x: jax.Array) -> jax.Array:
        return x * 2

    own.defvjp(lambda x: (own(x), None), lambda _, g: (g * 2,))
    check(lambda x: own(x) + jax.nn.silu(x), X)


def test_a_loop_of_known_length_is_unrolled():
    check(lambda x: lax.fori_loop(0, 3, lambda n, y: y * 2 + n, x), X)


def test_a_scan_that_is_too_long_is_refused():
    def fn(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (c + 1, None), x, None, length=MOST_STEPS + 1)[0]

    with pytest.raises(UnsupportedOps, match="takes 1025 steps, more than 1024"):
        poot.from_jax(fn, X)


def test_a_loop_whose_length_is_data_is_refused():
    def fn(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda y: y.sum() < 10, lambda y: y + 1, x)

    with pytest.raises(UnsupportedOps, match="while: how often it runs is data") as e:
        poot.from_jax(fn, X)
    assert e.value.ops[0].loc.startswith(__file__)


@pytest.mark.parametrize("at", [-1, 0, 1, 2, 9])
def test_a_choice_between_branches_is_a_select(at: int):
    check(lambda x, n: lax.switch(n, (jnp.sin, jnp.cos, jnp.tanh), x), X, np.int32(at))
    check(lambda x, n: lax.cond(n > 0, jnp.sin, jnp.cos, x), X, np.int32(at))


def test_a_value_of_a_dtype_that_poot_has_not_is_said():
    with pytest.raises(UnsupportedOps, match="a value of complex64, which poot has not"):
        poot.from_jax(lambda x: jnp.abs(lax.complex(x, x)), X)


def test_what_a_function_of_jax_calls_is_at_the_line_of_its_caller():
    """Such functions are traced once for all callers: what they hold knows another's line."""

    def first(x: jax.Array) -> jax.Array:
        return jnp.linalg.svd(x)[1]

    def second(x: jax.Array) -> jax.Array:
        y = jnp.fft.fft(x).real.sum()
        return y + jnp.linalg.svd(x.sum(0)[:, None] + jnp.ones((4, 4)))[0]

    for fn, lines in ((first, {1}), (second, {1, 2})):
        with pytest.raises(UnsupportedOps) as e:
            poot.from_jax(fn, X)
        wanted = {f"{__file__}:{fn.__code__.co_firstlineno + n}" for n in lines}
        assert {u.loc for u in e.value.ops} == wanted
        with pytest.raises(UnsupportedOps) as e:
            poot.from_jax(jax.jit(fn), X)
        assert {u.loc for u in e.value.ops} == wanted
