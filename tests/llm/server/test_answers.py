"""Answers in the shapes of OpenAI's API."""

from __future__ import annotations

from poot.llm.request import Finish, Piece, TokenLogprob
from poot.llm.server.answers import error_body, new_shape, usage

END = Finish("length", 4, 2, 16)


def spell(token: int) -> bytes:
    return [b"a", b"\xf0\x9f", b"c"][token]


def test_usage_counts_a_prompt_once_and_every_answer():
    got = usage([END, END], [4])
    assert got["prompt_tokens"] == 4
    assert got["completion_tokens"] == 4
    assert got["total_tokens"] == 8
    assert got["prompt_tokens_details"] == {"cached_tokens": 32}


def test_half_a_character_in_a_score_has_its_bytes():
    shape = new_shape("id", "m", True, spell)
    piece = Piece(1, "", TokenLogprob(1, -0.5, ((0, -0.1),)))
    scores = shape.scores([piece], 0)
    assert scores is not None
    content = scores["content"]
    assert isinstance(content, list)
    assert content[0]["bytes"] == [0xF0, 0x9F]
    assert content[0]["token"] == "\ufffd"
    assert content[0]["top_logprobs"][0] == {"token": "a", "bytes": [97], "logprob": -0.1}


def test_offsets_of_scored_tokens_go_on_where_the_stream_stands():
    shape = new_shape("id", "m", False, spell)
    rows = [Piece(0, "a", TokenLogprob(0, -1.0)), Piece(2, "c", TokenLogprob(2, -2.0))]
    scores = shape.scores(rows, 10)
    assert scores is not None
    assert scores["text_offset"] == [10, 11]
    assert shape.scores([Piece(0, "a")], 0) is None


def test_each_endpoint_has_its_own_names():
    chat, plain = (new_shape("id", "m", is_chat, spell) for is_chat in (True, False))
    pieces = [Piece(0, "a"), Piece(2, "c")]
    assert chat.choice(0, pieces, END)["message"] == {
        "role": "assistant", "content": "ac", "refusal": None,
    }  # fmt: skip
    assert plain.choice(3, pieces, END) == {
        "index": 3, "text": "ac", "logprobs": None, "finish_reason": "length",
    }  # fmt: skip
    assert chat.part(0, None, 0, "stop")["delta"] == {}
    assert chat.part(0, pieces[0], 0, None)["delta"] == {"content": "a"}
    assert plain.part(0, pieces[0], 0, None)["text"] == "a"
    assert chat.opening(1)["delta"] == {"role": "assistant", "content": ""}
    assert chat.whole([], {})["object"] == "chat.completion"
    assert chat.chunk([])["object"] == "chat.completion.chunk"
    assert "usage" not in chat.chunk([])


def test_an_error_has_the_four_fields_that_clients_look_for():
    assert error_body("no", "t", code="c") == {
        "error": {"message": "no", "type": "t", "param": None, "code": "c"}
    }
