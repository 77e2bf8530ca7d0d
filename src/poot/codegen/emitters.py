"""Which emitter spells a kernel for which target: one row each."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.code import Code, code_key
from poot.codegen.hip.emit import emit_hip
from poot.codegen.kir.nodes import Kernel
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


def emit(kernel: Kernel, limits: DeviceLimits) -> Code:
    """The kernel's code for the device. Raises CapabilityError for a target without an emitter, or
    DtypeLowering."""
    row = EMITTERS.get(limits.target)
    if row is None:
        raise CapabilityError(
            f"no emitter writes {limits.target!r} yet; emitters: {', '.join(sorted(EMITTERS))}"
        )
    binary, text = row(kernel, limits)
    return Code(kernel.name, limits.target, binary, text, code_key(kernel, limits), kernel)
