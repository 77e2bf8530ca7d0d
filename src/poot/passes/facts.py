"""Small facts about eqns that several passes ask for."""

from __future__ import annotations

import numpy as np

from poot.ir.dtypes import DTYPES, is_float
from poot.ir.graph import Eqn, Var
from poot.passes.engine import Scope


def number_of(scope: Scope, var: Var) -> float | None:
    """The number that every element of var is, as its dtype holds it."""
    eqn = scope.producer(var)
    if eqn is None or eqn.op != "const":
        return None
    value = eqn.attr("value")
    assert isinstance(value, (int, float))
    if not is_float(var.type.dtype):
        return float(value)
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(DTYPES[var.type.dtype].numpy))


_EXACT_IN = {"f16": ("f32",), "bf16": ("f32",), "f8e4m3": ("f16", "bf16", "f32")}


def is_float_cast(eqn: Eqn) -> bool:
    """Whether eqn is a cast from a float to a float."""
    floats = is_float(eqn.outs[0].type.dtype) and eqn.op == "cast"
    return floats and is_float(eqn.ins[0].type.dtype)


def is_widening(eqn: Eqn) -> bool:
    """Whether eqn is a cast between floats that changes no value."""
    if eqn.op != "cast":
        return False
    return eqn.out.type.dtype in _EXACT_IN.get(eqn.ins[0].type.dtype, ())
