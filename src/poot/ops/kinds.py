"""What counts as a whole number, as several of them, and as a number, where a caller hands one
over. Nothing is cut, parsed or taken for another kind."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex, cast

import numpy as np

from poot.errors import PootError, TypeRuleError
from poot.ops.record import refuse

# Extents, axes and indices are i32 or u32 wherever they are computed with.
_MOST = 2**32


def whole(value: object) -> int | None:
    """The int that a value is, numpy's too; None for a bool, a fraction, a text, an array with
    axes and a traced value."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer, np.ndarray)):
        return None
    try:
        return operator.index(cast("SupportsIndex", value))  # isinstance says less of an ndarray
    except TypeError:
        return None


def wholes(value: object) -> tuple[int, ...] | None:
    """A tuple, list, range or array of one axis of ints, as a tuple; else None."""
    if not isinstance(value, (tuple, list, range, np.ndarray)):
        return None
    if isinstance(value, np.ndarray) and value.ndim != 1:
        return None
    out = [whole(n) for n in cast("Sequence[object]", value)]  # an ndarray iterates alike
    return None if None in out else tuple(n for n in out if n is not None)


def is_number(value: object) -> bool:
    """Whether a value is an int or a float, numpy's too: no bool, no text, nothing with axes."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def fits(n: int) -> bool:
    """Whether an int may be an extent, an axis or an index at all."""
    return -_MOST <= n <= _MOST


def need_whole(op: str, value: object, what: str, error: type[PootError] = TypeRuleError) -> int:
    """The int that a value is. Raises `error`, at the user's line, where it is none."""
    n = whole(value)
    if n is None or not fits(n):
        refuse(op, what, error=error, got=repr(value))
    return n


def need_wholes(
    op: str, value: object, what: str, error: type[PootError] = TypeRuleError
) -> tuple[int, ...]:
    """The ints that a tuple, list, range or array of one axis holds. Raises `error`, at the user's
    line, where it is none of these."""
    found = wholes(value)
    if found is None or not all(map(fits, found)):
        refuse(op, what, error=error, got=repr(value))
    return found
