"""Which emitter spells a kernel for which target: one row each."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.code import Code, code_key
from poot.codegen.hip.emit import emit_hip
from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.trips import most_trips
from poot.codegen.llvm.emit import emit_llvm
from poot.codegen.ptx.emit import emit_ptx
from poot.codegen.spirv.emit import emit_spirv
from poot.errors import CapabilityError
from poot.limits import DeviceLimits

# target -> (kernel, limits) -> (binary for the driver, text for people)
EMITTERS: dict[str, Callable[[Kernel, DeviceLimits], tuple[bytes, str]]] = {
    "hip": emit_hip,
    "llvm": emit_llvm,
    "spirv": emit_spirv,
    "ptx": emit_ptx,
}
# Targets whose text for people is the kernel's own.
SHOWN_AS_IS = ("spirv",)
# Targets some of whose drivers end long loops: code of one device may be run on another.
COUNTED = ("spirv",)


def emit(kernel: Kernel, limits: DeviceLimits) -> Code:
    """The kernel's code for the device. Raises CapabilityError for a target without an emitter or
    a kernel whose loops the driver would cut short, or DtypeLowering."""
    row = EMITTERS.get(limits.target)
    if row is None:
        raise CapabilityError(
            f"no emitter writes {limits.target!r} yet; emitters: {', '.join(sorted(EMITTERS))}"
        )
    trips = most_trips(kernel) if limits.target in COUNTED else None
    if trips is not None and 0 < limits.loop_trips < trips:
        raise CapabilityError(
            f"kernel {kernel.name} goes round its loops up to {trips} times in a lane, and "
            f"{limits.name} ends them after {limits.loop_trips}; use fewer keys or rows a step, or "
            "the cpu target"
        )
    binary, text = row(kernel, limits)
    key = code_key(kernel, limits, text if limits.target in SHOWN_AS_IS else "")
    return Code(kernel.name, limits.target, binary, text, key, kernel, trips)
