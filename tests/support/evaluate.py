"""One op on arrays, through the oracle."""

from __future__ import annotations

import numpy as np

from poot.ir.build import Builder
from poot.ir.dtypes import dtype_of
from poot.ir.graph import Slot, TensorType
from poot.oracle import run


def evaluate(
    op: str, *arrays: np.ndarray, f64: bool = False, **attrs: object
) -> tuple[np.ndarray, ...]:
    """The op's results on these operands, each an input of its own dtype."""
    b = Builder()
    feed: dict[str, object] = {}
    ins = []
    for n, given in enumerate(arrays):
        array = np.asarray(given)
        dtype = dtype_of(array.dtype)
        assert dtype is not None, array.dtype
        ins.append(b.input(TensorType(dtype, array.shape), f"x{n}", Slot()))
        feed[f"x{n}"] = array
    outs = b.emit(op, *ins, **attrs)
    return run(b.graph(outs), feed, f64=f64).outputs


def one(op: str, *arrays: np.ndarray, f64: bool = False, **attrs: object) -> np.ndarray:
    """The only result of `evaluate`."""
    (result,) = evaluate(op, *arrays, f64=f64, **attrs)
    return result
