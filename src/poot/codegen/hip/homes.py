"""Where each register of a kernel is declared: where it is first written, or at the function's top.

A register whose first touch is a write in the block that holds all its uses is declared by that
line. Any other is one that several blocks write for a later one to read. A loop's variable is its
loop's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from poot.codegen.kir.nodes import For, If, Ins, Operand, Reg, Stmt, While

Path = tuple[int, ...]


def _common(a: Path, b: Path) -> Path:
    at = 0
    while at < min(len(a), len(b)) and a[at] == b[at]:
        at += 1
    return a[:at]


class _Walk:
    """Collects of each register its first touch and the block that holds all its uses."""

    def __init__(self) -> None:
        self.regs: dict[str, Reg] = {}
        self.first: dict[str, tuple[Path, bool]] = {}
        self.home: dict[str, Path] = {}
        self._blocks = 0

    def touch(self, operand: Operand, path: Path, is_write: bool) -> None:
        if isinstance(operand, Reg):
            self.regs.setdefault(operand.name, operand)
            self.first.setdefault(operand.name, (path, is_write))
            self.home[operand.name] = _common(self.home.get(operand.name, path), path)

    def block(self, path: Path) -> Path:
        self._blocks += 1
        return (*path, self._blocks)

    def visit(self, body: Iterable[Stmt], path: Path) -> None:
        for stmt in body:
            if isinstance(stmt, Ins):
                for operand in stmt.args:
                    self.touch(operand, path, False)
                for dst in stmt.dsts:
                    self.touch(dst, path, True)
            elif isinstance(stmt, If):
                self.touch(stmt.cond, path, False)
                self.visit(stmt.then, self.block(path))
                self.visit(stmt.orelse, self.block(path))
            elif isinstance(stmt, For):
                for operand in (stmt.start, stmt.stop, stmt.step):
                    self.touch(operand, path, False)
                inside = self.block(path)
                self.touch(stmt.var, inside, True)
                self.visit(stmt.body, inside)
            elif isinstance(stmt, While):
                inside = self.block(path)  # head and body are one block of the text
                self.visit(stmt.head, inside)
                self.touch(stmt.cond, inside, False)
                self.visit(stmt.body, inside)
            else:
                for role in stmt.roles:
                    self.visit(role.body, self.block(path))


def at_top(body: Iterable[Stmt]) -> tuple[Reg, ...]:
    """The registers that are declared at the function's top, in the order of their first touch."""
    walk = _Walk()
    walk.visit(body, (0,))
    return tuple(
        walk.regs[name]
        for name, (path, is_write) in walk.first.items()
        if not is_write or path != walk.home[name]
    )
