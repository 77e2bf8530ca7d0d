"""What a step is given for its slots, checked and compared with what is bound already.

A step runs often, so all that can be known of a slot before it is: a value that is right is told
by a few comparisons, and only one that isn't goes through `slots.check_slot`, which says why.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from poot.binding import as_array
from poot.bound_slots import Bound
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Input, Slot
from poot.slots import WRITE_MAP, ForwardSlotMap, check_slot

Key = tuple[str, str]  # entry point and slot


class SlotCheck:
    """`check_slot` of one input, of what `step` takes. Raises its errors."""

    def __init__(self, i: Input) -> None:
        slot = i.storage
        assert isinstance(slot, Slot)
        self.input = i
        self.shape = i.var.type.shape
        self.dtype = DTYPES[i.var.type.dtype].numpy
        self._is_one = math.prod(self.shape) == 1
        self._range = slot.range
        # A write map's rows are checked as a whole, and more than one word by numpy.
        self._is_plain = slot.kind != WRITE_MAP and (slot.range is None or self._is_one)

    def plain(self, value: object) -> np.ndarray | None:
        """The value, an array or a scalar of numpy's, where a few comparisons tell that it is
        right."""
        if self._is_plain and isinstance(value, (np.ndarray, np.generic)):
            given = cast("np.ndarray", value)  # a scalar of numpy's answers all that is asked here
            if given.dtype == self.dtype and given.shape == self.shape:
                if self._range is None:
                    return given
                lo, hi = self._range
                if lo <= given.item() < hi:
                    return given
        return None

    def __call__(self, value: object) -> np.ndarray:
        """The value as an array of the slot's type, or a scalar of numpy's."""
        given = self.plain(value)
        return self._whole(value) if given is None else given

    def _whole(self, value: object) -> np.ndarray:
        if isinstance(value, ForwardSlotMap):
            return check_slot(self.input, value)
        return check_slot(self.input, as_array(value, self.input.name, self.input.var.type))


class HeldSlots:
    """What each slot holds: the bytes that the last step gave, an array that a change in part left,
    or nothing that the host knows (it came from the device)."""

    def __init__(self) -> None:
        self._bytes: dict[Key, bytes] = {}
        self._bound: dict[Key, Bound] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._bytes or key in self._bound

    def known(self, key: Key) -> bytes | None:
        """The bytes that the last step gave, where the slot still holds them."""
        return self._bytes.get(key)

    def keep(self, key: Key, raw: bytes) -> None:
        """Bytes in place of those that `known` gave."""
        self._bytes[key] = raw

    def take(self, key: Key, value: np.ndarray) -> bytes | None:
        """Keeps a copy of the value; its bytes where they differ from what is held."""
        raw = value.tobytes()
        held = self._bytes.get(key)
        if held is None:
            bound = self._bound.pop(key, None)
            held = None if bound is None or bound.host is None else bound.host.tobytes()
        self._bytes[key] = raw
        return raw if held != raw else None

    def put(self, key: Key, host: np.ndarray | None) -> None:
        """The whole slot after a change, or None where the host doesn't know it."""
        self._bytes.pop(key, None)
        self._bound[key] = Bound(host)

    def drop(self, key: Key) -> None:
        """The slot holds nothing."""
        self._bytes.pop(key, None)
        self._bound.pop(key, None)

    def get(self, key: Key, check: SlotCheck) -> Bound | None:
        """What the slot holds, for a reader that copies."""
        raw = self._bytes.get(key)
        if raw is None:
            return self._bound.get(key)
        return Bound(np.frombuffer(raw, check.dtype).reshape(check.shape))

    def copy(self) -> HeldSlots:
        other = HeldSlots()
        other._bytes, other._bound = dict(self._bytes), dict(self._bound)
        return other
