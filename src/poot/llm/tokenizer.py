"""Text to token ids and back, from a GGUF file's own vocabulary.

A byte-level BPE vocabulary spells each byte as one printable character. Encoding is the
`tokenizers` library's; decoding maps characters back to bytes, so that a stream can hold back the
bytes of a character that isn't whole yet.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from poot.errors import RequestError
from poot.extras import refuse_missing
from poot.llm.gguf_file import Value
from poot.llm.keys import Keys

try:
    import tokenizers
    from tokenizers import AddedToken, models, pre_tokenizers
except ModuleNotFoundError as e:
    refuse_missing(e, "poot.llm")

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # tokenizer.ggml.token_type (GGUF specification)
# Control tokens that end an answer whichever of them the file names as its eos.
STOP_NAMES = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "</s>")


def _byte_characters() -> dict[str, int]:
    """Character -> byte, as GPT-2 has it: printable Latin-1 stands for itself, each other byte,
    in rising order, for the next character from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    moved = {chr(256 + i): byte for i, byte in enumerate(others)}
    return {chr(byte): byte for byte in sorted(printable)} | moved


BYTE_OF = _byte_characters()
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # how a spaced vocabulary spells a byte


def _byte_level() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_byte_level() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _byte_level()])


# tokenizer.ggml.pre -> how text is cut before merging.
PRE_TOKENIZERS = {"smollm": _digits_then_byte_level, "gpt-2": _byte_level}


