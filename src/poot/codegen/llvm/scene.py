"""What rows may ask for besides the body: memories, ids and immediates, as LLVM values."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.llvm.memory import Array


@dataclass(frozen=True, slots=True)
class Scene:
    """`base` is the first lane's index in the workgroup, `group` the workgroup's coordinates."""

    arrays: dict[str, Array]
    imms: dict[str, str]
    base: str
    group: tuple[str, str, str]
    grid: tuple[str, str, str]
    subgroup: int
