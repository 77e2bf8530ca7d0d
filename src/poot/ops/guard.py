"""Indices from outside: clamped so that they can't do harm, and reported so that they can't
hide."""

from __future__ import annotations

from poot.ops.array import Array, emit_many
from poot.ops.record import refuse


def index_guard(x: Array, lo: int, hi: int, what: str = "") -> tuple[Array, Array]:
    """(x clamped into lo .. hi-1, witness): witness is true where lo <= x < hi held. x is i32. Give
    the witness to `validate`, else a bad index goes by unseen. `what` is what the error says is
    needed, where that is more than the bounds."""
    if what:
        clamped, witness = emit_many("index_guard", x, lo=lo, hi=hi, what=what)
    else:
        clamped, witness = emit_many("index_guard", x, lo=lo, hi=hi)
    return clamped, witness


def validate(witness: Array) -> None:
    """Declares witness (bool, any shape) a validation output: a step in which one element is false
    raises ValidationError, returns nothing and leaves every State as it was."""
    if witness.dtype != "bool":
        refuse("validate", "a bool witness", "Write ops.validate(x != 0)", witness=witness.type)
    builder = witness.recorder.builder
    if witness.var not in builder.validations:
        builder.validations.append(witness.var)


def checked(x: Array, lo: int, hi: int) -> Array:
    """x clamped into lo .. hi-1, with the witness declared: a step with an index outside fails."""
    clamped, witness = index_guard(x, lo, hi)
    validate(witness)
    return clamped
