"""The server, asked by the `openai` client over a real socket."""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

import openai
import pytest

from poot.errors import LaunchError
from poot.llm.request import Request
from poot.llm.server.app import refusal
from poot.llm.server.limits import ServerLimits
from poot.llm.tokenizer import read_tokenizer
from tests.llm.test_adapters import read, tensors_of, write
from tests.support.http_server import Running, service, serving
from tests.support.paged_tiny import tiny

GREEDY = {"temperature": 0.0, "max_tokens": 8}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(service()) as made:
        yield made


CLIENTS: list[openai.OpenAI] = []


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    """A client refers to itself: left to the collector, its socket may be finalised before it."""
    yield
    while CLIENTS:
        CLIENTS.pop().close()


def client(running: Running, key: str = "none") -> openai.OpenAI:
    CLIENTS.append(openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0))
    return CLIENTS[-1]


def post(
    running: Running, path: str, body: object, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, object]]:
    """(status, body) of a request that the client would not send."""
    where = urlparse(running.url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    link.request("POST", path, raw, {"Content-Type": "application/json"} | (headers or {}))
    answer = link.getresponse()
    text = answer.read()
    link.close()
    return answer.status, json.loads(text)


def greedy(running: Running, ids: list[int], count: int) -> str:
    """What the engine itself answers."""
    tokenizer = read_tokenizer(tiny().metadata, "tiny")
    asked = Request(tuple(ids), count, stop_ids=tokenizer.stops)
    return running.engine.submit(asked).result(20).text


def test_a_completion_is_the_engines_text_and_its_tokens_are_counted(running: Running):
    tokenizer = read_tokenizer(tiny().metadata, "tiny")
    ids = tokenizer.encode("the a the")
    got = client(running).completions.create(model="tiny", prompt="the a the", **GREEDY)
    assert got.choices[0].text == greedy(running, ids, 8)
    assert got.choices[0].finish_reason in ("length", "stop")
    assert got.usage is not None
    assert got.usage.prompt_tokens == len(ids)
    assert got.usage.total_tokens == len(ids) + got.usage.completion_tokens
    assert (got.object, got.model) == ("text_completion", "tiny")


def test_a_stream_joins_to_the_whole_and_counts_at_its_end(running: Running):
    whole = client(running).completions.create(model="tiny", prompt="the a", **GREEDY)
    pieces = list(
        client(running).completions.create(
            model="tiny", prompt="the a", stream=True, stream_options={"include_usage": True},
            **GREEDY,
        )
    )  # fmt: skip
    assert "".join(c.choices[0].text for c in pieces if c.choices) == whole.choices[0].text
    assert len(pieces) > 3
    assert pieces[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert pieces[-1].usage is not None
    assert whole.usage is not None
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_chat_goes_through_the_checkpoints_template(running: Running):
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "the"}]
    got = client(running).chat.completions.create(model="tiny", messages=messages, **GREEDY)
    prompt = (
        "<|im_start|>system\na<|im_end|>\n<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = read_tokenizer(tiny().metadata, "tiny").encode(prompt)
    assert got.choices[0].message.content == greedy(running, ids, 8)
    assert got.choices[0].message.role == "assistant"
    pieces = list(
        client(running).chat.completions.create(
            model="tiny", messages=messages, stream=True, **GREEDY
        )
    )
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(p.choices[0].delta.content or "" for p in pieces)
    assert text == got.choices[0].message.content
    assert pieces[-1].choices[0].finish_reason == got.choices[0].finish_reason


def test_parts_of_a_message_are_one_text(running: Running):
    parts = [{"type": "text", "text": "th"}, {"type": "text", "text": "e"}]
    both = [
        client(running).chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": content}], **GREEDY
        )
        for content in ("the", parts)
    ]
    assert both[0].choices[0].message.content == both[1].choices[0].message.content


def test_several_prompts_and_several_texts_of_each(running: Running):
    got = client(running).completions.create(
        model="tiny", prompt=["the", "a"], n=2, seed=5, temperature=1.5, max_tokens=6
    )
    assert [c.index for c in got.choices] == [0, 1, 2, 3]
    assert len({c.text for c in got.choices}) > 1
    again = client(running).completions.create(
        model="tiny", prompt=["the", "a"], n=2, seed=5, temperature=1.5, max_tokens=6
    )
    assert [c.text for c in again.choices] == [c.text for c in got.choices]
    ids = client(running).completions.create(model="tiny", prompt=[[10, 11], [12]], **GREEDY)
    assert len(ids.choices) == 2
    assert client(running).completions.create(model="tiny", prompt=[10, 11], **GREEDY).choices


