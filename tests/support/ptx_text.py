"""Reads PTX as poot writes it: one entry point, its parameters, registers, instructions, labels."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPERANDS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_REG = re.compile(r"\.reg \.(pred|b16|b32|b64) (.*);")
_PARAM = re.compile(r"\.param (?:\.align \d+ )?\.(u64|b32|b8) (\w+)(?:\[(\d+)\])?")
_SHARED = re.compile(r"\.shared \.align (\d+) \.b8 smem\[(\d*)\];")
_PARAM_NBYTES = {"u64": 8, "b32": 4, "b8": 1}


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@guard op operands`; `negated` where the guard is `@!`. `line` counts from 1."""

    op: str
    operands: tuple[str, ...]
    guard: str
    negated: bool
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """Parameters as (name, bytes), registers by name as their class, code, and where labels stand.
    `shared_nbytes` is None where the launch says it.
    """

    name: str
    threads: int
    params: tuple[tuple[str, int], ...]
    registers: dict[str, str]
    code: tuple[Instruction, ...]
    labels: dict[str, int]
    shared_nbytes: int | None


def operands_of(text: str) -> tuple[str, ...]:
    """Operands, split at commas outside of braces and brackets; `a|b` stays one."""
    return tuple(_OPERANDS.findall(text))


def _instruction(line: str, number: int) -> Instruction:
    guard, negated = "", False
    if line.startswith("@"):
        head, line = line[1:].split(" ", 1)
        guard, negated = head.lstrip("!"), head.startswith("!")
    op, _, rest = line.rstrip(";").partition(" ")
    return Instruction(op, operands_of(rest), guard, negated, number)


def read_ptx(text: str) -> Module:
    """The module's one entry point."""
    name, threads = "", 0
    params: list[tuple[str, int]] = []
    registers: dict[str, str] = {}
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    shared: int | None = 0
    in_body = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("//")[0].strip()
        if match := _SHARED.search(line):
            shared = None if line.startswith(".extern") else int(match[2])
        elif match := _PARAM.match(line):
            params.append((match[2], _PARAM_NBYTES[match[1]] * int(match[3] or 1)))
        elif line.startswith(".visible .entry"):
            name = line.split()[2].rstrip("(")
        elif line.startswith(".maxntid"):
            threads = int(line.split()[1].rstrip(","))
        elif match := _REG.match(line):
            registers.update(dict.fromkeys(match[2].split(", "), match[1]))
        elif line in ("{", "}"):
            in_body = line == "{"
        elif in_body and line.endswith(":"):
            labels[line[:-1]] = len(code)
        elif in_body and line and not line.startswith("."):
            code.append(_instruction(line, number))
    return Module(name, threads, tuple(params), registers, tuple(code), labels, shared)
