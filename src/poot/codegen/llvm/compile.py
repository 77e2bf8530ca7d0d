"""LLVM IR to an object file, through llvmlite. An `arch` is a processor's LLVM name and its
features, joined by commas: "znver4,+avx2,+fma"."""

from __future__ import annotations

import hashlib

from poot.codegen.llvm.binding import compile_assembly, compile_object, missing
from poot.errors import BackendUnavailable

_DIGEST = hashlib.sha256().digest_size


def _parts(arch: str) -> tuple[str, str]:
    reason = missing()
    if reason:
        raise BackendUnavailable(f"the CPU target compiles through llvmlite: {reason}")
    cpu, _, features = arch.partition(",")
    return cpu, features


def compile_text(text: str, arch: str) -> bytes:
    """The module's object file behind its digest: a linker given a damaged file ends the process.
    Raises BackendUnavailable where llvmlite is missing."""
    made = compile_object(*_parts(arch), text)
    return hashlib.sha256(made).digest() + made


def object_file(binary: bytes) -> bytes | None:
    """The object file of what `compile_text` gave, or None where it is damaged."""
    digest, made = binary[:_DIGEST], binary[_DIGEST:]
    return made if hashlib.sha256(made).digest() == digest else None


def assembly(text: str, arch: str) -> str:
    """The module's optimised assembly, for people."""
    return compile_assembly(*_parts(arch), text)