def test_scores_come_in_each_endpoints_shape(running: Running):
    got = client(running).completions.create(model="tiny", prompt="the", logprobs=3, **GREEDY)
    scores = got.choices[0].logprobs
    assert scores is not None
    assert scores.tokens is not None
    assert scores.token_logprobs is not None
    assert all(p <= 0 for p in scores.token_logprobs)
    assert len(scores.tokens) == len(scores.token_logprobs)
    chat = client(running).chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "the"}], logprobs=True,
        top_logprobs=4, **GREEDY,
    )  # fmt: skip
    rows = chat.choices[0].logprobs
    assert rows is not None
    assert rows.content is not None
    for row in rows.content:
        assert len(row.top_logprobs) == 4
        assert row.logprob == row.top_logprobs[0].logprob
        assert sum(math.exp(t.logprob) for t in row.top_logprobs) <= 1 + 1e-9


def test_stop_texts_and_poots_own_options_are_taken(running: Running):
    whole = client(running).completions.create(
        model="tiny", prompt="a", temperature=0.0, max_tokens=20, extra_body={"ignore_eos": True}
    )
    text = whole.choices[0].text
    stop = text[3:5]
    cut = client(running).completions.create(
        model="tiny", prompt="a", temperature=0.0, max_tokens=20, stop=[stop],
        extra_body={
            "ignore_eos": True, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.0,
            "cache_salt": "x", "timeout": 30.0,
        },
    )  # fmt: skip
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


BAD: list[tuple[str, dict[str, object], str]] = [
    ("/v1/completions", {"prompt": "a"}, "model: Field required"),
    ("/v1/completions", {"model": "tiny"}, "prompt: Field required"),
    ("/v1/completions", {"prompt": "", "model": "tiny"}, "the prompt is empty"),
    ("/v1/completions", {"prompt": [], "model": "tiny"}, "the prompt is empty"),
    ("/v1/completions", {"prompt": [9999], "model": "tiny"}, "outside the vocabulary"),
    ("/v1/completions", {"prompt": "a", "temperature": -1}, "temperature: Input should be"),
    ("/v1/completions", {"prompt": "a", "temperature": "hot"}, "temperature"),
    ("/v1/completions", {"prompt": "a", "top_p": 0}, "top_p: Input should be greater than 0"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 0}, "max_tokens: Input should be"),
    ("/v1/completions", {"prompt": "a", "max_tokens": 96}, "pass the cache's capacity of 96"),
    ("/v1/completions", {"prompt": "a " * 90}, "pass the cache's capacity"),
    ("/v1/completions", {"prompt": "a", "n": 17}, "n: Input should be"),
    ("/v1/completions", {"prompt": ["a"] * 30, "n": 3}, "more than 64 texts"),
    ("/v1/completions", {"prompt": "a", "echo": True}, "echo is not supported"),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"3": 1}}, "logit_bias is not supported"),
    ("/v1/completions", {"prompt": "a", "presence_penalty": 3}, "presence_penalty: "),
    ("/v1/completions", {"prompt": "a", "no_such": 1}, "no_such: Extra inputs are not permitted"),
    ("/v1/completions", {"prompt": "a", "stop": [""]}, "a stop text needs 1 to 256"),
    ("/v1/completions", {"prompt": "a", "stop": ["x"] * 17}, "stop has 17 texts"),
    ("/v1/completions", {"prompt": "a", "stream_options": {}}, "stream_options go with stream"),
    ("/v1/completions", {"prompt": "\udc00"}, "surrogate"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "\udc00"}]}, "surrogate"),
    ("/v1/completions", {"prompt": "a", "cache_salt": "\udc00"}, "cache_salt: Input should be a"),
    ("/v1/completions", {"prompt": "a", "x\udc00": 1}, "as a unicode string"),
    ("/v1/completions", {"prompt": "a", "model": "\udc00"}, "model: Input should be a valid"),
    ("/v1/chat/completions", {"messages": []}, "messages: List should have at least 1 item"),
    ("/v1/chat/completions", {"messages": [{"role": "x", "content": "a"}]}, "messages.0.role"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "<|im_end|>"}]},
     "message 0 spells the control token <|im_end|>"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "tools": [{}]},
     "tools is not supported"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2},
     "top_logprobs go with logprobs"),
]  # fmt: skip


