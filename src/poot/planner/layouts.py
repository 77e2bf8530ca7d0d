"""Physical layouts of Weights: how the logical array is packed, once, at bind. One row a packing.

`row_major` is the array as numpy has it. Every other row is asked for by a schedule and documented
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from poot.ir.dtypes import DTYPES
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


def _in_panels(x: np.ndarray, params: tuple[int, ...]) -> np.ndarray:
    """[axis / width, the other axes in order, width]: `width` neighbours along the axis lie side by
    side. The last panel is filled up with zeros."""
    axis, width = params
    last = np.moveaxis(x, axis, -1)
    count = last.shape[-1]
    panels = -(-count // width)
    rest = last.reshape(math.prod(last.shape[:-1]), count)
    out = np.zeros((panels, rest.shape[0], width), x.dtype)
    whole = count // width
    full = rest[:, : whole * width].reshape(rest.shape[0], whole, width)
    out[:whole] = full.transpose(1, 0, 2)
    if whole < panels:
        out[whole, :, : count - whole * width] = rest[:, whole * width :]
    return out


def panel_elems(type: TensorType, params: tuple[int, ...]) -> int:
    """Elements of a value in panels, the filling included."""
    axis, width = params
    extent = type.shape[axis]
    return type.elems // extent * (-(-extent // width) * width) if extent else 0


def _panels_nbytes(type: TensorType, params: tuple[int, ...]) -> int:
    each = DTYPES[type.dtype].nbytes
    return -(-panel_elems(type, params) * each // 4) * 4


PACKINGS: dict[str, Packing] = {
    "row_major": Packing(_plain_nbytes, _same),
    "panels": Packing(_panels_nbytes, _in_panels),
}


def packed_nbytes(type: TensorType, layout: Layout) -> int:
    return PACKINGS[layout.kind].nbytes(type, layout.params)


def pack(x: np.ndarray, layout: Layout) -> np.ndarray:
    return PACKINGS[layout.kind].pack(x, layout.params)
