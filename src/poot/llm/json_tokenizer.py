"""The tokenizer and chat template of a checkpoint folder: `tokenizer.json` and what lies beside it.

Encoding is the `tokenizers` library's, as the file says. Decoding is by token: a byte-level
vocabulary spells bytes as characters, the other kind writes a space as U+2581 and a byte as
`<0xNN>`; it depends on the file's decoder which of them it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from poot.errors import FormatError
from poot.extras import refuse_missing
from poot.llm.chat import ChatTemplate
from poot.llm.json_config import read_json_config
from poot.llm.keys import Keys
from poot.llm.tensor_files import read_json
from poot.llm.tokenizer import BYTE_OF, CONTROL, NORMAL, STOP_NAMES, USER_DEFINED, Tokenizer

try:
    import tokenizers
except ModuleNotFoundError as e:
    refuse_missing(e, "poot.llm")

TOKENIZER, BESIDE, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION = "generation_config.json"
MAX_TOKENIZER = 1 << 28  # bytes
MAX_TEMPLATE = 1 << 20  # bytes
_SPACED = frozenset({"ByteFallback", "Metaspace"})
Json = Mapping[str, object]


def read_json_tokenizer(folder: Path, vocab: int, config: Keys) -> Tokenizer:
    """The tokenizer of a folder, for a model of `vocab` ids; ids without a token stand for no text.
    `config`: the keys of config.json, whose eos_token_id ends an answer too.

    Raises FormatError for a file that the library refuses, whose decoder poot can't follow, or with
    more tokens than the model has."""
    spec = read_json(folder / TOKENIZER, MAX_TOKENIZER)
    whole = _built(spec)
    is_spaced = _is_spaced(spec)
    rows = whole.get_vocab(with_added_tokens=True)
    if not rows or max(rows.values()) >= vocab:
        raise FormatError(
            f"{TOKENIZER}: has ids up to {max(rows.values(), default=-1)}; the model has {vocab}"
        )
    tokens = [""] * vocab
    kinds = [CONTROL] * vocab
    added = dict(_added(spec))
    for token, i in rows.items():
        is_bytes = is_spaced or BYTE_OF.keys() >= set(token)
        tokens[i], kinds[i] = token, added.get(i, NORMAL if is_bytes else USER_DEFINED)
    beside = _beside(folder)
    bos, eos = (_named(beside, f"{end}_token", rows) for end in ("bos", "eos"))
    lead = list(whole.encode("", add_special_tokens=True).ids)
    known = {token for token in tokens if len(token) == 1}
    missing = () if is_spaced else (byte for c, byte in BYTE_OF.items() if c not in known)
    stops = {i for i, t in enumerate(tokens) if kinds[i] == CONTROL and t in STOP_NAMES}
    return Tokenizer(
        tokens=tuple(tokens),
        kinds=tuple(kinds),
        bos=bos,
        eos=eos,
        stops=frozenset(stops) | _ends(folder, config, vocab) | _one(eos),
        add_bos=bos is not None and lead[:1] == [bos],
        missing_bytes=frozenset(missing),
        marked=_built({**spec, "post_processor": None}),
        bare=_built({**spec, "post_processor": None, "added_tokens": []}),
        is_spaced=is_spaced,
    )


def read_json_template(folder: Path, tokenizer: Tokenizer) -> ChatTemplate | None:
    """The folder's chat template, None where it has none. Raises FormatError for one that is no
    text."""
    path = folder / TEMPLATE
    source: object = None
    if path.is_file():
        if path.stat().st_size > MAX_TEMPLATE:
            raise FormatError(f"{TEMPLATE}: is larger than {MAX_TEMPLATE} bytes")
        try:
            source = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as bad:
            raise FormatError(f"{TEMPLATE}: is no UTF-8 text at byte {bad.start}") from bad
    elif (folder / BESIDE).is_file():
        source = _default(_beside(folder).get("chat_template"))
    if source is None:
        return None
    if not isinstance(source, str):
        raise FormatError(f"{BESIDE}: chat_template is no text, nor a list with a default one")
    ends = (tokenizer.bos, tokenizer.eos)
    bos, eos = ("" if end is None else tokenizer.tokens[end] for end in ends)
    return ChatTemplate(source, folder.name, bos, eos)


def _default(found: object) -> object:
    """The template itself, or of a list of named ones the one named "default"; else what is
    there."""
    whole = found  # isinstance narrows the other name
    rows: list[object] = cast("list[object]", found) if isinstance(found, list) else []
    for row in rows:  # isinstance says no more
        fields = _fields(row)
        if fields.get("name") == "default":
            return fields.get("template")
    return whole


def _fields(row: object) -> Json:
    """A JSON object's fields; none of what is no object."""
    empty: Json = {}
    return cast("Json", row) if isinstance(row, dict) else empty  # JSON keys are texts


def _beside(folder: Path) -> Json:
    path = folder / BESIDE
    return read_json(path, MAX_TOKENIZER) if path.is_file() else {}


def _built(spec: Json) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(spec))
    except Exception as error:  # the library raises no narrower class
        raise FormatError(f"{TOKENIZER}: `tokenizers` refuses it: {error}") from error


def _is_spaced(spec: Json) -> bool:
    kinds = set(_kinds(spec.get("decoder")))
    if "ByteLevel" in kinds:
        return False
    if kinds & _SPACED:
        return True
    raise FormatError(
        f"{TOKENIZER}: its decoder is {', '.join(sorted(kinds)) or 'missing'}; poot follows "
        f"ByteLevel, {', '.join(sorted(_SPACED))}"
    )


def _kinds(decoder: object) -> Iterator[str]:
    """The types of a decoder and of those in it."""
    if isinstance(decoder, dict):
        fields = cast("Json", decoder)  # JSON keys are texts
        kind, inner = fields.get("type"), fields.get("decoders")
        if isinstance(kind, str):
            yield kind
        for row in cast("list[object]", inner) if isinstance(inner, list) else []:
            yield from _kinds(row)


def _added(spec: Json) -> Iterator[tuple[int, int]]:
    """(id, kind) of each added token."""
    rows = spec.get("added_tokens")
    for row in cast("list[object]", rows) if isinstance(rows, list) else []:
        fields = _fields(row)
        number = fields.get("id")
        if isinstance(number, int):
            yield number, CONTROL if fields.get("special") is True else USER_DEFINED


def _named(beside: Json, key: str, rows: Mapping[str, int]) -> int | None:
    """The id of a token that the file beside names by text or by an object with its content."""
    found = beside.get(key)
    if isinstance(found, dict):
        found = cast("Json", found).get("content")  # JSON keys are texts
    if found is None:
        return None
    if not isinstance(found, str) or found not in rows:
        raise FormatError(f"{BESIDE}: {key} is {found!r}; needs a token of the vocabulary")
    return rows[found]


def _one(token: int | None) -> frozenset[int]:
    return frozenset(() if token is None else (token,))


def _ends(folder: Path, config: Keys, vocab: int) -> frozenset[int]:
    """The ids that config.json and generation_config.json say end an answer."""
    path = folder / GENERATION
    found: set[int] = set()
    for keys in (config, read_json_config(path)) if path.is_file() else (config,):
        value = keys.values.get("eos_token_id", ())
        ids = value if isinstance(value, tuple) else (value,)
        for i in ids:
            if not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < vocab:
                raise keys.refuse("eos_token_id", f"ids from 0 to {vocab - 1}")
            found.add(i)
    return frozenset(found)
