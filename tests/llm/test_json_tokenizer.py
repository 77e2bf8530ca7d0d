"""Tokenizers and chat templates of checkpoint folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers

from poot.errors import FormatError, RequestError
from poot.llm.json_tokenizer import read_json_template, read_json_tokenizer
from poot.llm.keys import Keys
from poot.llm.tokenizer import Tokenizer
from tests.support.json_bytes import byte_spec, spaced_spec, write_tokenizer

VOCAB = 300
TEXT = "the a\n\u00e9\U0001f600 <b>"
EMPTY = Keys("config.json", {})


def reading(folder: Path, vocab: int = VOCAB, config: Keys = EMPTY) -> Tokenizer:
    return read_json_tokenizer(folder, vocab, config)


def spaced(folder: Path) -> Tokenizer:
    return reading(write_tokenizer(folder, spaced_spec(), bos_token="<s>", eos_token="</s>"))


def test_ids_are_the_librarys_and_text_comes_back(tmp_path: Path):
    made = reading(write_tokenizer(tmp_path, byte_spec()))
    library = tokenizers.Tokenizer.from_str(json.dumps(byte_spec()))
    assert made.encode(TEXT) == library.encode(TEXT).ids
    assert made.encode(TEXT)[0] == made.bos == 1
    assert made.decode(made.encode(TEXT)) == TEXT
    assert (made.eos, made.stops, made.add_bos) == (2, {0, 2}, True)


def test_a_vocabulary_with_marked_spaces_comes_back_too_and_streams_bytes(tmp_path: Path):
    made = spaced(tmp_path)
    ids = made.encode("hello a\u00e9\u6f22")
    assert made.decode(ids) == "hello a\u00e9\u6f22"
    stream = made.stream()
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) == "hello a\u00e9\u6f22"
    assert (made.bos, made.eos, made.add_bos) == (1, 2, False)


@pytest.mark.parametrize("kind", ["byte", "spaced"])
def test_text_that_spells_a_control_token_stays_text_when_asked(kind: str, tmp_path: Path):
    byte = reading(write_tokenizer(tmp_path, byte_spec())) if kind == "byte" else spaced(tmp_path)
    mark = "<|im_end|>" if kind == "byte" else "</s>"
    assert 2 in byte.encode(mark)
    ids = byte.encode(mark, special=False)
    assert 2 not in ids
    assert byte.decode(ids) == mark


def test_ids_past_the_vocabulary_stand_for_no_text(tmp_path: Path):
    made = reading(write_tokenizer(tmp_path, byte_spec()))
    assert made.decode([VOCAB - 1]) == ""
    with pytest.raises(RequestError, match="token 300 is outside"):
        made.token_bytes(VOCAB)


def test_ends_come_from_config_and_generation_config(tmp_path: Path):
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    folder = write_tokenizer(tmp_path, byte_spec(), eos_token=None)
    made = reading(folder, config=Keys("config.json", {"eos_token_id": 5}))
    assert made.stops == {0, 2, 5, 7, 9}
    with pytest.raises(FormatError, match="eos_token_id is 300; needs ids from 0 to 299"):
        reading(folder, config=Keys("config.json", {"eos_token_id": 300}))


@pytest.mark.parametrize(
    "edits, words",
    [
        ({"model": {"type": "Guess"}}, "`tokenizers` refuses it"),
        ({"model": None}, "`tokenizers` refuses it"),
        ({"decoder": None}, "its decoder is missing"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "is WordPiece"),
    ],
)
def test_a_tokenizer_that_poot_can_not_follow_is_refused(
    edits: dict[str, object], words: str, tmp_path: Path
):
    with pytest.raises(FormatError, match=words):
        reading(write_tokenizer(tmp_path, byte_spec() | edits))


def test_more_tokens_than_the_model_has_are_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="has ids up to 262; the model has 97"):
        reading(write_tokenizer(tmp_path, byte_spec()), vocab=97)


def test_a_bos_outside_the_vocabulary_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="bos_token is '<none>'; needs a token of the vocabulary"):
        reading(write_tokenizer(tmp_path, byte_spec(), bos_token="<none>"))


@pytest.mark.parametrize("place", ["text", "list", "file"])
def test_the_chat_template_is_the_checkpoints_own(place: str, tmp_path: Path):
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    said = [{"name": "tool", "template": "x"}, {"name": "default", "template": source}]
    kept = {"text": source, "list": said, "file": None}[place]
    folder = write_tokenizer(tmp_path, byte_spec(), chat_template=kept)
    if place == "file":
        (folder / "chat_template.jinja").write_text(source)
    template = read_json_template(folder, reading(folder))
    assert template is not None
    text = template.render([{"role": "user", "content": "hi"}])
    assert text == "<|im_start|>hi<|im_end|>"


def test_a_template_that_is_no_text_is_refused_and_none_is_none(tmp_path: Path):
    folder = write_tokenizer(tmp_path, byte_spec(), chat_template=[{"name": "tool"}])
    with pytest.raises(FormatError, match="chat_template is no text"):
        read_json_template(folder, reading(folder))
    write_tokenizer(tmp_path, byte_spec(), chat_template=None)
    assert read_json_template(folder, reading(folder)) is None
