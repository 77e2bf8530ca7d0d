"""The C runtime, built by the system's compiler and driven through ctypes."""

from __future__ import annotations

import ctypes as c
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from poot.slots import ForwardSlotMap
from tests.support.sources import ROOT

FOLDER = ROOT / "runtime/c"
OK, FORMAT, CAPABILITY, UNAVAILABLE, MEMORY, BIND, RANGE, SLOT_MAP, VALIDATION, LAUNCH, LOST = (
    range(11)
)
DTYPES = (np.float32, np.float16, np.uint16, np.uint8, np.int32, np.uint32, np.int8, np.uint8,
          np.bool_)  # fmt: skip
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror")


class Error(c.Structure):
    _fields_ = (
        ("status", c.c_int), ("message", c.c_char * 512), ("where", c.c_char * 256),
        ("index", c.c_int64), ("value", c.c_int64), ("low", c.c_int64), ("high", c.c_int64),
        ("count", c.c_int64),
    )  # fmt: skip


class Tensor(c.Structure):
    _fields_ = (
        ("name", c.c_char_p), ("storage", c.c_int), ("dtype", c.c_int), ("rank", c.c_int),
        ("shape", c.c_int64 * 16), ("nbytes", c.c_size_t), ("kind", c.c_char_p),
        ("has_range", c.c_int), ("low", c.c_int64), ("high", c.c_int64),
    )  # fmt: skip


class Handles(c.Structure):
    _fields_ = (
        ("instance", c.c_void_p), ("physical", c.c_void_p), ("device", c.c_void_p),
        ("queue", c.c_void_p), ("family", c.c_uint32), ("flags", c.c_uint32),
        ("get_instance_proc_addr", c.c_void_p),
    )  # fmt: skip


class Failed(Exception):
    """What a call of the runtime returned."""

    def __init__(self, error: Error) -> None:
        self.status, self.message = error.status, error.message.decode()
        self.where, self.value = error.where.decode(), error.value
        super().__init__(f"{self.status}: {self.message}")


def compiler() -> str:
    """The C compiler, or a skip."""
    found = shutil.which("gcc") or shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler: apt-get install gcc")
    return found


