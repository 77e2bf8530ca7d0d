"""Checked reads from the bytes of a file that nobody vouches for.

A read that would pass the file's end, a length past its limit, or text that is no UTF-8 raises
`FormatError`, before anything of that length is allocated.
"""

from __future__ import annotations

import struct

from poot.errors import FormatError

_U64 = struct.Struct("<Q")


class Cursor:
    """A place `at` in `data`, moved only by reads that fit. `name` is the file's, for messages."""

    __slots__ = ("at", "data", "name")

    def __init__(self, data: memoryview, name: str) -> None:
        self.data = data
        self.name = name
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes from here to the file's end."""
        return len(self.data) - self.at

    def refuse(self, why: str, at: int | None = None) -> FormatError:
        """The error for what stands at `at` (here where omitted), to be raised by the caller."""
        return FormatError(f"{self.name}: {why} (offset {self.at if at is None else at})")

    def take(self, nbytes: int, what: str) -> int:
        """Step over the next nbytes, which hold `what`, and return where they start."""
        if nbytes > self.left:
            raise self.refuse(f"the file ends inside {what}: needs {nbytes} bytes, has {self.left}")
        at = self.at
        self.at = at + nbytes
        return at

    def scalar(self, kind: struct.Struct, what: str) -> int | float:
        """The next scalar, little-endian."""
        (value,) = kind.unpack_from(self.data, self.take(kind.size, what))
        return value

    def count(self, what: str, *, limit: int, each: int) -> int:
        """A u64 count of things that take at least `each` bytes of the file apiece."""
        (value,) = _U64.unpack_from(self.data, self.take(8, what))
        if value > limit:
            raise self.refuse(f"{what} is {value}, past poot's limit of {limit}", self.at - 8)
        if value * each > self.left:
            raise self.refuse(
                f"{what} is {value}, which needs {value * each} bytes or more; "
                f"the file has {self.left} left",
                self.at - 8,
            )
        return value

    def string(self, what: str, *, limit: int) -> str:
        """A u64 length, then that many bytes of UTF-8."""
        length = self.count(f"the length of {what}", limit=limit, each=1)
        at = self.take(length, what)
        try:
            return str(self.data[at : at + length], "utf-8")
        except UnicodeDecodeError as bad:
            raise self.refuse(f"{what} is not UTF-8: {bad.reason}", at + bad.start) from bad
