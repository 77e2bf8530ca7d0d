"""What every emitter asks of a kernel before it writes it: that the device has room for it. Raises
with the kernel's name, what it asks and what the device has."""

from __future__ import annotations

from poot.codegen.kir.nodes import Kernel
from poot.errors import BindingLimit, CapabilityError, DtypeLowering
from poot.limits import DeviceLimits


def need_at_most(kernel: Kernel, what: str, asked: int, most: int, limits: DeviceLimits) -> None:
    """Raises CapabilityError where a kernel asks more of something than the device has."""
    if asked > most:
        raise CapabilityError(f"kernel {kernel.name} asks {asked} {what}: {limits.name} has {most}")


def need_room(kernel: Kernel, limits: DeviceLimits) -> None:
    """Lanes and workgroup memory. Raises CapabilityError."""
    need_at_most(kernel, "lanes", kernel.threads, limits.threads, limits)
    nbytes = kernel.shared_nbytes
    need_at_most(kernel, "bytes of workgroup memory", nbytes, limits.workgroup_nbytes, limits)


def need_buffers(kernel: Kernel, limits: DeviceLimits) -> None:
    """Buffers that a launch binds. Raises BindingLimit."""
    if len(kernel.params) > limits.storage_buffers:
        raise BindingLimit(
            f"kernel {kernel.name} binds {len(kernel.params)} buffers: "
            f"{limits.name} has {limits.storage_buffers}"
        )


def need_plain(kernel: Kernel, target: str, limits: DeviceLimits) -> None:
    """For targets with one width of subgroups and without opaque launch bytes. Raises
    CapabilityError and DtypeLowering."""
    if kernel.subgroup is not None and kernel.subgroup != limits.subgroup:
        raise CapabilityError(
            f"kernel {kernel.name} is written for subgroups of {kernel.subgroup}: "
            f"{limits.name} has {limits.subgroup}"
        )
    if kernel.blobs:
        raise DtypeLowering(f"kernel {kernel.name}: {target} has no opaque launch bytes")
