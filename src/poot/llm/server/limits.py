"""What stands before the application: a key, bounds on a request's size and on how long it may take
to arrive, a bound on how many are served at once."""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from poot.llm.server.answers import error_body

OPEN_PATHS = ("/health",)  # asked without a key


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """`api_key`: what clients have to show, None for nothing. `most_bytes` of a request's body,
    `most_requests` at once; a body has `arrival` seconds to come whole, so that one that never does
    holds no place; `drain` seconds are given to what runs when the server stops."""

    api_key: str | None = None
    most_bytes: int = 1 << 20
    most_requests: int = 64
    drain: float = 30.0
    arrival: float = 30.0


class _CutOff(Exception):
    """The body has passed a bound."""


class Guard:
    """Middleware of `ServerLimits`. Runs in the event loop's one thread."""

    def __init__(self, app: ASGIApp, limits: ServerLimits) -> None:
        self._app = app
        self._limits = limits
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return
        self._running += 1
        try:
            await self._bounded(scope, receive, send)
        finally:
            self._running -= 1

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """The answer to a request that isn't let in."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        path: str = scope["path"]
        if path in OPEN_PATHS:
            return None
        key = self._limits.api_key
        if key is not None and not _is_key(headers.get(b"authorization", b""), key):
            body = error_body("a valid API key is needed", "invalid_request_error",
                              code="invalid_api_key")  # fmt: skip
            return JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limits.most_bytes:
            return _too_large(self._limits.most_bytes)
        if scope["method"] == "POST" and self._running >= self._limits.most_requests:
            words = f"{self._running} requests are served already; try again later"
            body = error_body(words, "rate_limit_error", code="too_many_requests")
            return JSONResponse(body, 429, {"Retry-After": "1"})
        return None

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the application answer, unless the body passes a bound first: what it says to a body
        that was cut off is not sent."""
        body = _Body(receive, self._limits)
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if has_begun or body.refused is None:
                has_begun = True
                await send(message)

        with suppress(_CutOff):
            await self._app(scope, body.receive, sending)
        if not has_begun and body.refused is not None:
            await body.refused(scope, receive, send)


class _Body:
    """A body as it comes: its bytes are counted, since a chunked one has no length before, and its
    time. `refused` is the answer to one that passed a bound."""

    def __init__(self, receive: Receive, limits: ServerLimits) -> None:
        self._receive = receive
        self._limits = limits
        self._until = asyncio.get_running_loop().time() + limits.arrival
        self._seen = 0
        self._is_whole = False
        self.refused: JSONResponse | None = None

    async def receive(self) -> Message:
        """The next message. Raises _CutOff."""
        if self.refused is not None:
            raise _CutOff
        message = await self._receive() if self._is_whole else await self._in_time()
        self._seen += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._seen > self._limits.most_bytes:
            self.refused = _too_large(self._limits.most_bytes)
            raise _CutOff
        return message

    async def _in_time(self) -> Message:
        left = self._until - asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(self._receive(), max(left, 0.0))
        except TimeoutError:
            self.refused = _too_late(self._limits.arrival)
            raise _CutOff from None


def _too_large(most_bytes: int) -> JSONResponse:
    words = f"the request has more than {most_bytes} bytes"
    return JSONResponse(error_body(words, "invalid_request_error", code="too_large"), 413)


def _too_late(arrival: float) -> JSONResponse:
    words = f"the request's body has not come whole in {arrival:g} seconds"
    body = error_body(words, "invalid_request_error", code="request_timeout")
    return JSONResponse(body, 408, {"Connection": "close"})


def _is_key(header: bytes, key: str) -> bool:
    """Whether the header shows the key; how long this takes tells nothing of the key."""
    return hmac.compare_digest(header, f"Bearer {key}".encode())
