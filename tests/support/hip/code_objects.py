"""Real AMD code objects from HIP texts, by the clang and lld of PyPI's ziglang, and what they say
of their kernels."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from poot.cache import DiskCache
from poot.codegen.code import Code
from poot.codegen.hip.emit import OPTIONS
from poot.knobs import knobs
from tests.support.hip.texts import joined

INCLUDE = Path(__file__).parent / "include/amdgcn"
# Architecture -> the lanes of its waves.
ARCHS = {"gfx90a": 64, "gfx942": 64, "gfx1100": 32}
_NOTE = 32  # NT_AMDGPU_METADATA (LLVM, "User Guide for AMDGPU Backend", code object note records)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: "global_buffer" or "by_value", its place and size in bytes."""

    kind: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What a code object says of a kernel. Sizes in bytes; `spills` counts registers in memory."""

    name: str
    args: tuple[Argument, ...]
    shared_nbytes: int
    private_nbytes: int
    wave: int
    most_lanes: int
    vgprs: int
    spills: int


def _zig() -> list[str]:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not there: pip install ziglang")
    return [sys.executable, "-m", "ziglang"]


@functools.cache
def _version() -> bytes:
    text = (INCLUDE / "hip/hip_runtime.h").read_bytes()
    return subprocess.run([*_zig(), "version"], capture_output=True, check=True).stdout + text


def code_object(codes: Sequence[Code], arch: str) -> bytes:
    """One linked code object of all the kernels, named as `texts.own_name` says. Every call has to
    be resolved within it. Raises what the compiler said."""
    return _kept(joined(codes), arch, "linked")


def assembly(codes: Sequence[Code], arch: str) -> str:
    """The kernels as the compiler's own text."""
    return _kept(joined(codes), arch, "assembly").decode()


def _kept(source: str, arch: str, form: str) -> bytes:
    words = "\0".join((source, arch, form, *OPTIONS))
    key = hashlib.sha256(words.encode() + _version()).hexdigest()
    cache = DiskCache(knobs().cache_dir / "tests-zig")
    made = cache.get(key)
    if made is None:
        made = _compile(source, arch, form)
        cache.put(key, made)
    return made


def _compile(source: str, arch: str, form: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="poot-zig-") as folder:
        text, rows, made, linked = (Path(folder) / n for n in ("k.hip", "k.s", "k.o", "k.co"))
        text.write_text(source)
        front = ["-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", "-nogpulib",
                 "-nogpuinc", "-fms-extensions", "-fdeclspec", f"-I{INCLUDE}", "-Wall", "-Werror",
                 "-Wno-unused", *OPTIONS]  # fmt: skip
        _do(["clang", *front, "-S", "-o", str(rows), str(text)])
        if form == "assembly":
            return rows.read_bytes()
        target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}"]
        _do(["clang", *target, "-c", "-o", str(made), str(rows)])
        _do(["ld.lld", "-shared", "--no-undefined", "-o", str(linked), str(made)])
        return linked.read_bytes()


def _do(command: list[str]) -> None:
    done = subprocess.run([*_zig(), *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:8000]


def facts(binary: bytes) -> dict[str, KernelFacts]:
    """The kernels of a code object by name, from its metadata note."""
    data = MessagePack(_note(binary)).value()
    assert isinstance(data, dict)
    rows = data["amdhsa.kernels"]
    assert isinstance(rows, list)
    return {str(row[".name"]): _facts(row) for row in rows}


def _facts(row: dict[str, object]) -> KernelFacts:
    def number(name: str) -> int:
        value = row.get(name, 0)
        assert isinstance(value, int)
        return value

    given = row.get(".args", [])
    assert isinstance(given, list)
    args = [Argument(str(a[".value_kind"]), a[".offset"], a[".size"]) for a in given]
    return KernelFacts(
        str(row[".name"]),
        tuple(a for a in args if not a.kind.startswith("hidden_")),
        number(".group_segment_fixed_size"),
        number(".private_segment_fixed_size"),
        number(".wavefront_size"),
        number(".max_flat_workgroup_size"),
        number(".vgpr_count"),
        number(".vgpr_spill_count") + number(".sgpr_spill_count"),
    )


def _note(binary: bytes) -> bytes:
    """What the metadata note of an ELF file holds (System V ABI: section and note headers)."""
    assert binary[:4] == b"\x7fELF"
    (start,) = struct.unpack_from("<Q", binary, 40)
    size, count = struct.unpack_from("<HH", binary, 58)
    for n in range(count):
        kind, at, nbytes = struct.unpack_from("<4xI16xQQ", binary, start + n * size)
        if kind != 7:  # SHT_NOTE
            continue
        stop = at + nbytes
        while at < stop:
            named, described, note = struct.unpack_from("<III", binary, at)
            first = at + 12 + -(-named // 4) * 4
            if note == _NOTE:
                return binary[first : first + described]
            at = first + -(-described // 4) * 4
    raise AssertionError("no metadata note")


class MessagePack:
    """Reads MessagePack, as far as code objects use it (the MessagePack specification)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        assert len(part) == count, "the text ends early"
        self._at += count
        return part

    def _number(self, nbytes: int, signed: bool = False) -> int:
        return int.from_bytes(self._take(nbytes), "big", signed=signed)

    def value(self) -> object:
        head = self._number(1)
        if head < 0x80 or head >= 0xE0:
            return head - 256 if head >= 0xE0 else head
        if head < 0x90:
            return self._map(head & 15)
        if head < 0xA0:
            return self._list(head & 15)
        if head < 0xC0:
            return self._take(head & 31).decode()
        if head in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[head]
        if 0xCC <= head <= 0xD3:
            return self._number(1 << (head & 3), head >= 0xD0)
        if 0xD9 <= head <= 0xDB:
            return self._take(self._number(1 << (head - 0xD9))).decode()
        if head in (0xDC, 0xDD):
            return self._list(self._number(2 if head == 0xDC else 4))
        assert head in (0xDE, 0xDF), hex(head)
        return self._map(self._number(2 if head == 0xDE else 4))

    def _list(self, count: int) -> list[object]:
        return [self.value() for _ in range(count)]

    def _map(self, count: int) -> dict[object, object]:
        return {self.value(): self.value() for _ in range(count)}
