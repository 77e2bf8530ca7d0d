"""What stands before the application: a key, a bound on a request's size, a bound on how many are
served at once."""

from __future__ import annotations

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
    `most_requests` at once; `drain` seconds are given to what runs when the server stops."""

    api_key: str | None = None
    most_bytes: int = 1 << 20
    most_requests: int = 64
    drain: float = 30.0


class _TooLarge(Exception):
    """The body has passed the bound."""


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
            return self._too_large()
        if scope["method"] == "POST" and self._running >= self._limits.most_requests:
            words = f"{self._running} requests are served already; try again later"
            body = error_body(words, "rate_limit_error", code="too_many_requests")
            return JSONResponse(body, 429, {"Retry-After": "1"})
        return None

    def _too_large(self) -> JSONResponse:
        words = f"the request has more than {self._limits.most_bytes} bytes"
        return JSONResponse(error_body(words, "invalid_request_error", code="too_large"), 413)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts the body as it comes, since a chunked one has no length before. What the
        application says to a body that was cut off is not sent."""
        seen = 0
        has_begun = False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limits.most_bytes:
                raise _TooLarge
            return message

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if has_begun or seen <= self._limits.most_bytes:
                has_begun = True
                await send(message)

        with suppress(_TooLarge):
            await self._app(scope, counted, sending)
        if not has_begun and seen > self._limits.most_bytes:
            await self._too_large()(scope, receive, send)


def _is_key(header: bytes, key: str) -> bool:
    """Whether the header shows the key; how long this takes tells nothing of the key."""
    return hmac.compare_digest(header, f"Bearer {key}".encode())
