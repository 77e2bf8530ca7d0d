"""The CPU: kernels compiled by LLVM, workgroups spread over threads."""

from __future__ import annotations

from poot.backends.cpu.device import CpuDevice
from poot.backends.cpu.machine import description, lacking
from poot.backends.cpu.machine import limits as own_limits
from poot.codegen.llvm.binding import host_cpu, missing
from poot.errors import BackendUnavailable
from poot.limits import DeviceLimits


def _check() -> None:
    reason = missing()
    if reason:
        raise BackendUnavailable(reason)
    lacks = lacking(host_cpu()[1])
    if lacks:
        raise BackendUnavailable(lacks)


def found() -> list[tuple[str, DeviceLimits]]:
    """This machine. Raises BackendUnavailable with what to install."""
    _check()
    return [(description(), own_limits())]


def open_device(index: int = 0, *, limits: DeviceLimits | None = None) -> CpuDevice:
    """The processor; there is one, and it has its own limits. Raises BackendUnavailable."""
    _check()
    if limits is not None:
        raise BackendUnavailable(f"the cpu has its own limits alone: asked for {limits.name}")
    if index:
        raise BackendUnavailable(f"there is one cpu, cpu:0: asked for cpu:{index}")
    return CpuDevice()
