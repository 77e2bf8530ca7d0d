"""Lowered steps as bytes for the disk cache, and back: a JSON head and the kernels' binaries.

A stored kernel keeps its signature (parameters, immediates, workgroup memory, threads) and its
code, not its body.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import cast

from poot.codegen.attributes import Attributes, TensorView
from poot.codegen.code import Code
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.kir.nodes import Blob, Imm, Kernel, Param, Shared
from poot.errors import FormatError


def _signature(kernel: Kernel) -> dict[str, object]:
    return asdict(replace(kernel, body=()))


def _kernel(data: dict[str, object]) -> Kernel:
    def rows(name: str) -> list[dict[str, object]]:
        return cast("list[dict[str, object]]", data[name])

    return Kernel(
        str(data["name"]),
        tuple(Param(**cast("dict[str, str]", p)) for p in rows("params")),  # pyright: ignore[reportArgumentType] - JSON
        tuple(Imm(**cast("dict[str, str]", p)) for p in rows("imms")),
        tuple(
            Blob(**cast("dict[str, str]", {**p, "box": tuple(cast("list[int]", p["box"]))}))  # pyright: ignore[reportArgumentType] - JSON
            for p in rows("blobs")
        ),
        tuple(Shared(**cast("dict[str, str]", p)) for p in rows("shared")),  # pyright: ignore[reportArgumentType] - JSON
        int(cast("int", data["threads"])),
        cast("int | None", data["subgroup"]),
        (),
        cast("int | None", data["residents"]),
    )


def _attributes(data: dict[str, object]) -> Attributes:
    cluster = cast("tuple[int, int, int]", tuple(cast("list[int]", data["cluster"])))
    return Attributes(bool(data["overlap"]), cluster, bool(data["is_resident"]))


def _maps(call: dict[str, object]) -> tuple[tuple[tuple[str, int], TensorView], ...]:
    rows = cast("list[tuple[tuple[str, int], list[int], list[int]]]", call["maps"])
    return tuple(
        ((str(arg[0]), int(arg[1])), TensorView(tuple(dims), tuple(strides)))
        for arg, dims, strides in rows
    )


def encode(lowered: Lowered, codes: tuple[Code, ...]) -> bytes:
    """One step's calls with the code of each."""
    calls = [
        {"kernel": _signature(c.kernel), "grid": c.grid, "args": c.args, "imms": c.imms,
         "attributes": asdict(c.attributes), "maps": [(a, v.dims, v.strides) for a, v in c.maps],
         "name": k.name, "target": k.target, "key": k.key, "binary": len(k.binary), "text":
         len(k.text.encode()), "trips": k.trips}
        for c, k in zip(lowered.calls, codes, strict=True)
    ]  # fmt: skip
    head = json.dumps(calls).encode()
    body = b"".join(k.binary + k.text.encode() for k in codes)
    return len(head).to_bytes(8, "little") + head + body


def decode(data: bytes) -> tuple[Lowered, tuple[Code, ...]]:
    """What `encode` wrote. Raises FormatError on anything else."""
    try:
        size = int.from_bytes(data[:8], "little")
        calls = cast("list[dict[str, object]]", json.loads(data[8 : 8 + size]))
        if not isinstance(cast("object", calls), list):  # JSON of any shape
            raise TypeError(f"its head is a {type(calls).__name__}")
        at = 8 + size
        out: list[KernelCall] = []
        codes: list[Code] = []
        for call in calls:
            kernel = _kernel(cast("dict[str, object]", call["kernel"]))
            n, m = int(cast("int", call["binary"])), int(cast("int", call["text"]))
            binary, text = data[at : at + n], data[at + n : at + n + m].decode()
            at += n + m
            grid = cast("tuple[int, int, int]", tuple(cast("list[int]", call["grid"])))
            args = tuple((str(a), int(b)) for a, b in cast("list[tuple[str, int]]", call["args"]))
            imms = tuple(cast("list[float]", call["imms"]))
            asked = cast("dict[str, object]", call["attributes"])
            out.append(KernelCall(kernel, grid, args, imms, _attributes(asked), _maps(call)))
            trips = cast("int | None", call.get("trips"))
            name, target, key = str(call["name"]), str(call["target"]), str(call["key"])
            codes.append(Code(name, target, binary, text, key, kernel, trips))
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as e:
        raise FormatError(f"a cache entry is not a stored step: {e}") from e
    if at != len(data):
        raise FormatError(f"a cache entry has {len(data)} bytes and its head accounts for {at}")
    return Lowered(tuple(out)), tuple(codes)
