"""A request while the engine serves it."""

from __future__ import annotations

from poot.errors import PootError
from poot.llm.faults import fault
from poot.llm.request import ERROR, Finish, Handle, Piece
from poot.llm.scheduler import Sequence
from poot.llm.stepper import Drawn
from poot.llm.text_stops import StopText
from poot.llm.tokenizer import Tokenizer


class Job:
    """The engine's side of a handle. `began` and `first` are times: of the submit, and from it to
    the first token. `place` is its adapter's, held until the end. `sequence` is None until the
    request stands in line."""

    def __init__(
        self, handle: Handle, began: float, tokenizer: Tokenizer | None, place: int = 0
    ) -> None:
        self.handle = handle
        self.began = began
        self.place = place
        self.first: float | None = None
        self.sequence: Sequence | None = None
        self.count = 0
        self._decoder = None if tokenizer is None else tokenizer.stream()
        self._text = StopText(handle.request.stops)

    def is_late(self, now: float) -> bool:
        """Whether the request's deadline has passed."""
        deadline = self.handle.request.deadline
        return deadline is not None and now - self.began >= deadline

    def show(self, drawn: Drawn) -> bool:
        """Hands on a token and what it lets be shown; whether a stop string was met."""
        self.count += 1
        piece = "" if self._decoder is None else self._decoder.push(drawn.token)
        self.handle.put(Piece(drawn.token, self._text.push(piece), drawn.logprob))
        return self._text.hit is not None

    def close(self, reason: str, now: float, cached: int, error: PootError | None) -> None:
        """Hands on the text that was held back, and the end."""
        if self._text.hit is None and self._decoder is not None:
            try:
                rest = self._text.push(self._decoder.end()) + self._text.end()
            except Exception as e:
                rest, reason = "", ERROR
                error = error or fault(e, "the text's end was lost")
            if rest:
                self.handle.put(Piece(None, rest))
        self.handle.put(
            Finish(
                reason=reason,
                prompt=len(self.handle.request.prompt),
                tokens=self.count,
                cached=cached,
                stop=self._text.hit,
                error=error,
                first=self.first,
                whole=now - self.began,
            )
        )
