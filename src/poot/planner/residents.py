"""What stays on the device between steps: Weights, States, Slots and Consts, matched by name over
entry points.

Each space is cut into buffers no larger than the device allows; no value straddles two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.errors import BindingLimit, PlanError
from poot.ir.graph import Const, Graph, Input, Slot, State, TensorType, Weight
from poot.limits import DeviceLimits
from poot.planner.plan import Place, Resident
from poot.planner.request import Layout

SPACES = {Weight: "weights", State: "states", Slot: "slots", Const: "consts"}


@dataclass(slots=True)
class Spaces:
    """Hands out places in growing spaces; sizes in bytes."""

    limits: DeviceLimits
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    parts: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, space: str, nbytes: int, name: str) -> Place:
        """The next place of a space. Raises BindingLimit where a value passes the device's largest
        binding."""
        most = min(self.limits.binding_nbytes, self.limits.buffer_nbytes)
        if nbytes > most:
            raise BindingLimit(
                f"{name} has {nbytes} bytes and {self.limits.name} binds at most {most} at once; "
                "split it, or choose a smaller dtype or capacity"
            )
        align = self.limits.offset_align
        padded = max(align, -(-nbytes // align) * align)
        part = self.parts.setdefault(space, 0)
        key = f"{space}.{part}" if part else space
        if self.sizes.get(key, 0) + padded > self.limits.buffer_nbytes:
            self.parts[space] = part + 1
            key = f"{space}.{part + 1}"
        offset = self.sizes.get(key, 0)
        self.sizes[key] = offset + padded
        return Place(key, offset, nbytes, name)


def _storage_name(i: Input) -> str:
    return type(i.storage).__name__


def match_inputs(entries: dict[str, Graph]) -> dict[str, tuple[str, Input]]:
    """name -> (first entry point that has it, input). Raises PlanError naming both where two entry
    points disagree. Consts are left out: each is its graph's own, whatever its name."""
    seen: dict[str, tuple[str, Input]] = {}
    for entry, graph in entries.items():
        for i in graph.inputs:
            if isinstance(i.storage, Const):
                continue
            if i.name not in seen:
                seen[i.name] = (entry, i)
                continue
            other_entry, other = seen[i.name]
            if isinstance(i.storage, Slot) and isinstance(other.storage, Slot):
                continue  # a slot belongs to its entry point: extents may differ
            if i.var.type != other.var.type or i.storage != other.storage:
                raise PlanError(
                    f"entry points disagree on {i.name}: {other_entry!r} has "
                    f"{_storage_name(other)} "
                    f"{other.var.type}, {entry!r} has {_storage_name(i)} {i.var.type}"
                )
    return seen


def slot_name(entry: str, name: str) -> str:
    """A slot's resident name: slots belong to their entry point."""
    return f"{entry}:{name}"


def place_resident(spaces: Spaces, i: Input, name: str, layout: Layout, nbytes: int) -> Resident:
    space = SPACES[type(i.storage)]
    return Resident(name, i.var.type, layout, spaces.take(space, nbytes, name))


def resident_nbytes(type: TensorType) -> int:
    """Bytes that a row-major value takes, whole words."""
    return -(-type.nbytes // 4) * 4
