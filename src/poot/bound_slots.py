"""`session.slots`: what is bound to each slot, read by copy, and changed in part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from poot.binding import as_array
from poot.errors import BindError
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Input
from poot.slots import check_update

# Runs of changed elements with fewer unchanged ones between them are written as one.
_GAP_ELEMS = 16


@dataclass(frozen=True, slots=True)
class Bound:
    """What a slot holds; `host` is None where it came from the device."""

    host: np.ndarray | None


class Holder(Protocol):
    """What a session answers about its slots."""

    def exclusive(self) -> AbstractContextManager[None]: ...
    def slot_inputs(self) -> dict[tuple[str, str], Input]: ...
    def bound_slot(self, entry: str, name: str) -> Bound | None: ...
    def bind_slot(self, entry: str, name: str, value: object) -> None: ...
    def change_slot(
        self, entry: str, name: str, host: np.ndarray | None, parts: list[tuple[int, np.ndarray]]
    ) -> None: ...


def runs_of(flat: np.ndarray, per_word: int) -> list[tuple[int, int]]:
    """[start, stop) runs that hold the sorted element numbers, whole words each. Runs close to one
    another are one."""
    if not flat.size:
        return []
    starts = flat // per_word * per_word
    stops = starts + per_word
    breaks = np.flatnonzero(starts[1:] - stops[:-1] >= _GAP_ELEMS)
    firsts = starts[np.concatenate([[0], breaks + 1])]
    lasts = stops[np.concatenate([breaks, [flat.size - 1]])]
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot of one entry point."""

    holder: Holder
    entry: str
    input: Input

    def read(self) -> np.ndarray:
        """A copy of what is bound. Raises BindError where nothing is, or where it came from the
        device."""
        with self.holder.exclusive():
            return self._host().copy()

    def _bound(self) -> Bound:
        bound = self.holder.bound_slot(self.entry, self.input.name)
        if bound is None:
            raise BindError(f"slot {self.input.name!r} holds nothing yet; write it whole first")
        return bound

    def _host(self) -> np.ndarray:
        host = self._bound().host
        if host is None:
            raise BindError(
                f"slot {self.input.name!r} was given as a device array, which the host doesn't "
                "know; write it whole first"
            )
        return host

    def write(self, value: object) -> None:
        """Binds the whole slot, checked as at a step, for the steps that don't give it."""
        self.holder.bind_slot(self.entry, self.input.name, value)

    def update(self, *index_and_values: object) -> None:
        """update(rows, cols, values): elements [rows[n], cols[n]] become values[n], by numpy's
        broadcasting; one index for each axis of the slot. Only these are checked, and only what
        changed is copied. Raises BindError or RangeError, and then nothing has changed."""
        if not index_and_values:
            raise BindError(f"slot {self.input.name!r} needs an index for each axis, and values")
        *index, values = index_and_values
        given = as_array(values, self.input.name, self.input.var.type)
        with self.holder.exclusive():
            flat, new = check_update(self.input, tuple(index), given)
            bound = self._bound()
            if bound.host is None:
                self._update_unknown(flat, new)
                return
            host = bound.host.copy()
            cells = host.reshape(-1)
            changed = flat[cells[flat] != new]
            cells[flat] = new
            runs = runs_of(changed, self._per_word())
            parts = [(a, cells[a : min(b, cells.size)]) for a, b in runs]
            self.holder.change_slot(self.entry, self.input.name, host, parts)

    def _per_word(self) -> int:
        return max(1, 4 // DTYPES[self.input.var.type.dtype].nbytes)

    def _update_unknown(self, flat: np.ndarray, new: np.ndarray) -> None:
        """Elements of a slot that the host doesn't know: written one by one, in runs."""
        if self._per_word() > 1:
            self._host()
        at = {int(n): k for k, n in enumerate(flat)}
        parts: list[tuple[int, np.ndarray]] = []
        breaks = np.flatnonzero(np.diff(flat) != 1) + 1
        for run in np.split(flat, breaks):
            if run.size:
                parts.append((int(run[0]), new[[at[int(n)] for n in run]]))
        self.holder.change_slot(self.entry, self.input.name, None, parts)


class Slots(Mapping[str, SlotView]):
    """Slots by name; "entry:name" where entry points share a name."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def _names(self) -> dict[str, tuple[str, Input]]:
        inputs = self._holder.slot_inputs()
        plain = [name for _, name in inputs]
        return {
            name if plain.count(name) == 1 else f"{entry}:{name}": (entry, i)
            for (entry, name), i in inputs.items()
        }

    def __getitem__(self, name: str) -> SlotView:
        inputs = self._holder.slot_inputs()
        if not isinstance(cast("object", name), str):  # it comes from the user
            raise BindError(f"a slot is named by a text: got {name!r}")
        entry, colon, short = name.partition(":")
        if colon and (entry, short) in inputs:
            return SlotView(self._holder, entry, inputs[entry, short])
        names = self._names()
        if name not in names:
            several = [f"{e}:{n}" for e, n in inputs if n == name]
            known = ", ".join(several or sorted(names)) or "none"
            what = f"slot {name!r} is of several entry points" if several else f"no slot {name!r}"
            raise BindError(f"{what}; slots: {known}")
        return SlotView(self._holder, *names[name])

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._holder.slot_inputs())