def has_vulkan() -> bool:
    """Whether Vulkan's headers are there to build with."""
    command = [compiler(), "-E", "-include", "vulkan/vulkan.h", "-x", "c", "/dev/null"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def sources() -> list[Path]:
    return sorted((FOLDER / "src").glob("*.c"))


@functools.cache
def built(*flags: str, main: str = "") -> Path:
    """A shared library of the runtime, or with `main` (a file below runtime/c) a program."""
    parts = [*sources(), *([FOLDER / main] if main else [])]
    kinds = ["-pie"] if main else ["-shared"]
    told = hashlib.sha256(repr((flags, main)).encode()).hexdigest()[:12]
    out = Path(tempfile.mkdtemp(prefix="poot-c-")) / told
    vulkan = ["-DPOOT_VULKAN"] if has_vulkan() else []
    command = [compiler(), "-std=gnu11", "-O2", "-fPIC", *kinds, *WARNINGS, *vulkan, *flags]
    command += [f"-I{FOLDER}", "-o", str(out), *map(str, parts)]
    command += ["-lpthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@functools.cache
def library() -> c.CDLL:
    made = c.CDLL(str(built()))
    for name in ("poot_entry_name", "poot_program_target", "poot_program_arch", "poot_device_name"):
        getattr(made, name).restype = c.c_char_p
    made.poot_program_memory.restype = c.c_size_t
    return made


def call(name: str, *args: object) -> None:
    """Raises Failed where the call does."""
    error = Error()
    status = getattr(library(), name)(*args, c.byref(error))
    if status:
        assert error.status == status
        raise Failed(error)


class Program:
    """A loaded bundle."""

    def __init__(self, data: bytes) -> None:
        self.handle = c.c_void_p()
        call("poot_load_memory", data, c.c_size_t(len(data)), c.byref(self.handle))

    def tensors(self, what: str, entry: int = 0) -> list[Tensor]:
        found: list[Tensor] = []
        seen = Tensor()
        while getattr(library(), f"poot_{what}")(self.handle, entry, len(found), c.byref(seen)):
            found.append(seen)
            seen = Tensor()
        return found

    def close(self) -> None:
        library().poot_program_free(self.handle)


class Device:
    """A device of the runtime: "cpu", "vulkan" or "cuda"."""

    def __init__(self, name: str, flags: int = 0, threads: int = 2) -> None:
        self.handle = c.c_void_p()
        if name == "cpu":
            call("poot_open_cpu", threads, c.c_uint(flags), c.byref(self.handle))
        else:
            call(f"poot_open_{name}", 0, c.byref(self.handle))

    @classmethod
    def adopt(cls, handles: Handles) -> Device:
        """A Vulkan device that someone else opened."""
        made = cls.__new__(cls)
        made.handle = c.c_void_p()
        call("poot_adopt_vulkan", c.byref(handles), c.byref(made.handle))
        return made

    def close(self) -> None:
        library().poot_device_close(self.handle)


class Session:
    """A program bound to a device."""

    def __init__(self, program: Program, device: Device, weights: Path | None) -> None:
        self.handle = c.c_void_p()
        self.program = program
        path = None if weights is None else str(weights).encode()
        call("poot_bind", program.handle, device.handle, path, c.byref(self.handle))
        self.outputs = program.tensors("output")

    def give(self, entry: int = 0, **slots: object) -> None:
        seen = {t.name.decode(): t for t in self.program.tensors("input", entry)}
        for name, value in slots.items():
            rows = value.rows if isinstance(value, ForwardSlotMap) else value
            array = np.asarray(rows, DTYPES[seen[name].dtype]) if name in seen else np.asarray(rows)
            raw = array.tobytes()
            call("poot_set", self.handle, entry, name.encode(), raw, c.c_size_t(len(raw)))

    def give_part(self, slot: str, first: int, values: np.ndarray) -> None:
        raw, count = values.tobytes(), c.c_size_t(values.size)
        call("poot_set_part", self.handle, 0, slot.encode(), c.c_size_t(first), count, raw)

    def step(self, entry: int = 0, **slots: object) -> list[np.ndarray]:
        self.give(entry, **slots)
        call("poot_step", self.handle, entry)
        return self._outputs(entry)

    def _outputs(self, entry: int) -> list[np.ndarray]:
        return [self.output(n, entry) for n in range(len(self.program.tensors("output", entry)))]

    def record(self, commands: int, entry: int = 0) -> None:
        call("poot_record_vulkan", self.handle, entry, c.c_void_p(commands))

    def settle(self, entry: int = 0) -> list[np.ndarray]:
        call("poot_settle", self.handle, entry)
        return self._outputs(entry)

    def output(self, n: int, entry: int = 0) -> np.ndarray:
        seen = self.program.tensors("output", entry)[n]
        made = np.zeros(list(seen.shape[: seen.rank]), DTYPES[seen.dtype])
        nbytes = c.c_size_t(made.nbytes)
        call("poot_get", self.handle, entry, n, made.ctypes.data_as(c.c_void_p), nbytes)
        return made

    def state(self, name: str, like: np.ndarray) -> np.ndarray:
        made = np.zeros_like(like)
        nbytes = c.c_size_t(made.nbytes)
        at = made.ctypes.data_as(c.c_void_p)
        call("poot_read_state", self.handle, name.encode(), at, nbytes)
        return made

    def write_state(self, name: str, value: np.ndarray) -> None:
        raw = value.tobytes()
        call("poot_write_state", self.handle, name.encode(), raw, c.c_size_t(len(raw)))

    def reset(self) -> None:
        call("poot_reset", self.handle)

    def close(self) -> None:
        library().poot_session_close(self.handle)


def leaves(nested: object) -> list[np.ndarray]:
    """What Python's step gave, flat."""
    if isinstance(nested, Mapping):
        return [leaf for v in nested.values() for leaf in leaves(v)]
    if isinstance(nested, (list, tuple)):
        return [leaf for v in nested for leaf in leaves(v)]
    return [np.asarray(nested)]
