"""The HTTP application: OpenAI's completions and chat completions over an engine that steps in its
own thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from poot.errors import BackendError, PootError, RequestError
from poot.llm.engine import EngineStopped, Overloaded
from poot.llm.request import Event, Finish, Handle, Piece
from poot.llm.server.answers import Shape, error_body, new_shape, usage
from poot.llm.server.limits import Guard, ServerLimits
from poot.llm.server.loading import AdapterLoader
from poot.llm.server.schema import ChatAsked, CompletionAsked, LoadAdapter, UnloadAdapter
from poot.llm.server.service import NoSuchModel, Service, Work

LOOK_S = 0.25  # how often a waiting answer looks whether its client has gone

Events = asyncio.Queue[tuple[int, Event]]


@dataclass(frozen=True, slots=True)
class Running:
    """The handles of one HTTP request, and the events of all of them."""

    handles: tuple[Handle, ...]
    events: Events

    def cancel(self) -> None:
        for handle in self.handles:
            handle.cancel()


def make_app(
    service: Service, limits: ServerLimits | None = None, loader: AdapterLoader | None = None
) -> FastAPI:
    """The application. Its engine starts with it; when it stops, what runs is let end within the
    limits' `drain` seconds. Only with a `loader` may clients load adapters."""
    bounds = limits or ServerLimits()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncGenerator[None]:
        service.engine.start()
        yield
        await asyncio.to_thread(service.engine.stop, drain=True, timeout=bounds.drain)

    app = FastAPI(title="poot", lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, limits=bounds)
    _errors(app)
    _routes(app, service)
    if loader is not None:
        _adapter_routes(app, loader)
    return app


def _errors(app: FastAPI) -> None:
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        rows = error.errors()
        first = rows[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        words = f"{where}: {first['msg']}" if where else str(first["msg"])
        return JSONResponse(error_body(words, "invalid_request_error"), 400)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        body = error_body(str(error.detail), "invalid_request_error")
        return JSONResponse(body, error.status_code, error.headers)

    async def known(_: Request, error: Exception) -> Response:
        assert isinstance(error, PootError)
        return refusal(error)

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(PootError, known)


def refusal(error: PootError) -> JSONResponse:
    """The answer to what poot can't do: 404 or 400 or, where the client isn't to blame, 429, 500 or
    503."""
    if isinstance(error, NoSuchModel):
        body = error_body(error.message, "invalid_request_error", code="model_not_found")
        return JSONResponse(body, 404)
    if isinstance(error, Overloaded | EngineStopped):
        body = error_body(error.message, "server_error", code="unavailable")
        return JSONResponse(body, 429 if isinstance(error, Overloaded) else 503)
    if isinstance(error, RequestError):
        return JSONResponse(error_body(error.message, "invalid_request_error"), 400)
    status = 503 if isinstance(error, BackendError) else 500
    return JSONResponse(error_body(error.message, "server_error"), status)


def _routes(app: FastAPI, service: Service) -> None:
    def health() -> dict[str, str]:
        failed = service.engine.failed
        if failed is not None:
            raise failed
        return {"status": "ok"}

    def models() -> dict[str, object]:
        return {"object": "list", "data": [_model(name) for name in service.models()]}

    def model(name: str) -> dict[str, object]:
        if name not in service.models():
            raise NoSuchModel(f"there is no model {name!r}; models: {', '.join(service.models())}")
        return _model(name)

    def metrics() -> PlainTextResponse:
        return PlainTextResponse(f"{service.engine.metrics()}\n")

    async def completions(asked: CompletionAsked, http: Request) -> Response:
        work = service.completion(asked)
        return await _answer(service, work, _Wish.of(asked, "cmpl", is_chat=False), http)

    async def chat(asked: ChatAsked, http: Request) -> Response:
        work = service.chat(asked)
        return await _answer(service, work, _Wish.of(asked, "chatcmpl", is_chat=True), http)

    app.get("/health")(health)
    app.get("/metrics")(metrics)
    app.get("/v1/models")(models)
    app.get("/v1/models/{name:path}")(model)
    app.post("/v1/completions", response_model=None)(completions)
    app.post("/v1/chat/completions", response_model=None)(chat)


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "poot"}


