"""An attention's operands by their names."""

from __future__ import annotations

from collections.abc import Mapping

from poot.ir.attrs import strs_attr
from poot.ir.graph import Eqn, Var


def operands_of(eqn: Eqn) -> dict[str, Var]:
    """The operands of an attention, over all keys or over selected blocks."""
    return dict(zip(strs_attr(eqn, "operands"), eqn.ins, strict=True))


def keys_of(at: Mapping[str, Var]) -> int:
    """Keys of a batch row: those of k, or of the map that its pool is read by."""
    return at["read"].type.shape[1] if "read" in at else at["k"].type.shape[2]
