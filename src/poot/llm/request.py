"""What is asked of an engine, and what comes back: a request, its events, its handle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from poot.errors import PootError, RequestError
from poot.llm.faults import fault
from poot.llm.sampling import Sampling

STOP, LENGTH, CANCELLED, DEADLINE, ERROR = "stop", "length", "cancelled", "deadline", "error"
MOST_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Request:
    """Up to `max_tokens` tokens after `prompt`. It ends at a token of `stop_ids` or a text of
    `stops`, neither of which is given. `logprobs`: for each token its log-probability and those of
    so many of the likeliest (None: none). `adapter`: a loaded adapter's name. `salt`: shares cached
    prefixes only with requests of the same salt. `deadline`: seconds from the submit. Raises
    RequestError for what no engine can do."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: bool = False
    adapter: str | None = None
    salt: str = ""
    deadline: float | None = None

    def __post_init__(self) -> None:
        if not self.prompt:
            raise RequestError("the prompt is empty; needs one token or more")
        if self.max_tokens < 1:
            raise RequestError(f"max_tokens is {self.max_tokens}; needs 1 or more")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            raise RequestError(f"logprobs is {self.logprobs}; needs 0 to {MOST_LOGPROBS}")
        if self.prompt_logprobs:
            raise RequestError(
                "log-probabilities of the prompt's own tokens are not given; ask for those of the "
                "new tokens by logprobs"
            )
        if any("\ud800" <= c <= "\udfff" for text in (self.salt, *self.stops) for c in text):
            raise RequestError("a salt or a stop string holds half a surrogate pair: no text")
        if self.deadline is not None and not self.deadline > 0:
            raise RequestError(f"the deadline is {self.deadline} s; needs more than 0")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability before sampling options, and of the likeliest
    tokens', likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """One new token and the text that it lets be shown, perhaps none. `token` is None where only
    text that was held back comes."""

    token: int | None
    text: str
    logprob: TokenLogprob | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a request: `reason` is "stop", "length", "cancelled", "deadline" or "error".
    `prompt` and `tokens` count tokens, `cached` those of the prompt that the prefix cache held;
    `stop` is the stop string met; `first` and `whole` are seconds from the submit to the first
    token and to the end."""

    reason: str
    prompt: int
    tokens: int
    cached: int
    stop: str | None = None
    error: PootError | None = None
    first: float | None = None
    whole: float = 0.0


Event = Piece | Finish
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Result:
    """All of a finished request."""

    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish: Finish


class Handle:
    """A submitted request. Iterating gives its pieces as they come, each once; `result` waits for
    the end and gives all. One reader at a time, in any thread. With a listener the events go to it,
    from the engine's thread, and there is nothing to read. A listener that raises ends its request
    with the error and hears no more: `result` raises it, and `fault` is it."""

    def __init__(
        self, request: Request, cancel: Callable[[Handle], None], listener: Listener | None
    ) -> None:
        self.request = request
        self._cancel = cancel
        self._listener = listener
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._read: list[Piece] = []
        self._done = threading.Event()
        self.finish: Finish | None = None
        self.fault: PootError | None = None

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def cancel(self) -> None:
        """Asks for an end; what was not computed is not. After the end, or twice, does nothing."""
        if not self.is_done:
            self._cancel(self)

    def put(self, event: Event) -> None:
        """The engine's: hands an event on."""
        if isinstance(event, Finish):
            self.finish = event
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception as e:
                self.fault = fault(e, "the request's listener raised")
                self._listener = None
                if isinstance(event, Finish):
                    self.finish = event = replace(event, reason=ERROR, error=self.fault)
                    self._events.put(event)
        else:
            self._events.put(event)
        if isinstance(event, Finish):
            self._done.set()

    def __iter__(self) -> Iterator[Piece]:
        """Raises what ended the request, where its reason is "error"."""
        while True:
            event = self._events.get()
            if isinstance(event, Finish):
                self._events.put(event)
                if event.error is not None:
                    raise event.error
                return
            self._read.append(event)
            yield event

    def result(self, timeout: float | None = None) -> Result:
        """Waits for the end; may be asked again. Raises what ended the request where its
        reason is "error", and RequestError where `timeout` seconds have passed first."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                event = self._events.get(timeout=left)
            except Empty:
                raise RequestError(f"no end of the request within {timeout} s") from None
            if isinstance(event, Finish):
                self._events.put(event)
                if event.error is not None:
                    raise event.error
                return _result(self._read, event)
            self._read.append(event)


def _result(pieces: list[Piece], finish: Finish) -> Result:
    return Result(
        tuple(p.token for p in pieces if p.token is not None),
        "".join(p.text for p in pieces),
        tuple(p.logprob for p in pieces if p.logprob is not None),
        finish,
    )
