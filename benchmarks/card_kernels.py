"""poot's kernels as the benchmarks of the card launch them: written by the planner and the
generators, assembled, and launched on PyTorch's stream over PyTorch's tensors."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from cuda.bindings import driver

from benchmarks.decode_kernels import Decode
from poot.backends.cuda.bindings_launches import encode_map
from poot.codegen.gen.lower import lower
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.ptx.emit import emit_ptx
from poot.codegen.ptx.memory import dynamic_nbytes
from poot.errors import PootError
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.grouped import ROWS_FIRST, Numbers, choose_grouped
from poot.planner.request import Choice, Request
from poot.planner.schedules import choose
from poot.planner.steps import canonical_body

_SPILLS = re.compile(
    r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S
)


class Spec(Protocol):
    """One attention: its name, its graph's text, the schedule that it has to get, and numbers of
    that schedule other than the planner's."""

    @property
    def name(self) -> str: ...
    @property
    def schedule(self) -> str: ...
    @property
    def numbers(self) -> Numbers | None: ...
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Built:
    """An attention's one launch: its call, its PTX, the schedule's words for people, and the words
    it needs between groups."""

    spec: Spec
    call: KernelCall
    ptx: str
    why: str
    words: int


def build(spec: Spec, limits: DeviceLimits) -> Built:
    """The kernel for a device. Raises ValueError where the planner takes another schedule."""
    body = canonical_body(parse(spec.text()))
    order = spec.order if isinstance(spec, Decode) else ROWS_FIRST
    if spec.schedule == "subgroup_tiles":  # what a card without tensor maps takes
        limits = replace(limits, has_tensor_maps=False)
    found = (
        choose_grouped(body, limits, spec.numbers, order=order)
        if spec.numbers or order
        else choose(body, "attention", (), limits)
    )
    if not isinstance(found, Choice) or found.schedule.name != spec.schedule:
        raise ValueError(f"{spec.name}: {found if isinstance(found, str) else found.reason}")
    request = Request(body, "attention", (), found.layouts, found.schedule, found.scratch)
    (call,) = lower(request, limits).calls
    _, text = emit_ptx(call.kernel, limits)
    numbers = " ".join(f"{k}={v}" for k, v in found.schedule.params)
    return Built(spec, call, text, numbers, found.scratch[0].elems if found.scratch else 0)


def path_of(folder: Path, spec: Spec, ending: str) -> Path:
    """A kernel's file; names may hold what a file's name can't."""
    return folder / f"{re.sub(r'[^A-Za-z0-9_]+', '-', spec.name)}.{ending}"


def assemble(built: Built, folder: Path) -> dict[str, object]:
    """Writes NAME.ptx and, with ptxas there, NAME.cubin; registers and spilled bytes."""
    source = path_of(folder, built.spec, "ptx")
    source.write_text(built.ptx)
    tool = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if tool is None:
        return {}
    command = [tool, "-arch=sm_90a", "-v", str(source), "-o", str(source.with_suffix(".cubin"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    match = _SPILLS.search(said)
    if done.returncode or match is None:
        return {"assembler": said[-400:]}
    return {"registers": int(match[3]), "spills": int(match[1]) + int(match[2])}


def build_all(
    specs: Sequence[Spec], limits: DeviceLimits, folder: Path
) -> dict[str, dict[str, object]]:
    """Writes and assembles every kernel, side by side; what is known of each by name."""
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, dict[str, object]] = {}

    def one(spec: Spec) -> None:
        try:
            built = build(spec, limits)
            facts[spec.name] = {"schedule": built.why, **assemble(built, folder)}
        except (PootError, ValueError, AssertionError, OSError) as e:  # the row's result
            facts[spec.name] = {"error": f"{type(e).__name__}: {e}"[:400]}

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, specs))
    return facts


def check(result: object) -> tuple[object, ...]:
    """The results of a driver call. Raises RuntimeError with its code."""
    assert isinstance(result, tuple), result
    if int(result[0]):
        raise RuntimeError(f"CUDA driver: {result[0]}")
    return result[1:]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Where each parameter's bytes lie, and the bytes."""

    places: np.ndarray
    rows: tuple[np.ndarray, ...]


class Launcher:
    """A loaded kernel. `run` launches it on a stream; `overlap` lets it start while the launch
    before is still running (it waits for it by itself)."""

    def __init__(self, built: Built, folder: Path) -> None:
        self.built = built
        cubin = path_of(folder, built.spec, "cubin")
        image = cubin.read_bytes() if cubin.is_file() else built.ptx.encode() + b"\0"
        (self.module,) = check(driver.cuModuleLoadData(image))
        name = built.call.kernel.name.encode()
        (self.function,) = check(driver.cuModuleGetFunction(self.module, name))
        self.nbytes = dynamic_nbytes(built.call.kernel)
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if self.nbytes:
            check(driver.cuFuncSetAttribute(self.function, most, self.nbytes))
        self.config = driver.CUlaunchConfig()
        self.config.gridDimX, self.config.gridDimY, self.config.gridDimZ = built.call.grid
        self.config.blockDimX = built.call.kernel.threads
        self.config.blockDimY, self.config.blockDimZ = 1, 1
        self.config.sharedMemBytes = self.nbytes
        attribute = driver.CUlaunchAttribute()
        kinds = driver.CUlaunchAttributeID
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        self.attributes = [attribute]

    def arguments(self, pointers: dict[tuple[str, int], int]) -> Arguments:
        """The kernel's parameters, laid out: addresses, then tensor maps."""
        call = self.built.call
        rows = [np.array([pointers[arg]], np.uint64).view(np.uint8) for arg in call.args]
        for blob, (arg, view) in zip(call.kernel.blobs, call.maps, strict=True):
            (made,) = check(encode_map(pointers[arg], view, blob))
            words = [int(word) for word in made.opaque]  # type: ignore[attr-defined]
            rows.append(np.array(words, np.uint64).view(np.uint8))
        return Arguments(np.array([row.ctypes.data for row in rows], np.uint64), tuple(rows))

    def run(self, arguments: Arguments, stream: int, *, overlap: bool = False) -> None:
        self.config.hStream = driver.CUstream(stream)
        self.config.attrs = self.attributes if overlap else []
        self.config.numAttrs = len(self.config.attrs)
        places = arguments.places.ctypes.data
        check(driver.cuLaunchKernelEx(self.config, self.function, places, 0))


def limits_of(multiprocessors: int) -> DeviceLimits:
    """The H200's profile with this card's number of multiprocessors."""
    return replace(profile("h200"), compute_units=multiprocessors)
