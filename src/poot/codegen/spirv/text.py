"""SPIR-V words as text for people and golden diffs. Nothing reads it back."""

from __future__ import annotations

import struct

from poot.codegen.spirv.words import CAPABILITIES, DECORATIONS, GLSL, MAGIC, OPCODES
from poot.errors import FormatError

_NAMES = {code: (name, letters) for name, (code, letters) in OPCODES.items()}
_EXT = {number: name for name, number in GLSL.items()}
_CAPABILITY = {number: name for name, number in CAPABILITIES.items()}
_DECORATION = {number: name for name, number in DECORATIONS.items()}


def _string(words: tuple[int, ...]) -> tuple[str, int]:
    raw = struct.pack(f"<{len(words)}I", *words)
    end = raw.index(b"\0")
    return raw[:end].decode(), end // 4 + 1


def _letters(letters: str, count: int) -> str:
    if not letters.endswith("*"):
        return letters
    repeated = letters[-2]
    fixed = letters[:-2]
    return fixed + repeated * max(0, count - len(fixed))


def _operands(name: str, letters: str, words: tuple[int, ...]) -> tuple[str, list[str]]:
    """The result's text and the operands' texts."""
    result, out, at = "", list[str](), 0
    for letter in _letters(letters, len(words)):
        if at >= len(words):
            break
        if letter == "s":
            text, used = _string(words[at:])
            out.append(f'"{text}"')
            at += used
            continue
        word = words[at]
        at += 1
        if letter == "R":
            result = f"%{word}"
        else:
            out.append(f"%{word}" if letter in "Ti" else str(word))
    if name == "OpExtInst":
        out[2] = _EXT.get(int(out[2]), out[2])
    if name == "OpCapability":
        out[0] = _CAPABILITY.get(int(out[0]), out[0])
    if name in ("OpDecorate", "OpMemberDecorate"):
        at = 1 if name == "OpDecorate" else 2
        out[at] = _DECORATION.get(int(out[at]), out[at])
    return result, out


def disassemble(binary: bytes) -> str:
    """One instruction a line: `%7 = OpIAdd %2 %5 %6`. Raises FormatError on what isn't ours."""
    if len(binary) < 20 or len(binary) % 4:
        raise FormatError(f"needs SPIR-V words: {len(binary)} bytes")
    words = struct.unpack(f"<{len(binary) // 4}I", binary)
    if words[0] != MAGIC:
        raise FormatError(f"needs SPIR-V words: the first is {words[0]:#x}")
    lines = [f"; SPIR-V {words[1] >> 16 & 255}.{words[1] >> 8 & 255}, ids below {words[3]}"]
    at = 5
    while at < len(words):
        size, code = words[at] >> 16, words[at] & 0xFFFF
        if code not in _NAMES or size == 0 or at + size > len(words):
            raise FormatError(f"word {at}: no opcode {code} of {size} words in poot's table")
        name, letters = _NAMES[code]
        result, operands = _operands(name, letters, words[at + 1 : at + size])
        lines.append((f"{result} = " if result else "") + " ".join([name, *operands]))
        at += size
    return "\n".join(lines) + "\n"
