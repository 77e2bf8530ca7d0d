"""What makes a step a transaction: which values are records of guards, which slots may come from
the device, and which programs write State only where every guard held."""

from __future__ import annotations

from poot.ir.graph import Graph, Input, Slot, TensorType, Var
from poot.slots import WRITE_MAP

# What a device reports of a guard: how many elements failed, the first one's flat index, its value.
RECORD = TensorType("i32", (3,))


def is_record(v: Var) -> bool:
    """Whether a validation output is a record, and no longer a witness of bools."""
    return v.type == RECORD


def can_be_fed(i: Input) -> bool:
    """Whether a device array may be bound to this slot and be checked there: an i32 slot with a
    range. A write map is checked by the host alone."""
    slot = i.storage
    if not isinstance(slot, Slot) or slot.range is None:
        return False
    return i.var.type.dtype == "i32" and slot.kind != WRITE_MAP


def fed_inputs(graph: Graph) -> tuple[Input, ...]:
    """The slots that a device array with words out of range could be bound to, in order."""
    return tuple(i for i in graph.inputs if can_be_fed(i))


def writes_state(graph: Graph) -> bool:
    """Whether a step leaves some State other than it was."""
    return any(before.id != after.id for before, after in graph.states)


def is_conditional(graph: Graph) -> bool:
    """Whether a step may fail on the device, and so writes State under a condition."""
    return writes_state(graph) and bool(graph.validations or fed_inputs(graph))
