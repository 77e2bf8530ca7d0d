"""Elementwise primitives against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import poot
from poot.errors import UnsupportedOps
from tests.support.jaxpr import bools, check, edges, floats, ints

X, Y = floats(3, 4), floats(3, 4, seed=1)
P = np.abs(X) + np.float32(0.25)
N, J = ints(3, 4), ints(3, 4, lo=1, seed=1)
A, B = bools(3, 4), bools(3, 4, seed=1)

_UNARY = (
    "neg", "exp", "exp2", "log1p", "expm1", "sin", "cos", "tan", "tanh", "sinh", "cosh", "logistic",
    "erf", "erfc", "abs", "floor", "ceil", "square", "sign", "is_finite",
)  # fmt: skip


@pytest.mark.parametrize("name", _UNARY)
def test_functions_of_floats(name: str):
    check(getattr(lax, name), X)


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt"])
def test_functions_of_positive_floats(name: str):
    check(getattr(lax, name), P)


@pytest.mark.parametrize("name", ["sign", "abs", "floor", "ceil", "is_finite", "exp", "neg"])
def test_functions_at_the_edges(name: str):
    check(getattr(lax, name), edges())


@pytest.mark.parametrize("way", list(lax.RoundingMethod))
def test_rounding_goes_where_it_says(way: lax.RoundingMethod):
    check(lambda x: lax.round(x, way), edges())


def test_the_next_float_on_the_way():
    inf = np.float32("inf")
    check(lambda x: (lax.nextafter(x, x * 0 + inf), lax.nextafter(x, -x)), X)
    ends = np.array([1.0, -1.0, np.inf, -np.inf, np.nan, 3.4028235e38], np.float32)
    check(lambda x: (lax.nextafter(x, jnp.full(6, -inf)), lax.nextafter(x, jnp.full(6, inf))), ends)


@pytest.mark.parametrize("name", ["neg", "abs", "sign", "square", "bitwise_not"])
def test_functions_of_integers(name: str):
    check(getattr(lax, name), N)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "max", "min"])
@pytest.mark.parametrize("a, b", [(X, Y), (N, J)])
def test_two_operands(name: str, a: np.ndarray, b: np.ndarray):
    check(getattr(lax, name), a, b)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("a, b", [(N, J), (A, B)])
def test_bits(name: str, a: np.ndarray, b: np.ndarray):
    check(getattr(lax, name), a, b)


def test_functions_of_bools():
    check(lambda a, b: (lax.max(a, b), lax.min(a, b), jnp.logical_not(a)), A, B)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("a, b", [(X, Y), (N, J), (A, B)])
def test_comparisons(name: str, a: np.ndarray, b: np.ndarray):
    check(getattr(lax, name), a, b)


@pytest.mark.parametrize("name", ["shift_left", "shift_right_logical", "shift_right_arithmetic"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_shifts(name: str, dtype: Any):
    check(getattr(lax, name), (N * 1001).astype(dtype), (J % 8).astype(dtype))


@pytest.mark.parametrize("power", [-2, -1, 0, 1, 2, 3, 7])
def test_whole_powers(power: int):
    check(lambda x: lax.integer_pow(x, power), P)


def test_any_power():
    check(lax.pow, P, Y)
    check(lambda x: jnp.power(x, 2.0), X)


def test_a_choice_by_a_bool_or_a_number():
    check(lax.select_n, A, X, Y)
    check(lambda n, *x: lax.select_n(n, *x), np.abs(N) % 3, X, Y, P)
    check(lambda a, x: jnp.where(a, x, -jnp.inf), A, X)


def test_a_value_between_two():
    check(lambda x: jnp.clip(x, -0.5, 0.5), X)
    check(lax.clamp, np.float32(-0.5), edges(), np.float32(0.5))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "bool", "uint32"])
def test_casts(dtype: str):
    check(lambda x: x.astype(dtype), np.abs(X) * 3)


def test_bits_read_as_another_dtype():
    check(lambda x: lax.bitcast_convert_type(x, jnp.int32), X)


@pytest.mark.parametrize("bits", [(8, 23), (5, 10), (8, 7)])
def test_rounding_to_a_shorter_float(bits: tuple[int, int]):
    check(lambda x: lax.reduce_precision(x, *bits), X)


def test_rounding_to_a_float_that_poot_has_not_is_refused():
    with pytest.raises(UnsupportedOps, match="the bits of f32, f16 or bf16: e=4, m=3"):
        poot.from_jax(lambda x: lax.reduce_precision(x, 4, 3), X)


def test_what_changes_nothing():
    check(lambda x: lax.stop_gradient(x) + 1, X)
    check(lambda x, y: lax.optimization_barrier((x, y)), X, Y)


def test_activations():
    for fn in (jax.nn.relu, jax.nn.silu, jax.nn.gelu, jax.nn.softplus, jax.nn.elu):
        check(fn, X * 3)


def test_arrays_in_the_program():
    check(lambda x: x + np.arange(4, dtype=np.float32), X)
    check(lambda x: x + np.arange(4), N)


def test_a_shift_by_more_bits_than_there_are_leaves_none():
    by = np.array([0, 1, 31, 32, 33, 40], np.int32)
    for x in (np.full(6, -5, np.int32), np.full(6, 0xF0000003, np.uint32)):
        for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
            check(getattr(lax, name), x, by.astype(x.dtype))