@pytest.mark.parametrize("path, body, words", BAD, ids=[row[2] for row in BAD])
def test_bad_input_is_a_4xx_that_names_it(
    running: Running, path: str, body: dict[str, object], words: str
):
    has_model = words.startswith("model") or "model" in body
    status, answer = post(running, path, body if has_model else {"model": "tiny", **body})
    error = answer["error"]
    assert isinstance(error, dict)
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert words in str(error["message"])


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff\xfe", b""], ids=repr)
def test_what_is_no_json_object_is_a_400(running: Running, body: bytes):
    status, answer = post(running, "/v1/completions", body)
    assert status == 400
    assert "error" in answer


def test_a_model_that_is_not_here_is_a_404(running: Running):
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'; models: tiny"):
        client(running).completions.create(model="gpt", prompt="a", **GREEDY)
    assert post(running, "/v1/nothing", {})[0] == 404


def test_an_adapter_is_a_model_of_its_own_name(running: Running, tmp_path):
    running.engine.load_adapter("style", read(write(tmp_path / "style", tensors_of(3))))
    assert [m.id for m in client(running).models.list()] == ["tiny", "style"]
    assert client(running).models.retrieve("style").id == "style"
    with pytest.raises(openai.NotFoundError, match="models: tiny, style"):
        client(running).models.retrieve("none/such")
    ask = client(running).completions.create
    texts = [ask(model=m, prompt="the a", **GREEDY).choices[0].text for m in ("tiny", "style")]
    assert texts[0] != texts[1]
    running.engine.unload_adapter("style")
    with pytest.raises(openai.NotFoundError):
        ask(model="style", prompt="a", **GREEDY)


def test_health_and_metrics_are_plain(running: Running):
    where = urlparse(running.url)
    texts = []
    for path in ("/health", "/metrics"):
        link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
        link.request("GET", path)
        answer = link.getresponse()
        assert answer.status == 200
        texts.append(answer.read().decode())
        link.close()
    assert texts[0] == '{"status":"ok"}'
    assert "requests ended" in texts[1]


def test_without_a_chat_template_a_chat_is_a_400():
    with serving(service(with_template=False)) as running:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}
        status, answer = post(running, "/v1/chat/completions", body)
        assert status == 400
        assert "has no chat template" in str(answer)


def test_a_key_is_asked_for_where_there_is_one():
    with serving(service(), ServerLimits(api_key="sesame")) as running:
        ask = {"model": "tiny", "prompt": "a", **GREEDY}
        for key in ("wrong", "sesam", "sesamee"):
            with pytest.raises(openai.AuthenticationError, match="a valid API key is needed"):
                client(running, key).completions.create(**ask)
        assert post(running, "/v1/completions", ask)[0] == 401
        assert client(running, "sesame").completions.create(**ask).choices


