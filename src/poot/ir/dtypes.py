"""The dtypes of values, and what numpy calls them.

On a device a bool is one u32 word (0 or 1); every other dtype lies there as it does in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype's name, class ("float", "int", "uint", "bool"), bytes on a device, numpy dtype."""

    name: str
    kind: str
    nbytes: int
    numpy: np.dtype


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f32", "float", 4, np.dtype(np.float32)),
        DType("f16", "float", 2, np.dtype(np.float16)),
        DType("bf16", "float", 2, np.dtype(ml_dtypes.bfloat16)),
        DType("f8e4m3", "float", 1, np.dtype(ml_dtypes.float8_e4m3fn)),
        DType("i32", "int", 4, np.dtype(np.int32)),
        DType("u32", "uint", 4, np.dtype(np.uint32)),
        DType("i8", "int", 1, np.dtype(np.int8)),
        DType("u8", "uint", 1, np.dtype(np.uint8)),
        DType("bool", "bool", 4, np.dtype(np.bool_)),
    )
}


def dtype_of(array_dtype: np.dtype) -> str | None:
    """poot's name for a numpy dtype, or None."""
    for d in DTYPES.values():
        if d.numpy == array_dtype:
            return d.name
    return None


def is_float(dtype: str) -> bool:
    return DTYPES[dtype].kind == "float"


def is_integer(dtype: str) -> bool:
    return DTYPES[dtype].kind in ("int", "uint")
