"""Bits with their dtype beside them, for libraries whose numpy has no bf16 and no fp8."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.errors import BindError
from poot.ir.dtypes import DTYPES

# What carries a dtype that numpy has not.
CARRIERS = {"bf16": np.dtype(np.uint16), "f8e4m3": np.dtype(np.uint8)}


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """Numbers of `dtype` ("bf16" or "f8e4m3") as unsigned integers of their size. Taken wherever an
    array is; `DeviceArray.tagged` gives one. Raises BindError where bits and dtype don't fit."""

    bits: np.ndarray
    dtype: str

    def __post_init__(self) -> None:
        want = CARRIERS.get(self.dtype)
        if want is None:
            raise BindError(f"a tag is one of {', '.join(CARRIERS)}: got {self.dtype!r}")
        if getattr(self.bits, "dtype", None) != want:
            seen = getattr(self.bits, "dtype", type(self.bits).__name__)
            raise BindError(f"{self.dtype} is carried by {want}: got {seen}")

    def array(self) -> np.ndarray:
        """The numbers themselves, in the same memory (ml_dtypes)."""
        return self.bits.view(DTYPES[self.dtype].numpy)


def tagged(array: np.ndarray) -> Tagged:
    """An array of ml_dtypes' bf16 or f8e4m3 as bits, in the same memory. Raises BindError."""
    for name, carrier in CARRIERS.items():
        if array.dtype == DTYPES[name].numpy:
            return Tagged(array.view(carrier), name)
    raise BindError(f"{array.dtype} needs no tag: numpy has it")
