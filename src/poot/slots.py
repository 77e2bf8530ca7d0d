"""What is bound at each step, and the checks that run before anything is dispatched.

A slot's kind says what its words mean. `pos` i32 [] or [B]: the position of each row's first new
token. `tokens` i32: token ids. `slot_map` i32 [rows, cap]: the pool slot of each logical position,
read. `write_map` i32 [N]: the pool slot of each new token, or -1. `user`, or another word: free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.errors import BindError, RangeError, SlotMapError, TypeRuleError
from poot.ir.dtypes import DTYPES, dtype_of, is_integer
from poot.ir.graph import Input, Slot, TensorType, Var

POS = "pos"
TOKENS = "tokens"
SLOT_MAP = "slot_map"
WRITE_MAP = "write_map"
USER = "user"

# kind -> (dtype, the ranks it may have)
_KNOWN_KINDS: dict[str, tuple[str, tuple[int, ...]]] = {
    POS: ("i32", (0, 1)),
    TOKENS: ("i32", (0, 1, 2)),
    SLOT_MAP: ("i32", (2,)),
    WRITE_MAP: ("i32", (1,)),
}
_I32 = (-(2**31), 2**31)


def check_slot_type(slot: Slot, type: TensorType, name: str) -> None:
    """Raises TypeRuleError where a kind that poot knows has another dtype or rank, or a range is
    empty or stands on what is no integer."""
    if slot.kind in _KNOWN_KINDS:
        dtype, ranks = _KNOWN_KINDS[slot.kind]
        if type.dtype != dtype or len(type.shape) not in ranks:
            allowed = " or ".join(map(str, ranks))
            what = f"slot {name!r} of kind {slot.kind} needs {dtype} of rank {allowed}: {type}"
            raise TypeRuleError(what)
    if slot.range is not None:
        lo, hi = slot.range
        if not is_integer(type.dtype) or lo >= hi:
            what = f"slot {name!r} needs integers and lo < hi for a range: {type}, {lo}..{hi}"
            raise TypeRuleError(what)


@dataclass(frozen=True, slots=True, eq=False)
class ForwardSlotMap:
    """A checked write map: `rows[i]` is the pool slot of new row i, -1 writes nothing.

    Takes any integers of rank 1 and keeps a read-only i32 copy. Raises SlotMapError where a slot
    lies outside 0 .. pool_slots - 1, or is named twice."""

    rows: np.ndarray
    pool_slots: int

    def __post_init__(self) -> None:
        given = np.asarray(self.rows)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            what = f"a write map needs integers of shape [N]: {given.dtype}{list(given.shape)}"
            raise SlotMapError(what)
        wide = given.astype(np.int64)
        outside = np.flatnonzero((wide < -1) | (wide >= self.pool_slots))
        if outside.size:
            at = int(outside[0])
            what = f"a write map needs slots in 0..{self.pool_slots - 1}, or -1 for no write"
            raise SlotMapError(f"{what}: rows[{at}]={wide[at]}")
        used = wide[wide >= 0]
        slots, first = np.unique(used, return_index=True)
        if slots.size < used.size:
            again = int(np.setdiff1d(np.arange(used.size), first)[0])
            at = np.flatnonzero(wide == used[again])
            what = f"a write map needs each slot once: rows[{at[0]}] and rows[{at[1]}] are both"
            raise SlotMapError(f"{what} {used[again]}")
        rows = wide.astype(np.int32)
        rows.flags.writeable = False
        object.__setattr__(self, "rows", rows)


def check_array(i: Input, given: object) -> np.ndarray:
    """`given` as an array of the input's type. Raises BindError: name, rank, shape or dtype.

    Nothing is cast but int64 to i32, and Python ints to i32 or u32, where every value fits:
    RangeError where one does not."""
    array = np.asarray(given)
    want = i.var.type
    if array.shape != want.shape:
        seen = f"[{','.join(map(str, array.shape))}]"
        rank = f" of rank {array.ndim}" if array.ndim != len(want.shape) else ""
        raise BindError(f"input {i.name!r} needs {want}: got {seen}{rank}")
    held = DTYPES[want.dtype].numpy
    if array.dtype == held:
        return array
    python_ints = not hasattr(given, "dtype") and array.dtype == np.int64
    if array.dtype == np.int64 and (want.dtype == "i32" or (python_ints and want.dtype == "u32")):
        lo, hi = (0, 2**32) if want.dtype == "u32" else _I32
        _check_range(i.name, array, lo, hi)
        return array.astype(held)
    seen = dtype_of(array.dtype) or str(array.dtype)
    remedy = f"cast it yourself, as in x.astype({held.name})"
    raise BindError(f"input {i.name!r} needs {want}: got {seen}; {remedy}")


def check_slot(i: Input, given: object) -> np.ndarray:
    """What is bound to a slot at a step, checked: `check_array`, then the declared range.

    Raises BindError or RangeError (slot, index, value, range). A write map is bound only as a
    ForwardSlotMap, for a pool no larger than the slot's declared range: SlotMapError."""
    slot = i.storage
    if not isinstance(slot, Slot):
        raise BindError(f"input {i.name!r} is no slot: it is bound once, not at a step")
    if isinstance(given, ForwardSlotMap):
        if slot.range is not None and given.pool_slots > slot.range[1]:
            what = f"slot {i.name!r} writes a pool of {slot.range[1]} slots"
            raise SlotMapError(f"{what}, and the map is for one of {given.pool_slots}")
        given = given.rows
    elif slot.kind == WRITE_MAP:
        what = f"slot {i.name!r} of kind write_map needs a ForwardSlotMap: {type(given).__name__}"
        raise BindError(f"{what}; make one with poot.slots.ForwardSlotMap(rows, pool_slots)")
    array = check_array(i, given)
    if slot.range is not None:
        _check_range(i.name, array, *slot.range)
    return array


