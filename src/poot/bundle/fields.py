"""JSON of a stranger, taken apart by what each field has to be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

from poot.errors import FormatError

MOST_INT = 1 << 62
MOST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Fields:
    """One object, and where it stands: every error names that. Raises FormatError alone."""

    where: str
    values: dict[str, object]

    def refuse(self, what: str) -> NoReturn:
        raise FormatError(f"{self.where}: {what}")

    def need(self, claim: bool, what: str) -> None:
        if not claim:
            self.refuse(what)

    def _get(self, name: str) -> object:
        if name not in self.values:
            self.refuse(f"needs {name}")
        return self.values[name]

    def is_null(self, name: str) -> bool:
        return self._get(name) is None

    def integer(self, name: str, least: int = 0, most: int = MOST_INT) -> int:
        """least <= value <= most."""
        return self._integer(self._get(name), name, least, most)

    def _integer(self, value: object, name: str, least: int, most: int) -> int:
        if type(value) is not int or not least <= value <= most:
            seen = repr(value)[:40]
            self.refuse(f"{name} needs an integer from {least} to {most}: {seen}")
        return value

    def flag(self, name: str) -> bool:
        value = self._get(name)
        if not isinstance(value, bool):
            self.refuse(f"{name} needs true or false: {repr(value)[:40]}")
        return value

    def text(self, name: str, most: int = MOST_TEXT) -> str:
        return self._text(self._get(name), name, most)

    def _text(self, value: object, name: str, most: int) -> str:
        if not isinstance(value, str) or len(value) > most:
            self.refuse(f"{name} needs a text of up to {most} characters: {repr(value)[:40]}")
        return value

    def choice(self, name: str, known: Sequence[str]) -> str:
        value = self.text(name)
        self.need(value in known, f"{name} needs one of {', '.join(known)}: {value[:40]!r}")
        return value

    def items(self, name: str) -> list[object]:
        value = self._get(name)
        if not isinstance(value, list):
            self.refuse(f"{name} needs a list: {repr(value)[:40]}")
        return cast("list[object]", value)  # isinstance says no more

    def integers(self, name: str, least: int = 0, most: int = MOST_INT) -> tuple[int, ...]:
        return tuple(self._integer(v, name, least, most) for v in self.items(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._text(v, name, MOST_TEXT) for v in self.items(name))

    def flags(self, name: str) -> tuple[bool, ...]:
        values = self.items(name)
        self.need(all(isinstance(v, bool) for v in values), f"{name} needs true or false")
        return tuple(v is True for v in values)

    def object(self, name: str) -> Fields:
        return self._object(self._get(name), f"{self.where}.{name}")

    def objects(self, name: str) -> list[Fields]:
        return [
            self._object(v, f"{self.where}.{name}[{n}]") for n, v in enumerate(self.items(name))
        ]

    def _object(self, value: object, where: str) -> Fields:
        if not isinstance(value, dict):
            raise FormatError(f"{where}: needs an object: {repr(value)[:40]}")
        return Fields(where, cast("dict[str, object]", value))  # JSON's keys are texts


def parse_json(data: bytes, where: str) -> Fields:
    """The object that the bytes are: integers, no key twice. Raises FormatError."""
    try:
        value = cast(
            "object",  # json says Any
            json.loads(
                data.decode(),
                parse_float=_no_number,
                parse_constant=_no_number,
                object_pairs_hook=_once,
            ),
        )
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{where}: is no JSON of a bundle: {e}") from e
    if not isinstance(value, dict):
        raise FormatError(f"{where}: needs an object")
    return Fields(where, cast("dict[str, object]", value))  # JSON's keys are texts


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no integer")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return found
