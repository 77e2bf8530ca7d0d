"""An emitted kernel: what a person reads and what a driver takes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from poot.codegen.kir.nodes import Kernel
from poot.codegen.kir.text import show
from poot.limits import DeviceLimits


@dataclass(frozen=True, slots=True)
class Code:
    """`text` is what a person reads, `binary` what the driver takes (SPIR-V words, PTX text bytes,
    an object file).

    `key` is the sha256 of target and kernel, as hex: equal keys mean equal code. `trips` is how
    often a lane goes round its loops at the most, None where nobody counted (see `kir.trips`)."""

    name: str
    target: str
    binary: bytes
    text: str
    key: str
    kernel: Kernel
    trips: int | None = None


def code_key(kernel: Kernel, limits: DeviceLimits, shown: str = "") -> str:
    """The key of a kernel's code for a device; `shown` is the kernel's text, where it is there."""
    text = f"{limits.target}\n{limits.arch}\n{limits.vector}\n{shown or show(kernel)}"
    return hashlib.sha256(text.encode()).hexdigest()
