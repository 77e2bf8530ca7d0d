"""Masks whose numbers are known: which keys they hide may be a triangle or a band.

A mask that comes from constants alone (a buffer of a model, a table traced in) is computed,
and what it keeps is compared with what `causal` and `window` would keep, element by element.
"""

from __future__ import annotations

import numpy as np

from poot.ir.dtypes import is_float
from poot.ir.graph import Var
from poot.passes.attention.hidden import Bound
from poot.passes.canonical.known import values_of
from poot.passes.engine import Scope


def bounds_of_known(
    scope: Scope, mask: Var, holds: bool, shape: tuple[int, ...]
) -> tuple[Bound, ...]:
    """What a known mask says of keys (the last axis of shape) and rows (the one before), in one or
    two bounds; none where it isn't known, hides nothing, or isn't the same for all other axes. A
    bool mask keeps a key where it is `holds`, one of floats, which is added, where it is 0."""
    values = values_of(scope, mask)
    if values is None or len(shape) < 2 or not values.size:
        return ()
    kept = values == 0 if is_float(mask.type.dtype) else values.astype(bool) == holds
    planes = np.broadcast_to(kept, (1,) * (2 - kept.ndim) + kept.shape)
    planes = planes.reshape(-1, *planes.shape[-2:])
    if planes.shape[0] > 1 and not (planes == planes[:1]).all():
        return ()
    return _bounds(np.broadcast_to(planes[0], shape[-2:]))


def _bounds(kept: np.ndarray) -> tuple[Bound, ...]:
    rows, keys = kept.shape
    apart = np.arange(keys, dtype=np.int32)[None, :] - np.arange(rows, dtype=np.int32)[:, None]
    if not kept.any():
        return ()
    seen = apart[kept]
    least, most = int(seen.min()), int(seen.max())
    if not np.array_equal(kept, (apart >= least) & (apart <= most)):
        return ()
    upper = (Bound(True, most),) if most < keys - 1 else ()
    lower = (Bound(False, least),) if least > 1 - rows else ()
    return upper + lower


def fill_of_known(scope: Scope, mask: Var) -> float | None:
    """The number below 0 that a known mask of floats holds wherever it isn't 0; None where that
    isn't so."""
    values = values_of(scope, mask) if is_float(mask.type.dtype) else None
    if values is None:
        return None
    others = values[values != 0].astype(np.float64)
    if not others.size or not others[0] < 0 or not (others == others[0]).all():
        return None
    return float(others[0])
