"""Requests and their handles."""

from __future__ import annotations

import pytest

from poot.errors import LaunchError, RequestError
from poot.llm.request import Finish, Handle, Piece, Request, TokenLogprob


@pytest.mark.parametrize(
    "options, words",
    [
        ({"prompt": ()}, "the prompt is empty"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"logprobs": -1}, "logprobs is -1; needs 0 to 20"),
        ({"logprobs": 21}, "logprobs is 21"),
        ({"prompt_logprobs": True}, "the prompt's own tokens"),
        ({"salt": "\udc00"}, "half a surrogate pair"),
        ({"stops": ("a", "b\ud800")}, "half a surrogate pair"),
        ({"deadline": 0.0}, "the deadline is 0.0 s"),
        ({"deadline": float("nan")}, "the deadline is nan"),
    ],
)
def test_what_no_engine_can_do_is_refused(options: dict[str, object], words: str):
    with pytest.raises(RequestError, match=words):
        Request(**{"prompt": (1,), "max_tokens": 4} | options)  # pyright: ignore[reportArgumentType] - by name


def handle() -> tuple[Handle, list[Handle]]:
    cancelled: list[Handle] = []
    return Handle(Request((1,), 4), cancelled.append, None), cancelled


END = Finish("length", 1, 2, 0)


def test_a_result_is_all_pieces_whoever_read_some_before():
    h, _ = handle()
    h.put(Piece(7, "a", TokenLogprob(7, -0.5)))
    h.put(Piece(8, ""))
    assert next(iter(h)).token == 7
    h.put(Piece(None, "b"))
    h.put(END)
    for _ in range(2):
        result = h.result(0)
        assert (result.tokens, result.text, result.finish) == ((7, 8), "ab", END)
        assert result.logprobs == (TokenLogprob(7, -0.5),)
    assert list(h) == []
    assert h.finish is END


def test_what_ended_a_request_is_raised_to_every_reader():
    h, _ = handle()
    h.put(Finish("error", 1, 0, 0, error=LaunchError("gone")))
    for read in (lambda: h.result(0), lambda: list(h)):
        with pytest.raises(LaunchError, match="gone"):
            read()


def test_a_result_that_does_not_come_in_time_is_an_error():
    h, _ = handle()
    with pytest.raises(RequestError, match=r"no end of the request within 0\.01 s"):
        h.result(0.01)


def test_a_cancel_after_the_end_does_nothing():
    h, cancelled = handle()
    h.cancel()
    assert cancelled == [h]
    h.put(END)
    assert h.is_done
    h.cancel()
    assert cancelled == [h]


def test_events_go_to_a_listener_in_order():
    heard: list[object] = []
    h = Handle(Request((1,), 4), lambda _: None, heard.append)
    h.put(Piece(1, "x"))
    h.put(END)
    assert heard == [Piece(1, "x"), END]
    assert h.is_done
