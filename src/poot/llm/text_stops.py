"""Text as it may be shown: what could be the beginning of a stop string waits until it is not."""

from __future__ import annotations

from collections.abc import Sequence

from poot.errors import RequestError


class StopText:
    """Pieces of text in, pieces out, up to the first of `stops`, which is never shown. `hit` is the
    stop string that ended it, else None."""

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise RequestError("a stop string is empty; needs one character or more")
        self._stops = tuple(stops)
        self._held = ""
        self.hit: str | None = None

    def push(self, piece: str) -> str:
        """What `piece` lets be shown; nothing more after a hit."""
        if self.hit is not None:
            return ""
        self._held += piece
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.hit = min(found, key=lambda row: (row[0], -len(row[1])))
            shown, self._held = self._held[:at], ""
            return shown
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def end(self) -> str:
        """What was held back and is no stop string after all."""
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
