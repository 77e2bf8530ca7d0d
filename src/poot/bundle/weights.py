"""A program's weights as a device holds them, in a safetensors file beside the bundle.

    u64 length | JSON header: {name: {"dtype", "shape", "data_offsets": [start, stop]}} | data

A tensor is a resident of the program: its name is the resident's, its data are the resident's
bytes, packed, whole words. Where the layout is the array's own, dtype and shape are too; a packed
one has one axis. A runtime copies each into its place; nothing has to be unpacked.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from poot.bundle.fields import parse_json
from poot.device_bytes import to_device
from poot.errors import BindError, FormatError
from poot.ir.dtypes import DTYPES
from poot.launch_lists import LaunchLists
from poot.planner.layouts import pack
from poot.planner.plan import Resident
from poot.planner.request import Layout

STORED = {
    "f32": "F32", "f16": "F16", "bf16": "BF16", "f8e4m3": "F8_E4M3", "i32": "I32", "u32": "U32",
    "i8": "I8", "u8": "U8", "bool": "U32",
}  # fmt: skip
MOST_HEADER = 64 << 20
DIGEST = "poot.program"  # the metadata key that holds the key of the program


def weight_residents(lists: LaunchLists) -> tuple[Resident, ...]:
    """The residents that a weights file holds, in their order on the device."""
    kept = (r for r in lists.residents if r.place.space.split(".")[0] == "weights")
    return tuple(sorted(kept, key=lambda r: (r.place.space, r.place.offset)))


def _shape(r: Resident) -> list[int]:
    each = DTYPES[r.type.dtype].nbytes
    is_whole = r.layout == Layout() and r.type.nbytes == r.place.nbytes
    return list(r.type.shape) if is_whole else [r.place.nbytes // each]


def write_weights(
    path: Path, lists: LaunchLists, weights: Mapping[str, np.ndarray], key: str
) -> None:
    """The file, whole or not at all. `weights` are checked arrays by input name; `key` is the
    program's."""
    head: dict[str, object] = {"__metadata__": {DIGEST: key}}
    at = 0
    for r in weight_residents(lists):
        head[r.name] = {
            "dtype": STORED[r.type.dtype],
            "shape": _shape(r),
            "data_offsets": [at, at + r.place.nbytes],
        }
        at += r.place.nbytes
    raw = json.dumps(head).encode()
    raw += b" " * (-len(raw) % 8)

    def parts() -> Iterator[bytes | memoryview]:
        yield len(raw).to_bytes(8, "little") + raw
        for r in weight_residents(lists):
            array = weights[r.name.split("@")[0]]
            data = to_device(pack(array, r.layout), r.type)
            assert data.size == r.place.nbytes, (r.name, data.size)
            yield data.data

    write_whole(path, parts())


def write_whole(path: Path, parts: Iterator[bytes | memoryview]) -> None:
    """Writes a file beside itself and renames it into place."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}-")
    try:
        with os.fdopen(handle, "wb") as f:
            for part in parts:
                f.write(part)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def read_weights(path: Path, lists: LaunchLists, key: str) -> dict[str, np.ndarray]:
    """Each resident's bytes by its name, on disk until they are read. Raises FormatError where the
    file isn't such a one, BindError where it is another program's."""
    try:
        size = path.stat().st_size
        data = np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)
    except OSError as e:
        raise FormatError(f"{path.name}: can't be read: {e.strerror}") from e
    length = int.from_bytes(bytes(data[:8]), "little")
    if size < 8 or length > min(MOST_HEADER, size - 8):
        raise FormatError(f"{path.name}: {size} bytes are no safetensors file")
    top = parse_json(bytes(data[8 : 8 + length]), path.name)
    said = top.object("__metadata__").text(DIGEST) if "__metadata__" in top.values else ""
    if said != key:
        raise BindError(
            f"{path.name} holds the weights of program {said[:16]!r}, and this is {key[:16]!r}; "
            "save them again with this program"
        )
    found: dict[str, np.ndarray] = {}
    body = data[8 + length :]
    for r in weight_residents(lists):
        f = top.object(r.name)
        start, stop = (*f.integers("data_offsets"), -1, -1)[:2]
        is_right = stop - start == r.place.nbytes and stop <= body.size
        is_right = is_right and f.text("dtype") == STORED[r.type.dtype]
        f.need(is_right, f"needs {r.place.nbytes} bytes of {r.type.dtype} inside the file")
        found[r.name] = body[start:stop]
    return found
