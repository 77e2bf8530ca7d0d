"""What a request may hold."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from poot.errors import RequestError
from poot.llm.server.schema import ChatAsked, CompletionAsked


def asked(**fields: object) -> CompletionAsked:
    return CompletionAsked.model_validate({"model": "m", "prompt": "p", **fields})


@pytest.mark.parametrize(
    "prompt, want",
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_prompts_are_texts_or_ids(prompt: object, want: list[object]):
    assert asked(prompt=prompt).prompts() == want


def test_neutral_values_of_what_is_not_done_are_let_by():
    asked(frequency_penalty=0, logit_bias={}, best_of=1, echo=False).check()
    with pytest.raises(RequestError, match="best_of is not supported; leave it out"):
        asked(best_of=2).check()


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty"])
def test_penalties_lie_between_minus_two_and_two(name: str):
    for value in (-2.0, 0, 2):
        asked(**{name: value}).check()
    with pytest.raises(ValidationError):
        asked(**{name: 2.1})


def test_stops_are_a_text_or_several():
    assert asked(stop="x").stops() == ("x",)
    assert asked(stop=["x", "y"]).stops() == ("x", "y")
    assert asked().stops() == ()


def test_a_chats_scores_follow_both_fields():
    def chat(**fields: object) -> ChatAsked:
        messages = [{"role": "user", "content": "hi"}]
        return ChatAsked.model_validate({"model": "m", "messages": messages, **fields})

    assert chat().scores() is None
    assert chat(logprobs=True).scores() == 0
    assert chat(logprobs=True, top_logprobs=3).scores() == 3
    assert chat().messages[0].text() == "hi"


def chat_of(*messages: dict[str, object], **fields: object) -> ChatAsked:
    return ChatAsked.model_validate({"model": "m", "messages": list(messages), **fields})


def test_an_answer_may_be_sent_back_as_it_came():
    answer = {"role": "assistant", "content": "hi", "refusal": None}
    assert chat_of(answer).messages[0].text() == "hi"
    assert chat_of({"role": "assistant", "content": None}).messages[0].text() == ""
    with pytest.raises(ValidationError):
        chat_of(answer | {"refusal": "no"})
    with pytest.raises(ValidationError, match="message of user is null"):
        chat_of({"role": "user", "content": None})


def test_a_developer_speaks_as_the_system():
    asked = chat_of({"role": "developer", "content": "x"}, {"role": "user", "content": "y"})
    assert [m.speaker() for m in asked.messages] == ["system", "user"]


def test_a_clients_notes_are_let_by_but_nothing_is_stored():
    message = {"role": "user", "content": "x"}
    chat_of(message, metadata={"a": "b"}, store=False).check()
    with pytest.raises(RequestError, match="store is not supported"):
        chat_of(message, store=True).check()
