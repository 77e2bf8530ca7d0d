"""Reads safetensors checkpoints, sharded ones too, without trusting them.

    u64 length | JSON header: {name: {"dtype", "shape", "data_offsets": [start, stop]}} | data

An index (`model.safetensors.index.json`) says which file holds which tensor; it may name files of
its own folder only. Lengths, extents and offsets are held against the file's size before they are
used. Nothing is read of the tensors until they are asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from poot.errors import FormatError

ONE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER = 1 << 27  # bytes
MAX_INDEX = 1 << 27  # bytes
MAX_RANK = 4
# safetensors' name -> (poot's, numpy's)
DTYPES: Mapping[str, tuple[str, np.dtype]] = {
    "F32": ("f32", np.dtype(np.float32)),
    "F16": ("f16", np.dtype(np.float16)),
    "BF16": ("bf16", np.dtype(ml_dtypes.bfloat16)),
}
# What codes are read in, besides.
CODES: Mapping[str, np.dtype] = {
    **{name: held for name, (_, held) in DTYPES.items()},
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
}
_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2,
    "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
_CHUNK = 1 << 22  # elements searched at once


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: safetensors' dtype, its extents, and its bytes from the file's start."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class TensorFiles:
    """The tensors of a folder. The files stay on disk, mapped read-only."""

    folder: Path
    tensors: Mapping[str, StoredTensor]
    maps: Mapping[str, NDArray[np.uint8]] = field(repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order of their names."""
        return tuple(self.folder / name for name in sorted(self.maps))

    def info(self, name: str) -> StoredTensor:
        """Where a tensor lies; FormatError where there is none of that name."""
        if name not in self.tensors:
            raise FormatError(f"{self.folder.name}: there is no tensor {name}")
        return self.tensors[name]

    def dtype(self, name: str) -> str:
        """The tensor's dtype by poot's name; FormatError for one that no weight has."""
        info = self.info(name)
        if info.dtype not in DTYPES:
            raise FormatError(
                f"{info.file}: tensor {name} is {info.dtype}; poot reads weights of "
                f"{', '.join(DTYPES)}"
            )
        return DTYPES[info.dtype][0]

    def array(self, name: str) -> np.ndarray:
        """The tensor in its own dtype, read-only, still on disk."""
        self.dtype(name)
        info = self.info(name)
        flat = self.maps[info.file][info.start : info.stop]
        return flat.view(DTYPES[info.dtype][1]).reshape(info.shape)

    def raw(self, name: str) -> np.ndarray:
        """The tensor in its own dtype, codes too, read-only, still on disk; FormatError for a dtype
        that poot reads none of."""
        info = self.info(name)
        if info.dtype not in CODES:
            raise FormatError(
                f"{info.file}: tensor {name} is {info.dtype}, which poot reads none of"
            )
        flat = self.maps[info.file][info.start : info.stop]
        return flat.view(CODES[info.dtype]).reshape(info.shape)

    def check_finite(self) -> None:
        """Read every weight once. FormatError naming the first tensor with a NaN or Inf in it."""
        for name, info in sorted(self.tensors.items()):
            if info.dtype not in DTYPES and info.dtype != "F8_E4M3":
                continue
            flat = self.raw(name).reshape(-1)
            for start in range(0, flat.size, _CHUNK):
                bad = np.flatnonzero(~np.isfinite(flat[start : start + _CHUNK]))
                if bad.size:
                    at = np.unravel_index(start + int(bad[0]), info.shape)
                    raise FormatError(
                        f"{info.file}: tensor {name} ({info.dtype}) holds a NaN or Inf at index "
                        f"{tuple(map(int, at))}; fetch the checkpoint anew"
                    )


def read_tensor_files(folder: Path | str) -> TensorFiles:
    """Map `model.safetensors` of a folder, or the files that its index names, and check their
    headers. Raises FormatError, saying what is wrong and where."""
    folder = Path(folder)
    index = folder / INDEX
    wanted: Mapping[str, str] | None = _weight_map(index) if index.is_file() else None
    names = [ONE] if wanted is None else sorted(set(wanted.values()))
    found: dict[str, StoredTensor] = {}
    maps: dict[str, NDArray[np.uint8]] = {}
    for name in names:
        maps[name] = _mapped(folder / name)
        for key, tensor in _header(name, maps[name]).items():
            if wanted is not None and wanted.get(key) != name:
                raise FormatError(f"{name}: holds tensor {key}, which {INDEX} does not place there")
            found[key] = tensor
    missing = sorted(set(wanted or ()) - found.keys())
    if missing:
        place = (wanted or {})[missing[0]]
        raise FormatError(f"{INDEX}: places tensor {missing[0]} in {place}, which has none such")
    return TensorFiles(folder, MappingProxyType(found), MappingProxyType(maps))


