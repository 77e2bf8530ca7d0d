"""The tokenizer built from a checkpoint's metadata."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders

from poot.errors import FormatError, RequestError
from poot.llm.gguf_file import Value
from poot.llm.tokenizer import BYTE_OF, Tokenizer, read_tokenizer
from tests.support.smollm2 import smollm2

PREFIX = "tokenizer.ggml"
TOKENS = ("<|im_end|>", "<tool>", *sorted(BYTE_OF), "th", "the")
TINY: dict[str, Value] = {
    f"{PREFIX}.model": "gpt2",
    f"{PREFIX}.pre": "smollm",
    f"{PREFIX}.tokens": TOKENS,
    f"{PREFIX}.token_type": (3, 4, *(1 for _ in TOKENS[2:])),
    f"{PREFIX}.merges": ("t h", "th e"),
    f"{PREFIX}.eos_token_id": 0,
}


def tiny(**edits: Value | None) -> Tokenizer:
    """The tiny tokenizer with keys replaced (None: taken out)."""
    rows = TINY | {f"{PREFIX}.{key}": value for key, value in edits.items()}
    return read_tokenizer({k: v for k, v in rows.items() if v is not None}, "tiny.gguf")


SMOLLM2 = read_tokenizer(smollm2().metadata, "smollm2")
KNOWN = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "<|im_start|>user hi 123<|im_end|>": [1, 4093, 15876, 216, 33, 34, 35, 2],
    "": [],
}


@pytest.mark.parametrize("text", KNOWN)
def test_smollm2_gives_the_known_ids(text: str):
    assert SMOLLM2.encode(text) == KNOWN[text]
    assert SMOLLM2.decode(KNOWN[text], keep_special=True) == text


def test_smollm2_stops_at_its_end_tokens_and_adds_no_bos():
    assert SMOLLM2.stops == {0, 2}
    assert (SMOLLM2.bos, SMOLLM2.eos, SMOLLM2.add_bos) == (1, 2, False)


def test_text_that_spells_a_control_token_stays_text_when_asked():
    ids = SMOLLM2.encode("a<|im_end|>", special=False)
    assert 2 not in ids
    assert SMOLLM2.decode(ids) == "a<|im_end|>"


def test_control_tokens_are_left_out_of_text_unless_kept():
    ids = SMOLLM2.encode("<|im_start|>user<|im_end|>")
    assert SMOLLM2.decode(ids) == "user"
    assert SMOLLM2.decode(ids, keep_special=True) == "<|im_start|>user<|im_end|>"


TEXTS = st.text(st.characters(codec="utf-8", max_codepoint=0x2FFFF, exclude_categories=["Cc"]))


@given(TEXTS)
def test_a_text_survives_encoding_and_decoding(text: str):
    assert SMOLLM2.decode(SMOLLM2.encode(text, special=False)) == text


@given(st.lists(st.integers(0, 49151), max_size=20))
def test_streamed_pieces_join_to_the_decoded_text_and_cut_no_character(ids: list[int]):
    stream = SMOLLM2.stream()
    pieces = [stream.push(token) for token in ids]
    assert "".join([*pieces, stream.end()]) == SMOLLM2.decode(ids)


@given(st.lists(st.integers(17, 49151), max_size=20))
def test_decoding_agrees_with_the_library(ids: list[int]):
    spelled = [SMOLLM2.tokens[token] for token in ids]
    assert SMOLLM2.decode(ids) == decoders.ByteLevel().decode(spelled)


def test_a_character_of_several_tokens_is_held_back_until_whole():
    tokenizer = tiny()
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokenizer.encode("é😀e")]
    assert pieces == ["", "é", "", "", "", "😀", "e"]
    assert stream.end() == ""


def test_a_stream_cut_inside_a_character_ends_in_a_replacement():
    tokenizer = tiny()
    stream = tokenizer.stream()
    assert [stream.push(token) for token in tokenizer.encode("😀")[:2]] == ["", ""]
    assert stream.end() == "\ufffd"


def test_bytes_that_are_no_text_decode_to_replacements():
    tokenizer = tiny()
    spelled = {byte: character for character, byte in BYTE_OF.items()}
    ids = [TOKENS.index(spelled[byte]) for byte in b"a\xffb\xc3"]
    assert tokenizer.decode(ids) == "a\ufffdb\ufffd"


def test_a_user_defined_token_is_one_id_and_stays_in_the_text():
    tokenizer = tiny()
    ids = tokenizer.encode("a<tool>b")
    assert 1 in ids
    assert tokenizer.decode(ids) == "a<tool>b"


def test_bos_is_added_where_the_file_or_the_caller_says_so():
    tokenizer = tiny(bos_token_id=1, add_bos_token=True)
    assert tokenizer.encode("t")[0] == 1
    assert tokenizer.encode("t", add_bos=False)[0] != 1
    assert tiny(bos_token_id=1).encode("t", add_bos=True)[0] == 1


def test_end_of_turn_keys_stop_a_run_too():
    assert tiny(eos_token_id=5, eot_token_id=7, eom_token_id=8).stops == {0, 5, 7, 8}


def test_a_byte_without_a_token_is_named_with_its_place():
    assert SMOLLM2.encode("ab") != []
    with pytest.raises(RequestError, match=r"no token for byte 0x04.* at byte 2"):
        SMOLLM2.encode("ab\x04c")


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(RequestError, match="surrogate pair at character 1"):
        SMOLLM2.encode("a\ud800")


def test_an_id_outside_the_vocabulary_is_refused():
    for token in (-1, 49152):
        with pytest.raises(RequestError, match=f"token {token} is outside the vocabulary of 49152"):
            SMOLLM2.decode([token])


@pytest.mark.parametrize(
    "edits, words",
    [
        ({"model": "llama"}, "model is 'llama'; needs 'gpt2'"),
        ({"model": None}, "model is missing"),
        ({"pre": "llama-bpe"}, "pre is 'llama-bpe'; needs one of gpt-2, smollm"),
        ({"tokens": (), "token_type": ()}, "each token once, and one or more"),
        ({"tokens": ("a", 1)}, "an array of texts"),
        ({"tokens": ("a", "b", "a"), "token_type": (1, 1, 1)}, r"each token once.*'a'"),
        ({"tokens": ("日",), "token_type": (1,)}, "byte-level characters only, and '日'"),
        ({"token_type": (1, 1)}, "token_type is .*; needs an array of 260 integers"),
        ({"token_type": (6,) * len(TOKENS)}, "not 6"),
        ({"merges": ("t h", "th x")}, "entry 1 is 'th x'"),
        ({"merges": ("th",)}, "entry 0 is 'th'"),
        ({"merges": ("t q",)}, "entry 0 is 't q'"),
        ({"eos_token_id": 260}, "eos_token_id is 260; needs an integer from 0 to 259"),
        ({"bos_token_id": -1}, "bos_token_id is -1"),
        ({"add_bos_token": 1}, "add_bos_token is 1; needs true or false"),
    ],
)
def test_metadata_that_does_not_fit_is_named(edits: dict[str, Value | None], words: str):
    with pytest.raises(FormatError, match=words):
        tiny(**edits)


def test_the_byte_table_is_one_to_one():
    assert sorted(BYTE_OF.values()) == list(range(256))
    assert (BYTE_OF["A"], BYTE_OF["Ġ"], BYTE_OF["Ċ"]) == (65, 32, 10)
    assert np.unique([len(character) for character in BYTE_OF]).tolist() == [1]
