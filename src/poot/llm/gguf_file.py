"""Reads a GGUF checkpoint without trusting it.

    "GGUF" | u32 version | u64 tensors | u64 keys | keys | tensor infos | padding | tensor data
    key     string name, u32 type, value            (GGUF specification, version 2 and 3)
    info    string name, u32 rank, u64 extents (fastest first), u32 type, u64 offset in the data

Every count, length, extent and offset is held against the file's size before it is used, so a
hostile file costs a `FormatError` and little else. Block sizes and the decoding of blocks are
the `gguf` library's.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from poot.errors import FormatError, need
from poot.extras import refuse_missing
from poot.llm.cursor import Cursor

try:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize
except ModuleNotFoundError as e:
    refuse_missing(e, "poot.llm")

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_NAME = 64  # bytes of a tensor's name (GGUF specification)
MAX_KEY = (1 << 16) - 1  # bytes of a key (GGUF specification)
MAX_RANK = 4  # extents of a tensor (GGUF specification)
MAX_STRING = 1 << 24  # bytes of one string value
MAX_ITEMS = 1 << 21  # entries of one array value; the largest vocabularies have some 2^18
MAX_ALIGNMENT = 1 << 20

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    _BOOL: struct.Struct("<B"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_CHUNK = 1 << 16  # blocks held as f32 at once while a tensor is searched
_F16_HEAD = {"Q4_0": 1, "Q4_1": 2, "Q5_0": 1, "Q5_1": 2, "Q8_0": 1}  # halves before the codes
_PLAIN = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor's bytes lie. `shape` is row-major (a linear weight is [out, in]), `type` is
    GGML's name, such as "Q4_1"; `offset` counts bytes from the file's start."""

    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A checked GGUF file. The bytes stay on disk, mapped read-only."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]
    data: NDArray[np.uint8] = field(repr=False, compare=False)

    def info(self, name: str) -> TensorInfo:
        """The tensor's info; FormatError where the file has no such tensor."""
        if name not in self.tensors:
            raise FormatError(f"{self.path.name}: there is no tensor {name}")
        return self.tensors[name]

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes as [*shape[:-1], bytes of a row], read-only, still on disk."""
        info = self.info(name)
        flat = self.data[info.offset : info.offset + info.nbytes]
        return flat.reshape((*info.shape[:-1], -1))

    def dequantize(self, name: str) -> NDArray[np.float32]:
        """The tensor as f32 [*shape]. A tensor stored as F32 comes as a read-only view.

        Raises FormatError for a type that has no such reading (integers, F64).
        """
        info = self.info(name)
        with np.errstate(all="ignore"):
            return self._decode(name, self.raw(name)).reshape(info.shape)

    def check_finite(self) -> None:
        """Read every weight once. FormatError naming the first tensor that holds a NaN or Inf.

        Not done by `read_gguf`: it touches the whole file. Of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0
        blocks it reads the f16 scales and minima, which decide; other types are decoded.
        """
        for name, info in self.tensors.items():
            if info.type[0] == "I" and info.type[1:].isdigit():
                continue
            block, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[info.type]]
            blocks = self.raw(name).reshape(-1, nbytes)
            for start in range(0, len(blocks), _CHUNK):
                part = blocks[start : start + _CHUNK]
                bad = np.flatnonzero(~np.isfinite(self._telling(name, part)).all(axis=-1))
                if bad.size:
                    at = (start + int(bad[0])) * block
                    where = np.unravel_index(at, info.shape)
                    raise FormatError(
                        f"{self.path.name}: tensor {name} ({info.type}) holds a NaN or Inf at or "
                        f"just after index {tuple(map(int, where))}; fetch the checkpoint anew"
                    )

    def _telling(self, name: str, blocks: NDArray[np.uint8]) -> NDArray[np.floating]:
        """Floats [blocks, n] that are all finite exactly where the decoded blocks are."""
        kind = self.tensors[name].type
        if kind in _PLAIN:
            return blocks.view(_PLAIN[kind])
        if kind in _F16_HEAD:
            return np.ascontiguousarray(blocks[:, : 2 * _F16_HEAD[kind]]).view(np.float16)
        with np.errstate(all="ignore"):
            return self._decode(name, blocks)

    def _decode(self, name: str, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        kind = self.tensors[name].type
        try:
            return dequantize(rows, GGMLQuantizationType[kind])
        except NotImplementedError as missing:
            raise FormatError(
                f"{self.path.name}: tensor {name} is {kind}, which has no reading as f32"
            ) from missing


def read_gguf(path: Path | str) -> GgufFile:
    """Map the file and check its header, metadata and tensor table. No weight is read.

    Raises FormatError, saying what is wrong and where, for a file that is missing, truncated,
    big-endian, of version 1, or whose counts, lengths, types, extents or offsets do not fit it.
    """
    path = Path(path)
    try:
        need(path.is_file(), "a regular file", error=FormatError, path=path)
        need(path.stat().st_size >= 24, "24 bytes of header", error=FormatError, path=path)
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise FormatError(f"{path.name}: can't be read: {error.strerror}") from error
    cursor = Cursor(data.data, path.name)
    n_tensors, n_keys = _header(cursor)
    metadata = _metadata(cursor, n_keys)
    tensors = _tensors(cursor, n_tensors, _alignment(cursor, metadata))
    return GgufFile(path, MappingProxyType(metadata), MappingProxyType(tensors), data)


def _header(cursor: Cursor) -> tuple[int, int]:
    magic = bytes(cursor.data[: cursor.take(4, "the magic") + 4])
    if magic != b"GGUF":
        raise cursor.refuse(f"starts with {magic!r} and not with b'GGUF': no GGUF file", 0)
    version = int(cursor.scalar(_U32, "the version"))
    if version & 0xFFFF == 0:
        raise cursor.refuse("is big-endian; poot reads little-endian GGUF", 4)
    if version not in (2, 3):
        raise cursor.refuse(f"has GGUF version {version}; poot reads 2 and 3", 4)
    n_tensors = cursor.count("the number of tensors", limit=MAX_TENSORS, each=32)
    n_keys = cursor.count("the number of metadata keys", limit=MAX_KEYS, each=13)
    return n_tensors, n_keys


def _metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for _ in range(count):
        at = cursor.at
        key = cursor.string("a metadata key", limit=MAX_KEY)
        if key in found:
            raise cursor.refuse(f"metadata key {key!r} stands twice", at)
        found[key] = _value(cursor, key)
    return found


def _value(cursor: Cursor, key: str) -> Value:
    kind = int(cursor.scalar(_U32, f"the type of {key!r}"))
    if kind == _STRING:
        return cursor.string(f"the text of {key!r}", limit=MAX_STRING)
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind not in _SCALARS:
        raise cursor.refuse(f"metadata key {key!r} has unknown type {kind}", cursor.at - 4)
    value = cursor.scalar(_SCALARS[kind], f"the value of {key!r}")
    return _bool(cursor, key, value) if kind == _BOOL else value


def _array(cursor: Cursor, key: str) -> tuple[Scalar, ...]:
    kind = int(cursor.scalar(_U32, f"the entry type of {key!r}"))
    if kind == _ARRAY:
        raise cursor.refuse(f"metadata key {key!r} is an array of arrays", cursor.at - 4)
    if kind != _STRING and kind not in _SCALARS:
        raise cursor.refuse(f"metadata key {key!r} has unknown entry type {kind}", cursor.at - 4)
    each = 8 if kind == _STRING else _SCALARS[kind].size
    count = cursor.count(f"the number of entries of {key!r}", limit=MAX_ITEMS, each=each)
    if kind == _STRING:
        what = f"an entry of {key!r}"
        return tuple(cursor.string(what, limit=MAX_STRING) for _ in range(count))
    at = cursor.take(count * each, f"the entries of {key!r}")
    scalars = _SCALARS[kind].iter_unpack(cursor.data[at : cursor.at])
    if kind == _BOOL:
        return tuple(_bool(cursor, key, value) for (value,) in scalars)
    return tuple(itertools.chain.from_iterable(scalars))


def _bool(cursor: Cursor, key: str, value: int | float) -> bool:
    if value not in (0, 1):
        raise cursor.refuse(f"metadata key {key!r} is a bool with value {value}")
    return value == 1


def _alignment(cursor: Cursor, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", 32)  # GGUF specification: 32 where unsaid
    if isinstance(value, int) and 1 <= value <= MAX_ALIGNMENT and value & (value - 1) == 0:
        return int(value)
    raise cursor.refuse(f"general.alignment is {value!r}, no power of two up to {MAX_ALIGNMENT}")


def _tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    for _ in range(count):
        at = cursor.at
        name = cursor.string("a tensor's name", limit=MAX_NAME)
        if name in found:
            raise cursor.refuse(f"tensor {name!r} stands twice", at)
        found[name] = _tensor(cursor, name, alignment)
    start = -(-cursor.at // alignment) * alignment
    placed = {
        name: TensorInfo(info.shape, info.type, start + info.offset, info.nbytes)
        for name, info in found.items()
    }
    _check_places(cursor, placed)
    return placed


def _tensor(cursor: Cursor, name: str, alignment: int) -> TensorInfo:
    """One row of the table, its offset still relative to the data's start."""
    at = cursor.at
    rank = int(cursor.scalar(_U32, f"the rank of tensor {name!r}"))
    if not 1 <= rank <= MAX_RANK:
        raise cursor.refuse(f"tensor {name!r} has rank {rank}, not 1 to {MAX_RANK}", at)
    extents = [int(cursor.scalar(_U64, f"an extent of tensor {name!r}")) for _ in range(rank)]
    code = int(cursor.scalar(_U32, f"the type of tensor {name!r}"))
    offset = int(cursor.scalar(_U64, f"the offset of tensor {name!r}"))
    try:
        kind = GGMLQuantizationType(code)
        block, block_nbytes = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as unknown:
        raise cursor.refuse(f"tensor {name!r} has unknown type {code}", at) from unknown
    if 0 in extents or extents[0] % block:
        raise cursor.refuse(
            f"tensor {name!r} has extents {extents}: needs each above 0 and the first a multiple "
            f"of {kind.name}'s block of {block}",
            at,
        )
    if offset % alignment:
        raise cursor.refuse(f"tensor {name!r} has offset {offset}, no multiple of {alignment}", at)
    nbytes = math.prod(extents) // block * block_nbytes
    return TensorInfo(tuple(reversed(extents)), kind.name, offset, nbytes)


def _check_places(cursor: Cursor, tensors: Mapping[str, TensorInfo]) -> None:
    """Each tensor inside the file, and no byte in two tensors."""
    end, before = 0, ""
    for name, info in sorted(tensors.items(), key=lambda row: row[1].offset):
        stop = info.offset + info.nbytes
        if stop > len(cursor.data):
            raise cursor.refuse(
                f"tensor {name!r} ({info.type} {list(info.shape)}) takes bytes {info.offset} to "
                f"{stop}; the file has {len(cursor.data)}, so it is truncated or lies",
                info.offset,
            )
        if info.offset < end:
            raise cursor.refuse(f"tensors {before!r} and {name!r} overlap", info.offset)
        end, before = stop, name
