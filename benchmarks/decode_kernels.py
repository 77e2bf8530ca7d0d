"""poot's decode kernels as the benchmark launches them: written by the planner and the one
attention generator, assembled, and launched on PyTorch's stream over PyTorch's tensors."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from cuda.bindings import driver

from poot.codegen.gen.lower import lower
from poot.codegen.gen.lowered import KernelCall
from poot.codegen.ptx.emit import emit_ptx
from poot.codegen.ptx.memory import dynamic_nbytes
from poot.errors import PootError
from poot.ir.text import parse
from poot.limits import DeviceLimits, profile
from poot.planner.grouped import Numbers, choose_grouped
from poot.planner.request import Choice, Request
from poot.planner.schedules import choose
from poot.planner.steps import canonical_body

_SPILLS = re.compile(
    r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", re.S
)


@dataclass(frozen=True, slots=True)
class Decode:
    """One decode: sizes, dtype, whether lengths are an operand, whether keys lie in pools of `pool`
    slots (0: dense), and numbers of the schedule other than the planner's."""

    batch: int
    heads: int
    kv_heads: int
    width: int
    keys: int
    dtype: str = "bf16"
    is_live: bool = True
    pool: int = 0
    numbers: Numbers | None = None

    @property
    def name(self) -> str:
        form = "paged" if self.pool else "live" if self.is_live else "fixed"
        shape = (
            f"{self.dtype}_b{self.batch}_h{self.heads}_{self.kv_heads}_d{self.width}_l{self.keys}"
        )
        tail = "_" + "_".join(map(str, self.numbers)) if self.numbers else ""
        return f"{shape}_{form}{tail}"

    def text(self) -> str:
        """The graph: one attention eqn."""
        lead = (
            f"{self.pool},{self.kv_heads}"
            if self.pool
            else f"{self.batch},{self.kv_heads},{self.keys}"
        )
        q = f"{self.dtype}[{self.batch},{self.heads},1,{self.width}]"
        rows = [("q", q, ""), ("k", f"{self.dtype}[{lead},{self.width}]", ""),
                ("v", f"{self.dtype}[{lead},{self.width}]", "")]  # fmt: skip
        if self.pool:
            rows.append(("read", f"i32[{self.batch},{self.keys}]", f" range=(0, {self.pool})"))
        if self.is_live:
            rows.append(("len", f"i32[{self.batch}]", f" range=(1, {self.keys + 1})"))
        lines = [f'slot v{n}: {t} "{name}"{limits}' for n, (name, t, limits) in enumerate(rows)]
        names, values = ", ".join(r[0] for r in rows), ", ".join(f"v{n}" for n in range(len(rows)))
        scale = self.width**-0.5
        lines.append(f"v{len(rows)}: {q} = attention({values}) operands=({names}) scale={scale}")
        return "\n".join([*lines, f"out v{len(rows)}"])


@dataclass(frozen=True, slots=True)
class Built:
    """A decode's one launch: its call, its PTX, the schedule's words for people, and the words it
    needs between groups."""

    decode: Decode
    call: KernelCall
    ptx: str
    why: str
    words: int


def build(decode: Decode, limits: DeviceLimits) -> Built:
    """The kernel for a device. Raises ValueError where the planner takes another schedule."""
    body = canonical_body(parse(decode.text()))
    found = (
        choose_grouped(body, limits, decode.numbers)
        if decode.numbers
        else choose(body, "attention", (), limits)
    )
    if not isinstance(found, Choice) or found.schedule.name != "grouped":
        raise ValueError(f"{decode.name}: {found if isinstance(found, str) else found.reason}")
    request = Request(body, "attention", (), found.layouts, found.schedule, found.scratch)
    (call,) = lower(request, limits).calls
    _, text = emit_ptx(call.kernel, limits)
    numbers = " ".join(f"{k}={v}" for k, v in found.schedule.params)
    return Built(decode, call, text, numbers, found.scratch[0].elems)


def assemble(built: Built, folder: Path) -> dict[str, object]:
    """Writes NAME.ptx and, with ptxas there, NAME.cubin; registers and spilled bytes."""
    source = folder / f"{built.decode.name}.ptx"
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
    decodes: list[Decode], limits: DeviceLimits, folder: Path
) -> dict[str, dict[str, object]]:
    """Writes and assembles every kernel, side by side; what is known of each by name."""
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, dict[str, object]] = {}

    def one(decode: Decode) -> None:
        try:
            built = build(decode, limits)
            facts[decode.name] = {"schedule": built.why, **assemble(built, folder)}
        except (PootError, ValueError, AssertionError, OSError) as e:  # the row's result
            facts[decode.name] = {"error": f"{type(e).__name__}: {e}"[:400]}

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, decodes))
    return facts


def check(result: object) -> tuple[object, ...]:
    """The results of a driver call. Raises RuntimeError with its code."""
    assert isinstance(result, tuple), result
    if int(result[0]):
        raise RuntimeError(f"CUDA driver: {result[0]}")
    return result[1:]


class Launcher:
    """A loaded kernel. `run` launches it on a stream; `overlap` lets it start while the launch
    before is still running (it waits for it by itself)."""

    def __init__(self, built: Built, folder: Path) -> None:
        self.built = built
        cubin = folder / f"{built.decode.name}.cubin"
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
        self.config.blockDimX, self.config.blockDimY, self.config.blockDimZ = (
            built.call.kernel.threads,
            1,
            1,
        )
        self.config.sharedMemBytes = self.nbytes
        attribute = driver.CUlaunchAttribute()
        attribute.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        attribute.value.programmaticStreamSerializationAllowed = 1
        self.attributes = [attribute]

    def arguments(self, pointers: dict[tuple[str, int], int]) -> np.ndarray:
        """The addresses of the kernel's parameters, in order."""
        return np.array([pointers[arg] for arg in self.built.call.args], np.uint64)

    def run(self, arguments: np.ndarray, stream: int, *, overlap: bool = False) -> None:
        places = np.array([arguments.ctypes.data + 8 * n for n in range(arguments.size)], np.uint64)
        self.config.hStream = driver.CUstream(stream)
        self.config.attrs = self.attributes if overlap else []
        self.config.numAttrs = len(self.config.attrs)
        check(driver.cuLaunchKernelEx(self.config, self.function, places.ctypes.data, 0))


def limits_of(multiprocessors: int) -> DeviceLimits:
    """The H200's profile with this card's number of multiprocessors."""
    return replace(profile("h200"), compute_units=multiprocessors)
