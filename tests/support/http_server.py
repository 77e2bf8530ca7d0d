"""The server on a free port of this machine, in a thread, for as long as a block runs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from poot.llm.chat import ChatTemplate
from poot.llm.engine import Engine, EngineOptions
from poot.llm.layout import Layout
from poot.llm.server.app import make_app
from poot.llm.server.limits import ServerLimits
from poot.llm.server.loading import AdapterLoader
from poot.llm.server.service import Service
from poot.llm.tokenizer import read_tokenizer
from tests.support import paged_tiny
from tests.support.tiny_llama import CHAT

LAYOUT = Layout(blocks=40, capacity=96, decode_rows=(1, 4), prefill=((1, 16),), adapters=2, rank=4)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that listens."""

    url: str
    engine: Engine
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """Asks it to end, as a signal would, and waits."""
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive()


def service(target: str = "oracle", *, with_template: bool = True, most_prompt: int | None = None,
            **options: int | bool) -> Service:  # fmt: skip
    tokenizer = read_tokenizer(paged_tiny.tiny().metadata, "tiny")
    engine = Engine(
        paged_tiny.session(target, LAYOUT), LAYOUT, vocab=paged_tiny.config().vocab,
        weights="tiny", tokenizer=tokenizer,
        options=EngineOptions(**options),  # pyright: ignore[reportArgumentType] - by name
    )  # fmt: skip
    template = ChatTemplate(CHAT, "tiny") if with_template else None
    return Service(engine, tokenizer, template, "tiny", most_prompt)


@contextmanager
def serving(
    made: Service, limits: ServerLimits | None = None, loader: AdapterLoader | None = None
) -> Generator[Running]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = uvicorn.Config(
        make_app(made, limits, loader), host="127.0.0.1", port=port, log_level="error",
        timeout_graceful_shutdown=20,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < until, "the server does not start"
        time.sleep(0.01)
    running = Running(f"http://127.0.0.1:{port}", made.engine, server, thread)
    try:
        yield running
    finally:
        if thread.is_alive():
            running.stop()
