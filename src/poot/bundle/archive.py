"""The zip of a bundle, written and read without trust.

What poot writes is the plainest zip there is, and it reads no other: members stored as they are
(so that nothing unpacks to more than the file has), one after another from the first byte, each
once, without comments, extra fields or encryption, under names of its own folders. Every byte of
the file belongs to a member or to the directory.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping

from poot.errors import FormatError

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_SIGNS = (0x04034B50, 0x02014B50, 0x06054B50)  # local header, directory entry, end of directory
_VERSION = 20  # of the zip format: PKWARE's APPNOTE, 4.4.3.2
_DATE = (1 << 5) | 1  # 1980-01-01, so that a program makes the same bytes on every day
_MOST = (1 << 32) - 1
_NAME = re.compile(r"(?:kernels/|consts/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}", re.ASCII)


def is_member_name(name: str) -> bool:
    """Whether a bundle may have a member of that name: a plain file name, at most in one of the
    two folders."""
    return _NAME.fullmatch(name) is not None


def pack_archive(members: Mapping[str, bytes]) -> bytes:
    """The zip of the members, in their order. Raises FormatError where they are more than a zip
    without extensions holds."""
    parts: list[bytes] = []
    directory: list[bytes] = []
    at = 0
    for name, data in members.items():
        assert is_member_name(name), name
        raw, crc = name.encode(), zlib.crc32(data)
        _need(at + len(data) < _MOST, "bundle", "a zip holds less than 4 GiB; this one needs more")
        sizes = (crc, len(data), len(data), len(raw), 0)
        head = (_VERSION, 0, 0, 0, _DATE, *sizes)
        parts += [_LOCAL.pack(_SIGNS[0], *head), raw, data]
        directory += [_CENTRAL.pack(_SIGNS[1], _VERSION, *head, 0, 0, 0, 0, at), raw]
        at += _LOCAL.size + len(raw) + len(data)
    count, entries = len(members), b"".join(directory)
    _need(count < 0xFFFF, "bundle", f"a zip holds fewer than 65535 members: {count}")
    _need(at + len(entries) < _MOST, "bundle", "a zip holds less than 4 GiB; this one needs more")
    end = _END.pack(_SIGNS[2], 0, 0, count, count, len(entries), at, 0)
    return b"".join((*parts, entries, end))


def unpack_archive(data: bytes, who: str) -> dict[str, memoryview]:
    """The members by name, views of `data`. Raises FormatError on anything `pack_archive` doesn't
    write; `who` names the file."""
    _need(len(data) >= _END.size, who, f"{len(data)} bytes are no bundle")
    sign, disk, first, here, count, size, start, comment = _END.unpack_from(
        data, len(data) - _END.size
    )
    _need(sign == _SIGNS[2], who, "no bundle: it doesn't end as a zip without a comment does")
    _need((disk, first, comment) == (0, 0, 0) and here == count, who, "a zip of several parts")
    _need(start + size == len(data) - _END.size, who, "its directory isn't where its end says")
    members: dict[str, memoryview] = {}
    at, entry = 0, start
    for _ in range(count):
        _need(entry + _CENTRAL.size <= len(data) - _END.size, who, "its directory is cut short")
        row = _CENTRAL.unpack_from(data, entry)
        name, entry = _name(data, entry + _CENTRAL.size, row[10], who)
        _check_entry(row, who, name)
        _need(name not in members, who, f"member {name} stands in it twice")
        _need(row[16] == at, who, f"member {name} begins at {row[16]}, not at {at}")
        members[name], at = _member(data, at, row, name, start, who)
    _need(at == start, who, f"bytes {at} to {start} belong to no member")
    _need(entry == start + size, who, "its directory holds more than its members")
    return members


def _name(data: bytes, at: int, nbytes: int, who: str) -> tuple[str, int]:
    raw = data[at : at + nbytes]
    _need(len(raw) == nbytes, who, "its directory is cut short")
    name = raw.decode("ascii", errors="replace")
    _need(is_member_name(name), who, f"{name[:80]!r} is no name of a member")
    return name, at + nbytes


def _check_entry(row: tuple[int, ...], who: str, name: str) -> None:
    _need(row[0] == _SIGNS[1], who, "its directory is damaged")
    _need(row[3] == 0, who, f"member {name} is encrypted, or of unknown size")
    _need(row[4] == 0, who, f"member {name} is compressed; a bundle's members are stored")
    _need(row[8] == row[9], who, f"member {name} has {row[8]} bytes and unpacks to {row[9]}")
    _need(row[11:14] == (0, 0, 0), who, f"member {name} has extra fields or a comment")


def _member(
    data: bytes, at: int, row: tuple[int, ...], name: str, stop: int, who: str
) -> tuple[memoryview, int]:
    """A member's bytes, and where the next begins."""
    raw = name.encode()
    first = at + _LOCAL.size + len(raw)
    last = first + row[8]
    _need(last <= stop, who, f"member {name} ends at {last}, in the directory")
    local = _LOCAL.unpack_from(data, at)
    # The two headers agree in all but the version that wrote the file and what is not in both.
    same = local[0] == _SIGNS[0] and local[2:10] == row[3:11] and local[10] == 0
    same = same and data[at + _LOCAL.size : first] == raw
    _need(same, who, f"member {name}: its header and the directory differ")
    view = memoryview(data)[first:last]
    _need(zlib.crc32(view) == row[7], who, f"member {name} is damaged: its checksum is wrong")
    return view, last


def _need(claim: bool, who: str, what: str) -> None:
    if not claim:
        raise FormatError(f"{who}: {what}")
