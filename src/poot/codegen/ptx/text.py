"""How numbers and declarations are spelled in PTX, and what an architecture has.

Source of the spellings: PTX ISA 8.0, "Syntax" and "Constants".
"""

from __future__ import annotations

import re
import struct

import numpy as np

from poot.codegen.kir.nodes import Lit
from poot.errors import CapabilityError
from poot.ir.dtypes import DTYPES

VERSION = "8.0"  # CUDA 12.0: the first with sm_90a
LEAST_ARCH = 80
WIDTH = 100
# The register class of each dtype: b32, b64, b16 or a predicate. i8 and u8 are held extended to 32
# bits, an f8e4m3 as its byte.
KIND = {
    "f32": "r", "i32": "r", "u32": "r", "i8": "r", "u8": "r", "f8e4m3": "r",
    "f16": "h", "bf16": "h", "i64": "d", "u64": "d", "bool": "p",
}  # fmt: skip
CLASSES = {"r": ".b32", "h": ".b16", "d": ".b64", "p": ".pred"}
_ARCH = re.compile(r"sm_(\d+)(a?)")


def arch_number(arch: str) -> int:
    """80 of "sm_80", 90 of "sm_90a". Raises CapabilityError below sm_80 and on what is no arch."""
    match = _ARCH.fullmatch(arch)
    if match is None or int(match[1]) < LEAST_ARCH:
        raise CapabilityError(
            f"ptx needs an architecture of sm_{LEAST_ARCH} or newer: got {arch!r}"
        )
    return int(match[1])


def float_bits(value: float) -> int:
    """The f32 bits of a number; what is too large becomes an infinity."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return struct.unpack("<I", struct.pack("<f", single))[0]


def _narrow_bits(value: float, dtype: str) -> int:
    kind = DTYPES[dtype].numpy
    with np.errstate(over="ignore"):
        raw = np.asarray(value, np.float32).astype(kind).tobytes()
    return int.from_bytes(raw, "little")


def spell(lit: Lit) -> str:
    """A literal as an operand: f32 by its bits (`0f3F800000`), narrower floats by theirs, integers
    in decimal. A bool has no spelling of its own.
    """
    dtype = lit.type.dtype
    if dtype == "f32":
        return f"0f{float_bits(float(lit.value)):08X}"
    if dtype in ("f16", "bf16", "f8e4m3"):
        return f"0x{_narrow_bits(float(lit.value), dtype):04X}"
    bits = {"i64": 64, "u64": 64, "i8": 8, "u8": 8}.get(dtype, 32)
    word = int(lit.value) & ((1 << bits) - 1)
    signed = dtype in ("i32", "i64", "i8")
    return str(word - (1 << bits) if signed and word >> (bits - 1) else word)


def as_bits(operand: str) -> str:
    """An f32 literal as the integer of its bits, for untyped operands; anything else as it is."""
    return f"0x{operand[2:]}" if operand.startswith("0f") else operand


def declarations(names: dict[str, list[str]]) -> list[str]:
    """`.reg` lines for the registers of each class, in order, no wider than a page."""
    lines: list[str] = []
    for kind, own in names.items():
        line = ""
        for name in own:
            head = f"    .reg {CLASSES[kind]} "
            if line and len(line) + len(name) + 3 > WIDTH:
                lines.append(line + ";")
                line = ""
            line = f"{line}, {name}" if line else head + name
        if line:
            lines.append(line + ";")
    return lines
