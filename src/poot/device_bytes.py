"""Arrays as the device holds them, and back: C order, a bool a u32 word, padded to whole words."""

from __future__ import annotations

import numpy as np

from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType


def to_device(x: np.ndarray, type: TensorType) -> np.ndarray:
    """The array's device bytes (u8). The array already has the type's shape and dtype."""
    if type.dtype == "bool":
        x = x.astype(np.uint32)
    flat = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    pad = -flat.size % 4
    return np.concatenate([flat, np.zeros(pad, np.uint8)]) if pad else flat


def from_device(data: np.ndarray, type: TensorType) -> np.ndarray:
    """The array that device bytes hold; a view of them where no conversion is needed."""
    if type.dtype == "bool":
        return data[: 4 * type.elems].view(np.uint32).reshape(type.shape) != 0
    return data[: type.nbytes].view(DTYPES[type.dtype].numpy).reshape(type.shape)
