"""What a register holds before anything is written to it, or while asynchronous work writes it: any
use fails.
"""

from __future__ import annotations

from typing import NoReturn

from poot.errors import SimulationError


class Poison:
    """Stands in a register for a value. `kind` is "uninitialised" or "in-flight"."""

    __slots__ = ("_kind", "_what")

    def __init__(self, kind: str, what: str) -> None:
        self._kind = kind
        self._what = what

    @property
    def kind(self) -> str:
        return self._kind

    def _fail(self, *args: object, **kwargs: object) -> NoReturn:
        raise SimulationError(f"{self._kind}: {self._what}", kind=self._kind)

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __bool__ = __int__ = _fail

    def __getattr__(self, name: str) -> NoReturn:
        self._fail()
