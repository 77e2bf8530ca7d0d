"""Simulated memory: bounds, alignment, contents that nothing wrote, and what each access is counted
as.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from poot.codegen.kir.nodes import Ins
from poot.codegen.kir.sim.races import Tracker
from poot.codegen.kir.sim.sparse import SparseBuffer
from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.sim.wave import Bools, Ints, Value, Wave


class Space:
    """One buffer, or one workgroup array of all the groups that run together, one behind the other.

    `written` says which elements hold something; None where all do. `loads` and `stores` count
    elements.
    """

    def __init__(
        self,
        name: str,
        dtype: str,
        elems: int,
        data: Value | SparseBuffer,
        written: Bools | None = None,
        tracker: Tracker | None = None,
        is_shared: bool = False,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.elems = elems
        self.data = data
        self.written = written
        self.tracker = tracker
        self.is_shared = is_shared
        self.loads = 0
        self.stores = 0

    # What lies in memory, without checks

    def get(self, flat: Ints) -> Value:
        if isinstance(self.data, SparseBuffer):
            found = self.data.read(flat)
        elif flat.ndim:
            found = self.data[flat]
        else:
            found = cast("Value", self.data[int(flat)])  # a numpy scalar
        return found.astype(np.bool_) if self.dtype == "bool" else found

    def put(self, flat: Ints, value: Value) -> None:
        if isinstance(self.data, SparseBuffer):
            self.data.write(flat, value)
        else:
            self.data[flat] = value

    # Checks, shared by every kind of access

    def flat(self, wave: Wave, index: Value, count: int, ins: Ins) -> Ints:
        """The elements that an access of `count` elements from index on touches: [lanes] or [], or
        [count, ..]. Inactive lanes point at an element that is there.
        """
        is_word = np.asarray(index).dtype == np.int32
        at = np.asarray(index, np.int64)
        if is_word and self.elems >= 1 << 31:
            at = at & 0xFFFFFFFF
        outside = (at < 0) | (at > self.elems - count)
        if outside.any():
            self._outside(wave, at, outside, count, ins)
        if count > 1:
            wave.refuse(
                at % count != 0,
                "misaligned",
                f"{self.name} by {count} at an index that is no multiple",
                ins,
            )
        if wave.mask is not None and at.ndim:
            at = np.where(wave.mask, at, 0)
        if self.is_shared:
            at = at + wave.place.slot * self.elems if len(wave.place.groups) > 1 else at
        return (
            at if count == 1 else at + np.arange(count).reshape((count,) + (1,) * max(at.ndim, 1))
        )

    def _outside(self, wave: Wave, at: Ints, outside: Bools, count: int, ins: Ins) -> None:
        bad = outside if wave.mask is None or not at.ndim else outside & wave.mask
        if bad.any():
            index = int(at.reshape(-1)[int(np.argmax(bad))])
            what = f"{self.name} has {self.elems} elements, {count} at {index}"
            wave.fail("out-of-bounds", what, ins, bad)

    def lanes_of(self, wave: Wave, flat: Ints) -> tuple[Ints, Ints]:
        """Each active access once: the element, flat, and the lane of the wave that touches it."""
        whole = np.broadcast_to(flat, (*flat.shape[:-1], wave.lanes)) if flat.ndim else flat
        whole = np.broadcast_to(whole, (wave.lanes,)) if not flat.ndim else whole
        who = np.broadcast_to(wave.order, whole.shape)
        if wave.mask is not None:
            chosen = np.broadcast_to(wave.mask, whole.shape)
            return whole[chosen], who[chosen]
        return whole.reshape(-1), who.reshape(-1)

    def check_written(self, wave: Wave, flat: Ints, ins: Ins) -> None:
        if self.written is not None:
            empty = np.logical_not(self.written[flat])
            if empty.ndim > 1:
                empty = np.broadcast_to(empty.any(axis=0), (wave.lanes,))
            wave.refuse(empty, "uninitialised", f"{self.name} where nothing wrote", ins)

    def need_written(self, wave: Wave, at: Ints, ins: Ins) -> None:
        """Fails where a tile or box holds what nothing wrote."""
        if self.written is not None and not self.written[at].all():
            wave.fail("uninitialised", f"{self.name} where nothing wrote", ins)

    # The instructions

    def load(self, wave: Wave, index: Value, count: int, ins: Ins) -> Value:
        flat = self.flat(wave, index, count, ins)
        if self.tracker is not None:
            self.tracker.read(wave, *self.lanes_of(wave, flat), ins, ins.attr("cache") == "relaxed")
        self.check_written(wave, flat, ins)
        self.loads += wave.active() * (flat.shape[0] if flat.ndim > 1 else 1)
        return self.get(flat)

    def prefetch(self, wave: Wave, index: Value, ins: Ins) -> None:
        """Reads nothing; the index has to be inside all the same."""
        self.flat(wave, index, 1, ins)

    def store(self, wave: Wave, index: Value, value: Value, count: int, ins: Ins) -> None:
        flat = self.flat(wave, index, count, ins)
        at, who = self.lanes_of(wave, flat)
        if self.tracker is not None:
            self.tracker.write(wave, at, who, ins, ins.attr("cache") == "relaxed")
        self.stores += at.size
        if flat.ndim > 1 or (value.ndim and value.shape[-1] != 1):
            shape = (*flat.shape[:-1], wave.lanes)
            value = np.broadcast_to(value, shape)
            mask = wave.mask
            chosen = value.reshape(-1) if mask is None else value[np.broadcast_to(mask, shape)]
            value = chosen
        self.put(at, value)
        if self.written is not None:
            self.written[at] = True

    def atomic(self, wave: Wave, index: Value, value: Value, ins: Ins) -> Value:
        """Lane by lane, in lane order."""
        flat = self.flat(wave, index, 1, ins)
        self.check_written(wave, flat, ins)
        at, who = self.lanes_of(wave, flat)
        if self.tracker is not None and not self.is_shared:
            self.tracker.write(wave, at, who, ins, True)
        fold = ATOMICS[str(ins.attr("kind"))]
        given = wave.spread(value)
        old = np.zeros(wave.lanes, NUMPY[self.dtype])
        for element, lane in zip(at, who, strict=True):
            old[lane] = self.get(element)
            self.put(element, fold(old[lane], given[lane]))
        self.loads += at.size
        self.stores += at.size
        return old


def _exchange(old: Value, new: Value) -> Value:
    return new


ATOMICS: dict[str, Callable[[Value, Value], Value]] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "exchange": _exchange,
}
