"""PTX through the assembler: what it says of a module, and the numbers it reports."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ARCHES = ("sm_80", "sm_90a")
_WHEEL = "nvidia/cu13/bin/ptxas", "nvidia/cuda_nvcc/bin/ptxas"
_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>\w+)'"
    r".*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Report:
    """One entry point as ptxas -v describes it, and every warning it gave."""

    name: str
    arch: str
    registers: int
    stack_nbytes: int
    spill_stores: int
    spill_loads: int
    warnings: tuple[str, ...]

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


@functools.cache
def ptxas_path() -> str:
    """The assembler on PATH, or of the wheel nvidia-cuda-nvcc; a skip without either."""
    found = shutil.which("ptxas")
    if found is not None:
        return found
    for folder in map(Path, filter(None, sys.path)):
        for name in _WHEEL:
            if (folder / name).is_file():
                return str(folder / name)
    pytest.skip("ptxas is not there: pip install nvidia-cuda-nvcc")


def parse_report(text: str) -> list[Report]:
    """Every entry point in the words of `ptxas -v`."""
    lines = [line.strip() for line in text.splitlines()]
    warnings = tuple(x for x in lines if "warning" in x.lower() or "C75" in x)
    return [
        Report(
            m["name"],
            m["arch"],
            int(m["registers"]),
            int(m["stack"]),
            int(m["stores"]),
            int(m["loads"]),
            warnings,
        )
        for m in _ENTRY.finditer(text)
    ]


def assemble(text: str, arch: str) -> Report:
    """Assembles a module of one kernel. Fails with the assembler's words and the line it means."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(text)
        command = [ptxas_path(), f"-arch={arch}", "-v", str(source), "-o", f"{folder}/kernel.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode:
        lines = text.splitlines()
        marked = [int(n) for n in re.findall(r"line (\d+)", said)]
        raise AssertionError(said + "\n".join(f"{n}: {lines[n - 1]}" for n in marked[:8]))
    (report,) = parse_report(said)
    return report
