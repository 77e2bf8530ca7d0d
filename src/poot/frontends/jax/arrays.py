# pyright: basic
"""JAX's arrays and dtypes, as numpy arrays and poot's dtypes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from poot.frontends.jax.keys import words_of
from poot.frontends.width import held_in_32
from poot.ir.graph import TensorType

# A jax dtype by its name, and what it becomes. Integers of 64 bits become i32, checked where their
# values are known.
DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "int64": "i32",
    "int32": "i32",
    "uint32": "u32",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}


def dtype_name(dtype: Any) -> str | None:
    """poot's dtype for a jax or numpy dtype, or None where there is none."""
    return DTYPES.get(str(dtype))


def type_of(aval: Any) -> TensorType | str:
    """The type of an abstract value or an array, of random keys that of their words; or why poot
    has none."""
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):
        return f"a value that is no array: {aval}"
    words = words_of(aval.dtype)
    dtype = "u32" if words is not None else dtype_name(aval.dtype)
    if dtype is None:
        return f"a value of {aval.dtype}, which poot has not"
    if not all(isinstance(n, (int, np.integer)) for n in aval.shape):
        return f"a shape that is not known: {aval.shape}"
    return TensorType(dtype, (*(int(n) for n in aval.shape), *(words or ())))


def is_concrete(value: Any) -> bool:
    """Whether an array's elements are there, not its shape and dtype alone."""
    if words_of(getattr(value, "dtype", None)) is not None:
        return isinstance(value, importlib.import_module("jax").Array)
    return hasattr(value, "__array__")


def as_numpy(value: Any, name: str) -> np.ndarray:
    """An array's elements, in its own memory where that is the host's. int64 that fits becomes
    int32, and a random key its words. Raises TraceError on integers that don't fit."""
    if words_of(getattr(value, "dtype", None)) is not None:
        value = importlib.import_module("jax").random.key_data(value)
    return held_in_32(np.asarray(value), name)