# Arrays up to this size are compared in Python: a reduction of numpy's takes longer to start.
_FEW = 16


def _is_inside(array: np.ndarray, lo: int, hi: int) -> bool:
    if array.size <= _FEW:
        return all(lo <= word < hi for word in array.reshape(-1).tolist())
    return int(array.min()) >= lo and int(array.max()) < hi


def _check_range(name: str, array: np.ndarray, lo: int, hi: int) -> None:
    if _is_inside(array, lo, hi):
        return
    at = int(np.flatnonzero((array < lo) | (array >= hi))[0])
    index = tuple(int(n) for n in np.unravel_index(at, array.shape))
    raise out_of_range(name, index, int(array.flat[at]), lo, hi)


def out_of_range(name: str, index: tuple[int, ...], value: int, lo: int, hi: int) -> RangeError:
    """The error of a word outside its slot's range, wherever that was found."""
    where = ", ".join(map(str, index))
    return RangeError(f"slot {name!r} needs values in {lo}..{hi - 1}: [{where}] is {value}")


def check_update(
    i: Input, index: tuple[object, ...], values: object
) -> tuple[np.ndarray, np.ndarray]:
    """(flat element numbers, values) of a change of some elements of a slot: `index` has integers
    for each axis, and broadcasts with `values`. What is named twice takes the last value.

    Raises BindError (rank, dtype, an index outside the slot, a write map, which is bound whole) or
    RangeError with the place in the slot."""
    slot, type = i.storage, i.var.type
    if not isinstance(slot, Slot):
        raise BindError(f"input {i.name!r} is no slot: it is bound once, not at a step")
    if slot.kind == WRITE_MAP:
        raise BindError(f"slot {i.name!r} of kind write_map is bound whole, as a ForwardSlotMap")
    if len(index) != len(type.shape):
        raise BindError(
            f"slot {i.name!r} {type} needs an index for each axis: got {len(index)} of them"
        )
    try:
        axes = [np.asarray(x) for x in index]
    except ValueError as e:
        raise BindError(f"slot {i.name!r} needs integers to index it: {e}") from e
    for axis, (given, extent) in enumerate(zip(axes, type.shape, strict=True)):
        if given.dtype.kind not in "iu":
            raise BindError(f"slot {i.name!r} needs integers to index axis {axis}: {given.dtype}")
        if given.size and not (int(given.min()) >= 0 and int(given.max()) < extent):
            bad = int(given[(given < 0) | (given >= extent)].flat[0])
            raise BindError(f"slot {i.name!r} {type} has no {bad} on axis {axis}")
    new = np.asarray(values)
    try:
        shape = np.broadcast_shapes(*(a.shape for a in axes), new.shape)
    except ValueError as e:
        shapes = ", ".join(str(a.shape) for a in (*axes, new))
        raise BindError(f"slot {i.name!r} needs indices and values of one shape: {shapes}") from e
    part = Input(Var(i.var.id, TensorType(type.dtype, new.shape)), i.name, Slot(slot.kind))
    checked = check_array(part, values).reshape(new.shape)
    checked = np.broadcast_to(checked, shape).reshape(-1)
    wide = [np.broadcast_to(a, shape).reshape(-1).astype(np.int64) for a in axes]
    _check_new(i.name, checked, wide, slot)
    flat = np.ravel_multi_index(tuple(wide), type.shape) if wide else np.zeros(1, np.int64)
    _, last = np.unique(flat[::-1], return_index=True)
    kept = flat.size - 1 - last
    return flat[kept], checked[kept]


def _check_new(name: str, values: np.ndarray, axes: list[np.ndarray], slot: Slot) -> None:
    if slot.range is None or values.size == 0:
        return
    lo, hi = slot.range
    bad = np.flatnonzero((values < lo) | (values >= hi))
    if bad.size:
        at = int(bad[0])
        raise out_of_range(name, tuple(int(a[at]) for a in axes), int(values[at]), lo, hi)
