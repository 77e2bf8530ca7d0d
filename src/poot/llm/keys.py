"""Typed reads of a checkpoint's metadata. What is missing or out of place raises `FormatError`
with the key and the value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from poot.errors import FormatError
from poot.llm.gguf_file import Value


@dataclass(frozen=True, slots=True)
class Keys:
    """The metadata of the file `name`. A `default` stands in for a missing key only."""

    name: str
    values: Mapping[str, Value] = field(repr=False)

    def refuse(self, key: str, what: str) -> FormatError:
        """The error "key is value, not what", or that the key is missing; the caller raises it."""
        if key not in self.values:
            return FormatError(f"{self.name}: metadata key {key} is missing; needs {what}")
        seen = repr(self.values[key])
        shown = seen if len(seen) <= 80 else f"{seen[:77]}..."
        return FormatError(f"{self.name}: metadata key {key} is {shown}; needs {what}")

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in low .. high, both included."""
        value = self.values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise self.refuse(key, f"an integer from {low} to {high}")

    def real(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A number above `low` and up to `high`, both finite; a NaN is none."""
        value = self.values.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low < value <= high:
            return float(value)
        raise self.refuse(key, f"a number above {low} and up to {high}")

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if isinstance(value, bool):
            return value
        raise self.refuse(key, "true or false")

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if isinstance(value, str):
            return value
        raise self.refuse(key, "a text")

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of texts."""
        value = self.values.get(key)
        if isinstance(value, tuple):
            words = tuple(item for item in value if isinstance(item, str))
            if len(words) == len(value):
                return words
        raise self.refuse(key, "an array of texts")

    def integers(self, key: str, count: int) -> tuple[int, ...]:
        """An array of `count` integers."""
        value = self.values.get(key)
        if isinstance(value, tuple):
            numbers = tuple(item for item in value if type(item) is int)
            if len(numbers) == len(value) == count:
                return numbers
        raise self.refuse(key, f"an array of {count} integers")
