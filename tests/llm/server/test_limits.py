"""The guard before the application, without a server."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from poot.llm.server.limits import Guard, ServerLimits


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body whole, then answers 200."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def ask(
    limits: ServerLimits,
    *,
    path: str = "/v1/x",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    body: tuple[bytes, ...] = (b"",),
    kind: str = "http",
) -> int | None:
    """The status, None where nothing was answered."""
    messages = [
        {"type": "http.request", "body": part, "more_body": i + 1 < len(body)}
        for i, part in enumerate(body)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "method": "POST", "headers": list(headers)}
    asyncio.run(Guard(echo, limits)(scope, receive, send))
    return sent[0]["status"] if sent else None


def test_a_body_is_counted_as_it_comes():
    limits = ServerLimits(most_bytes=10)
    assert ask(limits, body=(b"12345", b"67890")) == 200
    assert ask(limits, body=(b"12345", b"678901")) == 413
    assert ask(limits, headers=((b"content-length", b"11"),)) == 413


@pytest.mark.parametrize("length", [b"-1", b"1e9", b"", b"\xb2"])
def test_a_length_that_is_no_number_is_refused(length: bytes):
    assert ask(ServerLimits(), headers=((b"content-length", length),)) == 413


def test_only_the_whole_key_opens():
    limits = ServerLimits(api_key="abc")
    shown = {b"Bearer abc": 200, b"Bearer ab": 401, b"abc": 401, b"": 401, b"Bearer \xff": 401}
    for header, status in shown.items():
        assert ask(limits, headers=((b"authorization", header),)) == status
    assert ask(limits, path="/health") == 200


def test_what_is_no_http_request_passes_by():
    assert ask(ServerLimits(api_key="abc"), kind="lifespan") is None
