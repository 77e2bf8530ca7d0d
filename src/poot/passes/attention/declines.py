"""Why a chain that looks like attention stays as it is."""

from __future__ import annotations


class Decline(Exception):
    """The reason, for people, and the line that it is about. An answer: match.py catches it."""

    def __init__(self, reason: str, loc: str = "") -> None:
        self.reason = reason
        self.loc = loc
        super().__init__(reason)


def claim(holds: bool, reason: str, loc: str = "") -> None:
    """Raises Decline with the reason unless the claim holds."""
    if not holds:
        raise Decline(reason, loc)