def _adapter_routes(app: FastAPI, loader: AdapterLoader) -> None:
    def load(asked: LoadAdapter) -> PlainTextResponse:
        return PlainTextResponse(loader.load(asked))

    def unload(asked: UnloadAdapter) -> PlainTextResponse:
        return PlainTextResponse(loader.unload(asked))

    app.post("/v1/load_lora_adapter")(load)
    app.post("/v1/unload_lora_adapter")(unload)


@dataclass(frozen=True, slots=True)
class _Wish:
    """How an answer is to come."""

    kind: str
    is_chat: bool
    is_stream: bool
    counts: bool

    @staticmethod
    def of(asked: CompletionAsked | ChatAsked, kind: str, *, is_chat: bool) -> _Wish:
        options = asked.stream_options
        counts = options is not None and options.include_usage
        return _Wish(kind, is_chat, bool(asked.stream), counts)


async def _answer(service: Service, work: Work, wish: _Wish, http: Request) -> Response:
    running = _submit(service, work)
    shape = new_shape(
        f"{wish.kind}-{token_hex(12)}", work.model, wish.is_chat, service.tokenizer.token_bytes
    )
    if wish.is_stream:
        stream = _stream(running, shape, work, wish)
        return StreamingResponse(stream, media_type="text/event-stream")
    return await _whole(running, shape, work, http)


def _submit(service: Service, work: Work) -> Running:
    """Every request of the work in line, or none."""
    loop = asyncio.get_running_loop()
    events: Events = asyncio.Queue()
    handles: list[Handle] = []

    def listener(index: int) -> Callable[[Event], None]:
        def hear(event: Event) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, (index, event))

        return hear

    try:
        for i, request in enumerate(work.requests):
            handles.append(service.engine.submit(request, listener(i)))
    except PootError:
        for handle in handles:
            handle.cancel()
        raise
    return Running(tuple(handles), events)


async def _whole(running: Running, shape: Shape, work: Work, http: Request) -> Response:
    """Waits for every choice. A client that goes takes its requests with it."""
    pieces: list[list[Piece]] = [[] for _ in running.handles]
    ends: dict[int, Finish] = {}
    loop = asyncio.get_running_loop()
    look = loop.time() + LOOK_S
    try:
        while len(ends) < len(running.handles):
            if loop.time() >= look:
                if await http.is_disconnected():
                    return Response(status_code=499)
                look = loop.time() + LOOK_S
            try:
                index, event = await asyncio.wait_for(running.events.get(), LOOK_S)
            except TimeoutError:
                continue
            if isinstance(event, Piece):
                pieces[index].append(event)
                continue
            if event.error is not None:
                return refusal(event.error)
            ends[index] = event
    finally:
        running.cancel()
    finishes = [ends[i] for i in range(len(ends))]
    choices = [shape.choice(i, pieces[i], finish) for i, finish in enumerate(finishes)]
    return JSONResponse(shape.whole(choices, usage(finishes, work.prompts)))


async def _stream(running: Running, shape: Shape, work: Work, wish: _Wish) -> AsyncIterator[str]:
    """Events as they come. Where the client goes, the generator is closed and the requests are
    cancelled."""
    shown = [0] * len(running.handles)
    finishes: list[Finish] = []
    try:
        if wish.is_chat:
            for i in range(len(running.handles)):
                yield _event(shape.chunk([shape.opening(i)]))
        while len(finishes) < len(running.handles):
            index, event = await running.events.get()
            if isinstance(event, Finish):
                if event.error is not None:
                    yield _event(error_body(event.error.message, "server_error"))
                    return
                finishes.append(event)
                yield _event(shape.chunk([shape.part(index, None, 0, event.reason)]))
            elif event.text or event.logprob is not None:
                yield _event(shape.chunk([shape.part(index, event, shown[index], None)]))
                shown[index] += len(event.text)
        if wish.counts:
            yield _event(shape.chunk([], usage(finishes, work.prompts)))
        yield "data: [DONE]\n\n"
    finally:
        running.cancel()


def _event(body: dict[str, object]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
