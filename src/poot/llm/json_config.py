"""`config.json` of a checkpoint as typed keys: nested objects dotted, nulls left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from poot.errors import FormatError
from poot.llm.gguf_file import Scalar, Value
from poot.llm.keys import Keys
from poot.llm.tensor_files import read_json

MAX_CONFIG = 1 << 24  # bytes
MAX_DEPTH = 8


def read_json_config(path: Path) -> Keys:
    """The keys of a configuration. Lists of numbers, texts or truths come as tuples; other lists
    are left out: poot reads none. Raises FormatError for what is no JSON object."""
    return keys_of(path.name, read_json(path, MAX_CONFIG))


def keys_of(name: str, config: Mapping[str, object]) -> Keys:
    """The same of a configuration that has been read."""
    return Keys(name, dict(_flat(name, config, "", 0)))


def _flat(
    name: str, config: Mapping[str, object], prefix: str, depth: int
) -> Iterator[tuple[str, Value]]:
    if depth > MAX_DEPTH:
        raise FormatError(f"{name}: objects nest more than {MAX_DEPTH} deep")
    for key, value in config.items():
        if isinstance(value, dict):
            inner = cast("dict[str, object]", value)  # JSON keys are texts
            yield from _flat(name, inner, f"{prefix}{key}.", depth + 1)
        elif isinstance(value, list):
            items = cast("list[object]", value)  # isinstance says no more
            scalars = tuple(item for item in items if isinstance(item, Scalar))
            if len(scalars) == len(items):
                yield prefix + key, scalars
        elif isinstance(value, Scalar):
            yield prefix + key, value


def part(keys: Keys, prefix: str) -> Keys:
    """The keys under `prefix.`, without it."""
    head = f"{prefix}."
    rows = {k.removeprefix(head): v for k, v in keys.values.items() if k.startswith(head)}
    return Keys(f"{keys.name} {prefix}", rows)