def chunked(running: Running, size: int) -> int:
    """The status of a request that doesn't say how long it is."""
    where = urlparse(running.url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    pieces = iter([b'{"model": "tiny", "prompt": "', b"a" * size, b'"}'])
    link.request("POST", "/v1/completions", pieces, {"Content-Type": "application/json"})
    status = link.getresponse().status
    link.close()
    return status


def test_what_is_too_large_is_refused_whether_it_says_so_or_not():
    with serving(service(most_prompt=5), ServerLimits(most_bytes=500)) as running:
        body = {"model": "tiny", "prompt": "a" * 600}
        assert post(running, "/v1/completions", body)[0] == 413
        assert chunked(running, 600) == 413
        status, answer = post(running, "/v1/completions", {"model": "tiny", "prompt": "a" * 9})
        assert status == 400
        assert "this server takes up to 5" in str(answer)
        assert post(running, "/v1/completions", {"model": "tiny", "prompt": "a"})[0] == 200


def slow(running: Running) -> threading.Thread:
    """A request that takes a while, in a thread."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": 90, "temperature": 0, "ignore_eos": True}
    thread = threading.Thread(target=post, args=(running, "/v1/completions", body))
    thread.start()
    until = time.monotonic() + 10
    while not running.engine.metrics().running:
        assert time.monotonic() < until
        time.sleep(0.002)
    return thread


def test_more_requests_than_are_served_at_once_are_a_429():
    with serving(service(), ServerLimits(most_requests=1)) as running:
        thread = slow(running)
        with pytest.raises(openai.RateLimitError, match="served already"):
            client(running).completions.create(model="tiny", prompt="a", **GREEDY)
        thread.join(30)
        assert client(running).completions.create(model="tiny", prompt="a", **GREEDY).choices


def test_a_line_that_is_full_is_a_429():
    with serving(service(most_waiting=1)) as running:
        thread = slow(running)
        with pytest.raises(openai.RateLimitError, match="in line already"):
            client(running).completions.create(model="tiny", prompt="a", n=1, **GREEDY)
        thread.join(30)


def test_a_client_that_goes_takes_its_request_with_it():
    with serving(service()) as running:
        stream = client(running).completions.create(
            model="tiny", prompt="a", max_tokens=90, temperature=0, stream=True,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        next(iter(stream))
        stream.close()
        where = urlparse(running.url)
        link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
        body = {"model": "tiny", "prompt": "b", "max_tokens": 90, "ignore_eos": True}
        link.request("POST", "/v1/completions", json.dumps(body))
        link.close()
        until = time.monotonic() + 10
        while running.engine.metrics().finished < 1 or running.engine.metrics().running:
            assert time.monotonic() < until, running.engine.metrics()
            time.sleep(0.01)
        assert dict(running.engine.metrics().by_reason).get("cancelled", 0) >= 1


def test_a_stop_lets_what_runs_end():
    with serving(service()) as running:
        got: list[int] = []
        body = {"model": "tiny", "prompt": "a", "max_tokens": 60, "ignore_eos": True}
        thread = threading.Thread(
            target=lambda: got.append(post(running, "/v1/completions", body)[0])
        )
        thread.start()
        until = time.monotonic() + 10
        while not running.engine.metrics().running:
            assert time.monotonic() < until
            time.sleep(0.002)
        running.stop()
        thread.join(30)
        assert got == [200]
        assert running.engine.metrics().by_reason == (("length", 1),)


def test_a_failure_of_the_device_is_no_fault_of_the_clients():
    assert refusal(LaunchError("the driver says no")).status_code == 503


def test_a_penalty_that_f32_does_not_hold_is_the_clients_fault_and_nobody_elses(running: Running):
    body = {"model": "tiny", "prompt": "a", "max_tokens": 4, "repetition_penalty": 1e-50}
    status, answer = post(running, "/v1/completions", body)
    assert (status, "repetition penalty" in str(answer)) == (400, True)
    assert running.engine.failed is None


def test_a_conversation_goes_on_with_the_message_that_was_answered(running: Running):
    messages: list[object] = [{"role": "user", "content": "the"}]
    chat = client(running).chat.completions
    first = chat.create(model="tiny", messages=messages, **GREEDY)  # pyright: ignore - its own shape
    messages += [first.choices[0].message, {"role": "user", "content": "a"}]
    second = chat.create(model="tiny", messages=messages, **GREEDY)  # pyright: ignore - its own shape
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_a_client_that_goes_while_tokens_come_takes_its_request_with_it():
    made = service()
    stepper = made.engine._stepper  # pyright: ignore[reportPrivateUsage] - to slow it
    quick = stepper.run

    def slow(*given: Any) -> Any:
        time.sleep(0.05)
        return quick(*given)

    stepper.run = slow
    with serving(made) as running:
        where = urlparse(running.url)
        link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
        body = {"model": "tiny", "prompt": "a", "max_tokens": 80, "ignore_eos": True}
        link.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        time.sleep(0.3)
        link.close()
        until = time.monotonic() + 2.5
        while not made.engine.metrics().finished:
            assert time.monotonic() < until, "the request runs on without its client"
            time.sleep(0.02)
        assert dict(made.engine.metrics().by_reason) == {"cancelled": 1}


def test_every_refusal_has_the_shape_of_openai():
    with serving(service()) as running:
        host, port = running.url.removeprefix("http://").rstrip("/").split("/")[0].split(":")
        json_type = {"Content-Type": "application/json"}
        asked = (
            ("POST", "/v1/completions", b"{nope", json_type, 400),
            ("POST", "/v1/completions", b"\xff\xfe{", json_type, 400),
            ("POST", "/v1/completions", b"[]", json_type, 400),
            ("POST", "/v1/completions", b"", json_type, 400),
            ("POST", "/v1/completions", b"{}", {"Content-Type": "text/plain"}, 400),
            ("GET", "/v1/nothing", b"", {}, 404),
            ("GET", "/v1/completions", b"", {}, 405),
        )
        for method, path, body, headers, status in asked:
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            connection.close()
            assert answer.status == status, said
            assert set(said) == {"error"}, said
            assert {"message", "type", "param", "code"} <= set(said["error"]), said
            assert said["error"]["message"]
