"""Memory too large to hold: pages made when they are touched."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from poot.codegen.kir.sim.values import NUMPY
from poot.codegen.kir.sim.wave import Ints, Value

PAGE = 1024


class SparseBuffer:
    """A buffer of `elems` elements that holds only the pages touched, so that groups run at real
    addresses.

    `fill` gives the first contents from the element numbers; without it they are zero. `read` and
    `written` are for tests: what lies at an index now, and which elements were stored, ascending.
    """

    def __init__(
        self, dtype: str, elems: int, fill: Callable[[Ints], npt.NDArray[np.generic]] | None = None
    ) -> None:
        self.dtype = dtype
        self.size = elems
        self._fill = fill
        self._slots: dict[int, int] = {}
        self._data = np.zeros((0, PAGE), NUMPY[dtype])
        self._touched = np.zeros((0, PAGE), np.bool_)

    def _new_pages(self, pages: list[int]) -> None:
        fresh = np.zeros((len(pages), PAGE), self._data.dtype)
        if self._fill is not None:
            index = np.asarray(pages, np.int64)[:, None] * PAGE + np.arange(PAGE)
            inside = index < self.size
            fresh[inside] = self._fill(index[inside]).astype(fresh.dtype)
        for page in pages:
            self._slots[page] = len(self._slots)
        self._data = np.concatenate([self._data, fresh])
        self._touched = np.concatenate([self._touched, np.zeros(fresh.shape, np.bool_)])

    def _at(self, index: Ints) -> Ints:
        """Where the elements lie in the pages held."""
        pages, which = np.unique(index // PAGE, return_inverse=True)
        wanted: list[int] = pages.tolist()
        missing = [p for p in wanted if p not in self._slots]
        if missing:
            self._new_pages(missing)
        slots = np.asarray([self._slots[p] for p in wanted], np.int64)
        return slots[which.reshape(index.shape)] * PAGE + index % PAGE

    def read(self, index: Ints) -> Value:
        at = self._at(np.asarray(index, np.int64))
        return self._data.reshape(-1)[at]

    def write(self, index: Ints, values: Value) -> None:
        at = self._at(np.asarray(index, np.int64))
        self._data.reshape(-1)[at] = values
        self._touched.reshape(-1)[at] = True

    def written(self) -> Ints:
        found = [
            np.flatnonzero(self._touched[slot]) + page * PAGE
            for page, slot in sorted(self._slots.items())
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)
