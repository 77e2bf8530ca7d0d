"""From a client's request to the engine's."""

from __future__ import annotations

import pytest

from poot.errors import RequestError
from poot.llm.sampling import Sampling
from poot.llm.server.schema import ChatAsked, CompletionAsked
from poot.llm.server.service import NoSuchModel, Service
from tests.support.http_server import service


@pytest.fixture(scope="module")
def made() -> Service:
    return service()


def completion(**fields: object) -> CompletionAsked:
    return CompletionAsked.model_validate({"model": "tiny", "prompt": "a", **fields})


def chat(**fields: object) -> ChatAsked:
    messages = [{"role": "user", "content": "a"}]
    return ChatAsked.model_validate({"model": "tiny", "messages": messages, **fields})


def test_defaults_are_openais(made: Service):
    request = made.completion(completion()).requests[0]
    assert request.max_tokens == 16
    assert (request.sampling.temperature, request.sampling.top_p) == (1.0, 1.0)
    assert request.stop_ids == made.tokenizer.stops
    left = made.engine.layout.capacity - len(made.chat(chat()).requests[0].prompt)
    assert made.chat(chat()).requests[0].max_tokens == left


def test_every_option_reaches_the_sampling(made: Service):
    fields = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1, "seed": -1}
    fields |= {"repetition_penalty": 1.5, "presence_penalty": 1.0, "frequency_penalty": -0.5}
    request = made.completion(completion(**fields)).requests[0]
    assert request.sampling == Sampling(0.5, 3, 0.9, 2**32 - 1, 0.1, 1.5, 1.0, -0.5)


def test_texts_of_one_prompt_have_seeds_of_their_own(made: Service):
    work = made.completion(completion(prompt=["a", "b"], n=2, seed=7))
    assert [r.sampling.seed for r in work.requests] == [7, 8, 9, 10]
    assert work.requests[0].prompt == work.requests[1].prompt
    assert len(work.prompts) == 2
    seeds = {made.completion(completion()).requests[0].sampling.seed for _ in range(20)}
    assert len(seeds) > 15


def test_a_chats_own_name_for_its_bound_comes_first(made: Service):
    assert made.chat(chat(max_tokens=3)).requests[0].max_tokens == 3
    both = chat(max_tokens=3, max_completion_tokens=5)
    assert made.chat(both).requests[0].max_tokens == 5


def test_what_is_not_here_or_too_long_is_refused(made: Service):
    with pytest.raises(NoSuchModel, match="models: tiny"):
        made.completion(completion(model="x"))
    short = service(most_prompt=2)
    with pytest.raises(RequestError, match="takes up to 2"):
        short.completion(completion(prompt=[1, 2, 3]))
