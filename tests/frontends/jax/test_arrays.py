"""JAX's dtypes and arrays as poot's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from poot.errors import TraceError
from poot.frontends.jax.arrays import as_numpy, dtype_name, is_concrete, type_of
from poot.ir.graph import TensorType


def test_dtypes_have_poots_names():
    assert dtype_name(jnp.zeros(1, jnp.bfloat16).dtype) == "bf16"
    assert dtype_name(np.dtype(np.int64)) == "i32"
    assert dtype_name(np.dtype(np.float64)) is None


def test_the_type_of_an_array_or_of_its_shape_alone():
    assert type_of(jnp.zeros((2, 3))) == TensorType("f32", (2, 3))
    assert type_of(jax.ShapeDtypeStruct((4,), jnp.int8)) == TensorType("i8", (4,))


def test_what_poot_has_no_type_for_is_said():
    assert type_of(np.zeros(2)) == "a value of float64, which poot has not"
    assert "no array" in str(type_of(3))


def test_elements_share_memory_where_they_can():
    array = jnp.arange(4.0)
    assert np.shares_memory(as_numpy(array, "x"), np.asarray(array))
    assert not is_concrete(jax.ShapeDtypeStruct((4,), jnp.int8))


def test_integers_of_64_bits_become_32_or_are_refused():
    assert as_numpy(np.array([1, 2]), "x").dtype == np.int32
    with pytest.raises(TraceError, match=r"x needs integers that fit 32 bits: it holds 1..4294967"):
        as_numpy(np.array([1, 2**32]), "x")
