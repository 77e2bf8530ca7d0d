"""The oracle's table: one numpy function an op, which is the op's definition.

A row takes an `At`, the operands as arrays and the attributes by name, as the typing rule does, and
returns an array or a tuple of them. In f32 mode an array has its type's own dtype, and a row
computes in f32 and rounds once to the result's dtype. In f64 mode every float array is float64,
unrounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Graph, TensorType

Row = Callable[..., "np.ndarray | tuple[np.ndarray, ...]"]


def held_dtype(dtype: str, f64: bool) -> np.dtype:
    """The numpy dtype in which the oracle holds values of a dtype."""
    return np.dtype(np.float64) if f64 and is_float(dtype) else DTYPES[dtype].numpy


@dataclass(frozen=True, slots=True)
class At:
    """Where a row runs: the types of its operands and results, the mode, and how to run a body."""

    ins: tuple[TensorType, ...]
    outs: tuple[TensorType, ...]
    f64: bool
    run_body: Callable[[Graph, Sequence[np.ndarray]], tuple[np.ndarray, ...]]

    def wide(self, x: np.ndarray) -> np.ndarray:
        """A float array in the dtype that floats are computed in: f32, or f64."""
        return x.astype(np.float64 if self.f64 else np.float32, copy=False)

    def held(self, x: np.ndarray, out: int = 0) -> np.ndarray:
        """x rounded, once, to how the result of that number is held."""
        return np.asarray(x).astype(held_dtype(self.outs[out].dtype, self.f64), copy=False)


ROWS: dict[str, Row] = {}


def row(name: str) -> Callable[[Row], Row]:
    """Adds a row to the table."""

    def add(fn: Row) -> Row:
        assert name not in ROWS, name
        ROWS[name] = fn
        return fn

    return add
