"""Writes GGUF bytes field by field, so that a test can make each field lie."""

from __future__ import annotations

import struct

U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
TYPE_F32, TYPE_Q4_1, TYPE_Q8_0 = 0, 3, 8


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes, length: int | None = None) -> bytes:
    """A GGUF string whose length says `length` (the truth where omitted)."""
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw) if length is None else length) + raw


def key(name: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(name) + u32(kind) + payload


def array(name: str, kind: int, count: int, payload: bytes) -> bytes:
    return key(name, ARRAY, u32(kind) + u64(count) + payload)


def info(
    name: str, extents: tuple[int, ...], kind: int, offset: int, rank: int | None = None
) -> bytes:
    """A tensor's row; extents stand fastest first, as in the file."""
    dims = b"".join(u64(extent) for extent in extents)
    return text(name) + u32(len(extents) if rank is None else rank) + dims + u32(kind) + u64(offset)


def gguf(
    keys: tuple[bytes, ...] = (),
    infos: tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_keys: int | None = None,
    n_infos: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file. The counts say `n_keys` and `n_infos` (the truth where omitted)."""
    head = magic + u32(version)
    head += u64(len(infos) if n_infos is None else n_infos)
    head += u64(len(keys) if n_keys is None else n_keys)
    head += b"".join(keys) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data
