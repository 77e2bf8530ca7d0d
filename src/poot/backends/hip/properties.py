"""A device's facts as poot's limits."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.hip.matrix import matrix_dtypes
from poot.limits import DeviceLimits

# HIP refuses a launch of 2^32 lanes or more on an axis (HIP API, hipModuleLaunchKernel).
MOST_LANES = (1 << 32) - 1
# Pointers are 8 of the 4096 bytes of arguments; poot needs far fewer.
MOST_BUFFERS = 64


@dataclass(frozen=True, slots=True)
class Properties:
    """What the runtime says of a device. `arch` may name features: "gfx90a:sramecc+:xnack-"."""

    name: str
    arch: str
    wave: int
    threads: int
    grid: tuple[int, int, int]
    compute_units: int
    workgroup_nbytes: int
    memory_nbytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """A device for people and for planning, and the architecture that its kernels are made for."""

    description: str
    limits: DeviceLimits
    arch: str


def facts_of(index: int, p: Properties, version: str) -> Facts:
    """The limits that follow from the properties. `version` is the runtime's."""
    base = p.arch.partition(":")[0]
    limits = DeviceLimits(
        name=f"hip:{index}",
        target="hip",
        workgroup_nbytes=p.workgroup_nbytes,
        threads=p.threads,
        grid=(min(p.grid[0], MOST_LANES // p.threads), p.grid[1], p.grid[2]),
        compute_units=p.compute_units,
        subgroup=p.wave,
        buffer_nbytes=p.memory_nbytes,
        binding_nbytes=p.memory_nbytes,
        storage_buffers=MOST_BUFFERS,
        memory_nbytes=p.memory_nbytes,
        has_f16_storage=True,
        has_i64=True,
        arch=base,
        matrix_dtypes=matrix_dtypes(base, p.wave),
    )
    return Facts(f"{p.name} ({base}), HIP {version}", limits, p.arch)