def read_json(path: Path, limit: int) -> dict[str, object]:
    """A JSON object from a file of at most `limit` bytes. Raises FormatError for anything else."""
    try:
        if path.stat().st_size > limit:
            raise FormatError(f"{path.name}: is larger than {limit} bytes")
        return _object(path.name, path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path.name}: can't be read: {error.strerror}") from error


def _object(name: str, text: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: is no JSON that poot reads: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{name}: holds no JSON object")
    return cast("dict[str, object]", value)  # JSON keys are texts


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key {twice!r} stands twice")
    return made


def _weight_map(path: Path) -> dict[str, str]:
    found = read_json(path, MAX_INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise FormatError(f"{path.name}: has no weight_map of tensors to files")
    placed: dict[str, str] = {}
    for key, name in cast("dict[str, object]", found).items():  # JSON keys are texts
        is_bare = isinstance(name, str) and name == Path(name).name and "\\" not in name
        if not isinstance(name, str) or not is_bare or not name.endswith(".safetensors"):
            raise FormatError(
                f"{path.name}: places tensor {key} in {name!r}; needs the name of a .safetensors "
                "file of its own folder"
            )
        placed[key] = name
    return placed


def _mapped(path: Path) -> NDArray[np.uint8]:
    try:
        if not path.is_file():
            raise FormatError(f"{path.name}: there is no such file in {path.parent.name}")
        if path.stat().st_size < 10:
            raise FormatError(f"{path.name}: is too short for a safetensors header")
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise FormatError(f"{path.name}: can't be read: {error.strerror}") from error


def _header(name: str, data: NDArray[np.uint8]) -> dict[str, StoredTensor]:
    length = int.from_bytes(data[:8].tobytes(), "little")
    if not 2 <= length <= min(MAX_HEADER, data.size - 8):
        raise FormatError(
            f"{name}: its header has {length} bytes by its own word; the file has {data.size}, so "
            "it is truncated or no safetensors file"
        )
    rows = _object(name, data[8 : 8 + length].tobytes())
    rows.pop("__metadata__", None)
    found = {key: _stored(name, key, row, 8 + length, data.size) for key, row in rows.items()}
    end, before = 8 + length, "the header"
    for key, tensor in sorted(found.items(), key=lambda row: (row[1].start, row[1].stop)):
        if tensor.start < end:
            raise FormatError(f"{name}: tensor {key} overlaps {before}")
        end, before = tensor.stop, f"tensor {key}"
    return found


def _stored(name: str, key: str, row: object, base: int, size: int) -> StoredTensor:
    fields = cast("dict[str, object]", row) if isinstance(row, dict) else {}  # JSON: texts
    dtype, shape = fields.get("dtype"), _whole(fields.get("shape"))
    offsets = _whole(fields.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise FormatError(f"{name}: tensor {key} has no dtype, shape and data_offsets")
    if dtype not in _SIZES:
        raise FormatError(f"{name}: tensor {key} has unknown dtype {dtype!r}")
    if len(shape) > MAX_RANK:
        raise FormatError(f"{name}: tensor {key} has {len(shape)} axes; poot reads {MAX_RANK}")
    start, stop = base + offsets[0], base + offsets[1]
    nbytes = math.prod(shape) * _SIZES[dtype]
    if stop - start != nbytes:
        raise FormatError(
            f"{name}: tensor {key} ({dtype} {list(shape)}) takes {nbytes} bytes and has "
            f"{stop - start}"
        )
    if stop > size:
        raise FormatError(
            f"{name}: tensor {key} takes bytes {start} to {stop}; the file has {size}, so it is "
            "truncated or lies"
        )
    return StoredTensor(name, dtype, shape, start, stop)


def _whole(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)  # isinstance says no more
    numbers = tuple(item for item in items if type(item) is int and 0 <= item < 1 << 62)
    return numbers if len(numbers) == len(items) else None
