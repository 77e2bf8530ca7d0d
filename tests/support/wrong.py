"""Values of every kind that a caller might hand over by mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from poot.errors import PootError

WRONG: tuple[object, ...] = (
    None, True, 3, -1, 2**70, 1.5, math.nan, math.inf, 1j, "x", "", b"x", [], {}, (), set(),
    [1, "a"], {"a": 1}, [[1, 2], [3]], object(), int, slice(None), ..., range(3),
    np.zeros(3), np.zeros((2, 2), np.float32), np.array(["a"]), np.array([None, 1]), np.float64(2),
)  # fmt: skip


def typed_or_fine(call: Callable[[], object]) -> None:
    """Calls; it succeeds or raises one of poot's errors. All else goes through."""
    with suppress(PootError):
        call()
