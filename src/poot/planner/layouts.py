"""Physical layouts of Weights: how the logical array is packed, once, at bind. One row a packing.

`row_major` is the array as numpy has it. Every other row is asked for by a schedule and documented
here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poot.ir.graph import TensorType
from poot.planner.request import Layout


@dataclass(frozen=True, slots=True)
class Packing:
    """`nbytes` of the packed form of a type; `pack` makes it from the logical array (device dtype,
    C order)."""

    nbytes: Callable[[TensorType, tuple[int, ...]], int]
    pack: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


def _same(x: np.ndarray, params: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(x)


def _plain_nbytes(type: TensorType, params: tuple[int, ...]) -> int:
    return -(-type.nbytes // 4) * 4


PACKINGS: dict[str, Packing] = {"row_major": Packing(_plain_nbytes, _same)}


def packed_nbytes(type: TensorType, layout: Layout) -> int:
    return PACKINGS[layout.kind].nbytes(type, layout.params)


def pack(x: np.ndarray, layout: Layout) -> np.ndarray:
    return PACKINGS[layout.kind].pack(x, layout.params)
