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


def test_a_body_that_never_comes_whole_is_a_408_and_holds_no_place():
    """Neither one that doesn't begin, nor one that stops half-way; the next is let in."""
    for begun in ((), ({"type": "http.request", "body": b"12", "more_body": True},)):
        statuses: list[int] = []
        messages: list[Message] = list(begun)

        async def receive(messages: list[Message] = messages) -> Message:
            if messages:
                return messages.pop(0)
            return await asyncio.Future()

        async def send(message: Message, statuses: list[int] = statuses) -> None:
            if "status" in message:
                statuses.append(message["status"])

        async def both(messages: list[Message] = messages) -> None:
            guard = Guard(echo, ServerLimits(most_requests=1, arrival=0.01))
            scope = {"type": "http", "path": "/v1/x", "method": "POST", "headers": []}
            await guard(scope, receive, send)
            messages.append({"type": "http.request", "body": b"", "more_body": False})
            await guard(scope, receive, send)

        asyncio.run(both())
        assert statuses == [408, 200]


def test_an_application_that_swallows_the_cut_says_nothing_to_it():
    async def swallows(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await echo(scope, receive, send)
        except Exception:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            raise

    async def receive() -> Message:
        return await asyncio.Future()

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/v1/x", "method": "POST", "headers": []}
    asyncio.run(Guard(swallows, ServerLimits(arrival=0.01))(scope, receive, send))
    assert [m["status"] for m in sent if "status" in m] == [408]


def test_what_comes_after_the_body_has_no_time_limit():
    """A client that waits is not a body that is late."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.sleep(0.05)
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.start", "status": 200, "headers": []})

    messages = [{"type": "http.request", "body": b"1", "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/v1/x", "method": "POST", "headers": []}
    asyncio.run(Guard(app, ServerLimits(arrival=0.02))(scope, receive, send))
    assert [m["status"] for m in sent] == [200]
