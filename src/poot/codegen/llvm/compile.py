"""LLVM IR to an object file, through llvmlite. An `arch` is a processor's LLVM name and its
features, joined by commas: "znver4,+avx2,+fma"."""

from __future__ import annotations

from poot.codegen.llvm.binding import compile_assembly, compile_object, missing
from poot.errors import BackendUnavailable


def _parts(arch: str) -> tuple[str, str]:
    reason = missing()
    if reason:
        raise BackendUnavailable(f"the CPU target compiles through llvmlite: {reason}")
    cpu, _, features = arch.partition(",")
    return cpu, features


def compile_text(text: str, arch: str) -> bytes:
    """The module's object file. Raises BackendUnavailable where llvmlite is missing."""
    return compile_object(*_parts(arch), text)


def assembly(text: str, arch: str) -> str:
    """The module's optimised assembly, for people."""
    return compile_assembly(*_parts(arch), text)
