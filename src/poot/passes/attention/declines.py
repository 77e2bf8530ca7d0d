"""Why a chain that looks like attention stays as it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Decline(Exception):
    """The reason, for people, and the line that it is about. An answer: match.py catches it."""

    reason: str
    loc: str = ""


def claim(holds: bool, reason: str, loc: str = "") -> None:
    """Raises Decline with the reason unless the claim holds."""
    if not holds:
        raise Decline(reason, loc)
