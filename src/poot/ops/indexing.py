"""What `x[...]` asks for, worked out from the index and x's shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from poot.ops.record import refuse

_REMEDY = "Allowed are ints, slices with int bounds, None, ... and one i32 array"


@dataclass(frozen=True, slots=True)
class Selection:
    """One static indexing. First axis a of x is cut to start:stop:step (step > 0); then the axes of
    `flip` are reversed; then `shape` is taken (axes of ints gone, axes of None there); then, if
    `axis` >= 0, the index array at `position` of the index gathers along that axis."""

    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...]
    flip: tuple[int, ...]
    shape: tuple[int, ...]
    axis: int
    position: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """One axis of x: start, stop, step > 0, whether reversed, and the extent it leaves (None: no
    axis)."""

    start: int
    stop: int
    step: int
    flip: bool
    extent: int | None


def _whole(index: tuple[object, ...], shape: tuple[int, ...]) -> list[tuple[int, object]]:
    """The index with ... written out: (position in the index or -1, part)."""
    rank = len(shape)
    used = sum(1 for part in index if part is not None and part is not Ellipsis)
    dots = sum(1 for part in index if part is Ellipsis)
    if used > rank or dots > 1:
        refuse("indexing", "at most one index an axis and one ...", index=index, shape=shape)
    out: list[tuple[int, object]] = []
    fill: list[tuple[int, object]] = [(-1, slice(None))] * (rank - used)
    for position, part in enumerate(index):
        out.extend(fill if part is Ellipsis else [(position, part)])
    return out if dots else out + fill


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _cut_slice(part: slice[object, object, object], axis: int, extent: int) -> _Cut:
    if not all(b is None or _is_int(b) for b in (part.start, part.stop, part.step)):
        refuse(
            "indexing", "slices with int bounds", "Write ops.dynamic_slice", index=part, axis=axis
        )
    if part.step == 0:
        refuse("indexing", "a step other than 0", index=part, axis=axis)
    picked = range(*part.indices(extent))
    if len(picked) == 0:
        return _Cut(0, 0, 1, False, 0)
    low, high = min(picked[0], picked[-1]), max(picked[0], picked[-1])
    return _Cut(low, high + 1, abs(picked.step), picked.step < 0, len(picked))


def _cut(part: object, axis: int, extent: int) -> _Cut:
    if isinstance(part, slice):
        bounds = cast("slice[object, object, object]", part)  # isinstance says no more
        return _cut_slice(bounds, axis, extent)
    if not _is_int(part):
        rule = "an index known at trace time or an i32 array"
        refuse("indexing", rule, _REMEDY, index=part, axis=axis)
    at = int(cast("int", part))  # _is_int has checked
    if not -extent <= at < extent:
        refuse("indexing", "an index inside its axis", index=at, axis=axis, extent=extent)
    return _Cut(at % extent, at % extent + 1, 1, False, None)


def select(
    index: tuple[object, ...], shape: tuple[int, ...], arrays: tuple[type, ...]
) -> Selection:
    """The Selection that `index` asks of `shape`; instances of `arrays` are index arrays. Raises
    TypeRuleError on an index outside its axis or of another kind."""
    cuts: list[_Cut] = []
    kept: list[int] = []
    axis = position = -1
    for at, part in _whole(index, shape):
        if part is None:
            kept.append(1)
            continue
        extent = shape[len(cuts)]
        if isinstance(part, arrays):
            if axis >= 0:
                rule = "at most one index array"
                refuse("indexing", rule, "Gather one axis at a time", shape=shape)
            axis, position = len(kept), at
            cut = _Cut(0, extent, 1, False, extent)
        else:
            cut = _cut(part, len(cuts), extent)
        cuts.append(cut)
        if cut.extent is not None:
            kept.append(cut.extent)
    if axis >= 0 and any(cut.extent is None for cut in cuts):
        rule = "no ints beside an index array"
        refuse("indexing", rule, "Index twice: x[0][:, ids]", shape=shape)
    return Selection(
        tuple(cut.start for cut in cuts),
        tuple(cut.stop for cut in cuts),
        tuple(cut.step for cut in cuts),
        tuple(i for i, cut in enumerate(cuts) if cut.flip),
        tuple(kept),
        axis,
        position,
    )
