"""This machine as DeviceLimits: cores, vector width, caches, memory, and LLVM's name for it all."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from poot.codegen.llvm.binding import host_cpu
from poot.knobs import knobs
from poot.limits import DeviceLimits, profile

# The features that code is chosen by: what LLVM may use beyond them it doesn't need.
_FEATURES = (
    "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "avx512f", "avx512bw", "avx512dq",
    "avx512vl", "avx512vbmi", "avx512vnni", "avx512bf16", "neon", "fullfp16",
)  # fmt: skip
# What x86 code is never without: conversions of f16 would else be calls of a library.
_NEEDED = ("avx2", "fma", "f16c")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
# Indices are i32: a binding of f32 has at most 2^31 of them.
MOST_BINDING = 4 << 31
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def arch(cpu: str, features: dict[str, bool]) -> str:
    """The processor's LLVM name, and each feature that it has or lacks."""
    marks = [("+" if features[f] else "-") + f for f in _FEATURES if f in features]
    return ",".join((cpu, *marks))


def vector_lanes(features: dict[str, bool]) -> int:
    """f32 lanes of the widest vector that has masks or blends: 16, 8, else 4."""
    if all(features.get(f, False) for f in _AVX512):
        return 16
    return 8 if features.get("avx2", False) else 4


def lacking(features: dict[str, bool]) -> str:
    """Why this processor can't run kernels, or an empty string."""
    missing = [f for f in _NEEDED if f in features and not features[f]]
    if not missing:
        return ""
    return f"the processor lacks {', '.join(missing)}, which kernels for the CPU need"


def cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Processors that this process may keep busy: those it may run on, or fewer where its control
    group has a quota of processor time."""
    has_mask = hasattr(os, "sched_getaffinity")
    most = len(os.sched_getaffinity(0)) if has_mask else os.cpu_count() or 1
    try:
        share, period = quota.read_text().split()
    except (OSError, ValueError):
        return most
    if not (share.isdigit() and period.isdigit() and int(period)):
        return most
    return max(1, min(most, -(-int(share) // int(period))))


def _size(text: str) -> int:
    """Bytes of "32K" or "1M"."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    text = text.strip()
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text or 0)


def cache_sizes(root: Path = _CACHES) -> tuple[int, int, int]:
    """Bytes of one core's data caches, level 1 to 3; usual sizes where the system doesn't say."""
    found = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}
    for entry in sorted(root.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            if kind in ("Data", "Unified") and level in found:
                found[level] = _size((entry / "size").read_text())
        except (OSError, ValueError):
            continue
    return found[1], found[2], found[3]


def memory_nbytes(path: Path = Path("/proc/meminfo")) -> int:
    """Physical memory."""
    try:
        for line in path.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return profile("cpu-avx2").memory_nbytes


def mappings(
    held: Path = Path("/proc/self/maps"), most: Path = Path("/proc/sys/vm/max_map_count")
) -> tuple[int, int] | None:
    """How many ranges of memory the process has mapped, and how many it may; None where the system
    sets no limit."""
    try:
        with held.open("rb") as lines:
            return sum(1 for _ in lines), int(most.read_text())
    except (OSError, ValueError):
        return None


def description(path: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, for people."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        lines = []
    names = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def threads() -> int:
    """Threads that run kernels: the knob, else one a core."""
    return knobs().threads or cores()


def limits() -> DeviceLimits:
    """What this machine can do. llvmlite has to be there."""
    cpu, features = host_cpu()
    lanes, memory = vector_lanes(features), memory_nbytes()
    caches = cache_sizes()
    return replace(
        profile("cpu-avx2"),
        name="cpu",
        workgroup_nbytes=max(64 << 10, caches[1] // 2),
        compute_units=threads(),
        subgroup=lanes,
        buffer_nbytes=memory,
        binding_nbytes=min(memory // 2, MOST_BINDING),
        memory_nbytes=memory,
        arch=arch(cpu, features),
        vector=lanes,
        cores=threads(),
        caches=caches,
    )
