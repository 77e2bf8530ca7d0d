"""What an engine does about errors that aren't its own: waits for a session that another thread
uses, and makes a typed error of one that nobody foresaw."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from poot.errors import PootError, SessionBusy

T = TypeVar("T")
BUSY_S = 30.0  # how long a step waits at most for a session that another thread uses
LOOK_S = 0.001


class Fault(PootError):
    """An error that nobody foresaw ended a request."""


def fault(error: BaseException, where: str) -> Fault:
    """A typed error that tells of another."""
    return Fault(f"{where}: {type(error).__name__}: {error}")


def patiently(action: Callable[[], T]) -> T:
    """Does what can be done twice, waiting while another thread uses the session. Raises
    SessionBusy after `BUSY_S` seconds."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            return action()
        except SessionBusy:
            if time.monotonic() >= until:
                raise
            time.sleep(LOOK_S)
