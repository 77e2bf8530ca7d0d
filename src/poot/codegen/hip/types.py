"""How each dtype is spelled in C++: in a register, in memory, as a literal, and between the two.

f16, bf16 and f8e4m3 registers are floats already rounded to their dtype; i8 and u8 are 32-bit
integers already wrapped. bf16 and f8e4m3 lie in memory as their bits. A bool lies there as a word.
"""

from __future__ import annotations

import math

import numpy as np

from poot.codegen.kir.frags import elems_per_lane
from poot.codegen.kir.nodes import ELEMENT_BYTES, Frag, Lit, Token, Type
from poot.errors import DtypeLowering
from poot.ir.dtypes import DTYPES

# The dtype that a register of each dtype is held in.
HELD_IN = {
    "f32": "f32", "f16": "f32", "bf16": "f32", "f8e4m3": "f32", "i32": "i32", "i8": "i32",
    "u32": "u32", "u8": "u32", "bool": "bool", "i64": "i64", "u64": "u64",
}  # fmt: skip
# The C++ type of a register of a held dtype.
C_TYPES = {
    "f32": "float", "i32": "int", "u32": "unsigned", "i64": "long long",
    "u64": "unsigned long long", "bool": "bool",
}  # fmt: skip
# The C++ type of an element in memory.
IN_MEMORY = {
    "f32": "float", "f16": "_Float16", "bf16": "unsigned short", "f8e4m3": "unsigned char",
    "i32": "int", "u32": "unsigned", "i64": "long long", "u64": "unsigned long long",
    "i8": "signed char", "u8": "unsigned char", "bool": "unsigned",
}  # fmt: skip
# Dtypes whose bits are made and read by functions of the prelude.
BY_BITS = ("bf16", "f8e4m3")
# The widest access of memory, in bytes.
WIDEST = 16


def lanes_of(type: Type) -> int:
    """Scalars that one lane holds: of a vector its elements, of a fragment its registers."""
    if isinstance(type, Token):
        raise DtypeLowering(f"hip has no register of type {type}")
    return elems_per_lane(type) if isinstance(type, Frag) else type.lanes


def dtype_of(type: Type) -> str:
    if isinstance(type, Token):
        raise DtypeLowering(f"hip has no register of type {type}")
    return type.dtype


def kind_of(dtype: str) -> str:
    """ "float", "int", "uint" or "bool": which spelling of an op a dtype takes."""
    held = HELD_IN[dtype]
    return {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}.get(held, "uint")


def struct_name(dtype: str, lanes: int) -> str:
    """The struct of a vector: of a held dtype, or of a narrow one as it lies in memory."""
    return f"{dtype}x{lanes}"


def struct_text(dtype: str, lanes: int) -> str:
    """The declaration of `struct_name`. Its alignment is what one access of it may count on."""
    element = IN_MEMORY[dtype] if dtype not in C_TYPES else C_TYPES[dtype]
    nbytes = lanes * (1 if dtype == "bool" else ELEMENT_BYTES[dtype])
    align = min(WIDEST, nbytes & -nbytes)
    return f"struct alignas({align}) {struct_name(dtype, lanes)} {{ {element} s[{lanes}]; }};"


def _float(value: float, dtype: str) -> str:
    with np.errstate(over="ignore"):
        rounded = np.asarray(value, np.float32).astype(DTYPES[dtype].numpy).astype(np.float32)
    number = float(rounded)
    if math.isnan(number):
        return '__builtin_nanf("")'
    if math.isinf(number):
        return "__builtin_inff()" if number > 0 else "-__builtin_inff()"
    return f"{np.float32(number)!s}f"


def _integer(value: int, dtype: str) -> str:
    held = HELD_IN[dtype]
    bits = {"i8": 8, "u8": 8, "i64": 64, "u64": 64}.get(dtype, 32)
    word = value & ((1 << bits) - 1)
    if held in ("i32", "i64") and word >> (bits - 1):
        word -= 1 << bits
    suffix = {"i32": "", "u32": "u", "i64": "ll", "u64": "ull"}[held]
    if word == -(1 << (bits - 1)) and bits >= 32:  # the least integer has no literal of its own
        return f"(-{-(word + 1)}{suffix} - 1)"
    return f"{word}{suffix}"


def literal(lit: Lit) -> str:
    """A number of the literal's dtype, rounded or wrapped to it."""
    dtype = lit.type.dtype
    if HELD_IN[dtype] == "bool":
        return "true" if lit.value else "false"
    return (
        _float(lit.value, dtype) if kind_of(dtype) == "float" else _integer(int(lit.value), dtype)
    )


def loaded(dtype: str, element: str) -> str:
    """A register lane from an element of memory."""
    if dtype in BY_BITS:
        return f"{dtype}_value({element})"
    if dtype == "bool":
        return f"{element} != 0u"
    held = HELD_IN[dtype]
    return element if held == dtype else f"({C_TYPES[held]}){element}"


def stored(dtype: str, lane: str) -> str:
    """An element of memory from a register lane, which its dtype holds exactly."""
    if dtype in BY_BITS:
        return f"({IN_MEMORY[dtype]}){dtype}_bits({lane})"
    if dtype == "bool":
        return f"{lane} ? 1u : 0u"
    return lane if HELD_IN[dtype] == dtype else f"({IN_MEMORY[dtype]}){lane}"


def rounded(dtype: str, value: str) -> str:
    """An arithmetic result brought back to what its dtype can hold."""
    if dtype in BY_BITS:
        return f"{dtype}_value({dtype}_bits({value}))"
    if dtype in ("f16", "i8", "u8"):
        return f"({C_TYPES[HELD_IN[dtype]]})({IN_MEMORY[dtype]})({value})"
    return value


def needs(dtype: str) -> tuple[str, ...]:
    """The prelude's functions that `loaded`, `stored` and `rounded` call for a dtype."""
    return (f"{dtype}_bits", f"{dtype}_value") if dtype in BY_BITS else ()
