"""The disk cache: bytes under a sha256 key, safe for any number of processes and for a kill at any
moment.

An entry is written to a file of its own and renamed into place; a reader takes it only if its
length and digest are right, and removes it if they aren't. Nothing in it is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"poot-cache-1\n"


@dataclass(frozen=True, slots=True)
class DiskCache:
    """Entries below one directory. A directory that can't be written makes a cache that keeps
    nothing."""

    root: Path

    def _path(self, key: str) -> Path:
        assert len(key) == 64, key
        assert set(key) <= set("0123456789abcdef"), key
        return self.root / key[:2] / key

    def get(self, key: str) -> bytes | None:
        """The bytes put under the key, whole, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head, payload = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        if head == _MAGIC + hashlib.sha256(key.encode() + payload).digest():
            return payload
        with suppress(OSError):
            path.unlink()
        return None

    def put(self, key: str, payload: bytes) -> bool:
        """Keeps the bytes under the key. False where the directory can't be written."""
        path = self._path(key)
        data = _MAGIC + hashlib.sha256(key.encode() + payload).digest() + payload
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        except OSError:
            return False
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            os.replace(name, path)
        except OSError:
            with suppress(OSError):
                os.unlink(name)
            return False
        return True