class _Adds(Protocol):
    """What of `tokenizers.Tokenizer` its stubs leave untyped."""

    def add_special_tokens(self, tokens: list[AddedToken]) -> int: ...

    def add_tokens(self, tokens: list[AddedToken]) -> int: ...


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A BPE tokenizer. Ids index `tokens`; `stops` are the ids that end an answer. Tokens spell
    bytes by characters, or, where `is_spaced`, text with U+2581 for a space and `<0xNN>` for a
    byte."""

    tokens: tuple[str, ...] = field(repr=False)
    kinds: tuple[int, ...] = field(repr=False)
    bos: int | None
    eos: int | None
    stops: frozenset[int]
    add_bos: bool
    missing_bytes: frozenset[int] = field(repr=False)
    marked: tokenizers.Tokenizer = field(repr=False, compare=False)
    bare: tokenizers.Tokenizer = field(repr=False, compare=False)
    is_spaced: bool = False

    def encode(self, text: str, *, special: bool = True, add_bos: bool | None = None) -> list[int]:
        """The ids of `text`. With `special`, text that spells a control token becomes it; without,
        for text from strangers, it stays text. `add_bos` overrides the file's wish.

        Raises RequestError for a byte that the vocabulary has no token for.
        """
        raw = self._bytes(text)
        absent = sorted(self.missing_bytes.intersection(raw))
        if absent:
            raise RequestError(
                f"the vocabulary has no token for byte {absent[0]:#04x}, which the text holds at "
                f"byte {raw.index(absent[0])}; take it out"
            )
        chosen = self.marked if special else self.bare
        ids = list(chosen.encode(text, add_special_tokens=False).ids)
        wants_bos = self.add_bos if add_bos is None else add_bos
        return [self.bos, *ids] if wants_bos and self.bos is not None else ids

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """The text of `ids`; bytes that are no UTF-8 come as U+FFFD. Control tokens are left out
        unless `keep_special`."""
        pieces = (self.token_bytes(token, keep_special=keep_special) for token in ids)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def token_bytes(self, token: int, *, keep_special: bool = False) -> bytes:
        """The bytes that one id stands for: none for a control token unless `keep_special`."""
        if not 0 <= token < len(self.tokens):
            raise RequestError(f"token {token} is outside the vocabulary of {len(self.tokens)}")
        spelled, kind = self.tokens[token], self.kinds[token]
        if kind == CONTROL and not keep_special:
            return b""
        if kind != NORMAL:
            return spelled.encode()
        if self.is_spaced:
            byte = _BYTE.fullmatch(spelled)
            return bytes([int(byte[1], 16)]) if byte else spelled.replace("\u2581", " ").encode()
        return bytes(BYTE_OF[character] for character in spelled)

    def control_in(self, text: str) -> str | None:
        """A control token that `text` spells, None where it spells none. Raises RequestError for
        what is no Unicode text."""
        self._bytes(text)
        ids = self.marked.encode(text, add_special_tokens=False).ids
        return next((self.tokens[i] for i in ids if self.kinds[i] == CONTROL), None)

    def stream(self) -> TextStream:
        """A fresh streaming decoder."""
        return TextStream(self)

    @staticmethod
    def _bytes(text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as bad:
            raise RequestError(
                f"the text holds half a surrogate pair at character {bad.start}: no Unicode text"
            ) from bad


class TextStream:
    """Decodes token by token. The bytes of a character wait until it is whole, so the pieces
    joined equal `decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that `token` completes: often its own, sometimes none."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def end(self) -> str:
        """What is left: U+FFFD if the ids stopped inside a character, else none."""
        return self._decoder.decode(b"", final=True)


def read_tokenizer(metadata: Mapping[str, Value], name: str) -> Tokenizer:
    """The tokenizer of the GGUF file `name`, from its metadata.

    Raises FormatError, naming key and value, for another vocabulary model than byte-level BPE, an
    unknown pre-tokenizer, or tokens, types, merges and ids that do not fit each other.
    """
    keys = Keys(name, metadata)
    if keys.text("tokenizer.ggml.model") != "gpt2":
        raise keys.refuse("tokenizer.ggml.model", "'gpt2', byte-level BPE")
    if keys.text("tokenizer.ggml.pre") not in PRE_TOKENIZERS:
        raise keys.refuse("tokenizer.ggml.pre", f"one of {', '.join(sorted(PRE_TOKENIZERS))}")
    tokens = keys.texts("tokenizer.ggml.tokens")
    kinds = keys.integers("tokenizer.ggml.token_type", len(tokens))
    _check_vocabulary(keys, tokens, kinds)
    bpe = _bpe(keys, tokens)
    pre = PRE_TOKENIZERS[keys.text("tokenizer.ggml.pre")]()
    marked, bare = tokenizers.Tokenizer(bpe), tokenizers.Tokenizer(bpe)
    marked.pre_tokenizer = bare.pre_tokenizer = pre
    rows = [row for row in zip(tokens, kinds, strict=True) if row[1] != NORMAL]
    _add_marks(marked, rows)
    bos, eos = (_token_id(keys, f"tokenizer.ggml.{end}_token_id", tokens) for end in ("bos", "eos"))
    known = {c for c in tokens if len(c) == 1}
    return Tokenizer(
        tokens=tokens,
        kinds=kinds,
        bos=bos,
        eos=eos,
        stops=_stops(keys, tokens, kinds),
        add_bos=keys.flag("tokenizer.ggml.add_bos_token", False),
        missing_bytes=frozenset(byte for c, byte in BYTE_OF.items() if c not in known),
        marked=marked,
        bare=bare,
    )


def _add_marks(to: _Adds, rows: list[tuple[str, int]]) -> None:
    """Make the control and user-defined tokens whole words, which no merge cuts."""
    to.add_special_tokens([AddedToken(t, normalized=False) for t, k in rows if k == CONTROL])
    to.add_tokens([AddedToken(t, normalized=False) for t, k in rows if k == USER_DEFINED])


def _check_vocabulary(keys: Keys, tokens: tuple[str, ...], kinds: tuple[int, ...]) -> None:
    if not tokens or len(set(tokens)) != len(tokens):
        seen: set[str] = set()
        twice = next((t for t in tokens if t in seen or seen.add(t)), None)
        raise keys.refuse("tokenizer.ggml.tokens", f"each token once, and one or more ({twice!r})")
    strange = sorted(set(kinds) - {NORMAL, CONTROL, USER_DEFINED})
    if strange:
        raise keys.refuse(
            "tokenizer.ggml.token_type",
            f"{NORMAL}, {CONTROL} or {USER_DEFINED} a token, not {strange[0]}",
        )
    for token, kind in zip(tokens, kinds, strict=True):
        if kind == NORMAL and not BYTE_OF.keys() >= set(token):
            raise keys.refuse(
                "tokenizer.ggml.tokens", f"byte-level characters only, and {token!r} has others"
            )


def _bpe(keys: Keys, tokens: tuple[str, ...]) -> models.BPE:
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[str, str]] = []
    for i, merge in enumerate(keys.texts("tokenizer.ggml.merges")):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise keys.refuse(
                "tokenizer.ggml.merges",
                f"two tokens whose union is a token in each, and entry {i} is {merge!r}",
            )
        merges.append((left, right))
    return models.BPE(vocab=vocabulary, merges=merges)


def _token_id(keys: Keys, key: str, tokens: tuple[str, ...]) -> int | None:
    return keys.integer(key, 0, len(tokens) - 1) if key in keys.values else None


def _stops(keys: Keys, tokens: tuple[str, ...], kinds: tuple[int, ...]) -> frozenset[int]:
    named = (_token_id(keys, f"tokenizer.ggml.{n}_token_id", tokens) for n in ("eos", "eot", "eom"))
    rows = enumerate(zip(tokens, kinds, strict=True))
    known = (i for i, (token, kind) in rows if kind == CONTROL and token in STOP_NAMES)
    return frozenset({i for i in named if i is not None} | set(known))
