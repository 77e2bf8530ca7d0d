"""How many groups of a kernel a multiprocessor holds at once, by arithmetic: for a provider that
can't ask the driver.

By the CUDA C++ Programming Guide ("Hardware Multithreading", "Compute Capabilities") for devices of
capability 8.0 and later: registers go to warps in units of 256, the register file has four parts
and a group takes warps of all alike, workgroup memory goes in units of 128 bytes and the driver
keeps some for each group. Where the driver may pack closer, the count is the lower.
"""

from __future__ import annotations

from dataclasses import dataclass

# What a device is asked for (CUDA Driver API, CUdevice_attribute, less their prefix), in the order
# of Multiprocessor's fields.
NAMES = (
    "MAX_THREADS_PER_MULTIPROCESSOR", "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "MAX_BLOCKS_PER_MULTIPROCESSOR",
)  # fmt: skip
_WARP, _PARTS = 32, 4
_REGISTERS, _SHARED_NBYTES = 256, 128


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one has: threads, registers, bytes of workgroup memory, of which the driver keeps
    `reserved_nbytes` a group, and groups."""

    threads: int
    registers: int
    shared_nbytes: int
    reserved_nbytes: int
    groups: int


def resident_groups(unit: Multiprocessor, threads: int, registers: int, shared_nbytes: int) -> int:
    """Groups of so many threads, registers a thread and bytes of workgroup memory in all."""
    warps = _up(-(-threads // _WARP), _PARTS)
    by_threads = unit.threads // (_WARP * -(-threads // _WARP))
    each = _up(max(registers, 1) * _WARP, _REGISTERS)
    by_registers = unit.registers // _PARTS // each * _PARTS // warps
    by_shared = unit.shared_nbytes // _up(shared_nbytes + unit.reserved_nbytes, _SHARED_NBYTES)
    return min(by_threads, by_registers, by_shared, unit.groups)


def _up(n: int, unit: int) -> int:
    return max(unit, -(-n // unit) * unit)
