"""Where each register of a kernel lives: the block that holds all its uses, and what lies between.

A register written once and read only in its block, or in blocks inside it, is a plain value. Others
are stack slots. A write is partial where control that lanes take apart lies between it and the
block that holds every use: there the lanes that are not active keep what they had.
"""

from __future__ import annotations

from collections.abc import Iterable

from poot.codegen.kir.nodes import For, If, Ins, Operand, Reg, Roles, Stmt, While
from poot.codegen.kir.uniform import Uniformity

Path = tuple[int, ...]
# Blocks are numbered in the order of the text; the kernel's body is 0.
ROOT: Path = (0,)


class _Life:
    """`home` is the common prefix of the paths of all uses; `writes` are the writes' paths."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.writes: list[Path] = []
        self.is_slot = False


def _common(a: Path, b: Path) -> Path:
    at = 0
    while at < min(len(a), len(b)) and a[at] == b[at]:
        at += 1
    return a[:at]


class Homes:
    """The lives of a kernel's registers, and of each block whether lanes part there."""

    def __init__(self, body: tuple[Stmt, ...], uniformity: Uniformity) -> None:
        self._uniformity = uniformity
        self._lives: dict[str, _Life] = {}
        self._parts: list[bool] = [False]
        self._walk(body, ROOT)

    def diverges(self, stmt: object) -> bool:
        assert isinstance(stmt, (If, For, While, Roles)), stmt
        return self._uniformity.diverges(stmt)

    def is_slot(self, reg: Reg) -> bool:
        return reg.mutable or self._lives[reg.name].is_slot

    def is_partial(self, reg: Reg, path: Path) -> bool:
        """Whether a write in that block leaves lanes as they were that are read later."""
        return any(self._parts[block] for block in path[len(self._lives[reg.name].home) :])

    def _block(self, path: Path, parts: bool) -> Path:
        self._parts.append(parts)
        return (*path, len(self._parts) - 1)

    def _use(self, operand: Operand, path: Path) -> None:
        if not isinstance(operand, Reg):
            return
        life = self._lives.setdefault(operand.name, _Life(path))
        life.home = _common(life.home, path)
        if life.writes and path[: len(life.writes[0])] != life.writes[0]:
            life.is_slot = True

    def _write(self, reg: Reg, path: Path) -> None:
        life = self._lives.setdefault(reg.name, _Life(path))
        life.home = _common(life.home, path)
        life.is_slot = life.is_slot or bool(life.writes)
        life.writes.append(path)

    def _walk(self, body: Iterable[Stmt], path: Path) -> None:
        for stmt in body:
            if isinstance(stmt, Ins):
                for operand in stmt.args:
                    self._use(operand, path)
                for dst in stmt.dsts:
                    self._write(dst, path)
            elif isinstance(stmt, If):
                self._use(stmt.cond, path)
                parts = self.diverges(stmt)
                self._walk(stmt.then, self._block(path, parts))
                self._walk(stmt.orelse, self._block(path, parts))
            elif isinstance(stmt, For):
                for operand in (stmt.start, stmt.stop, stmt.step):
                    self._use(operand, path)
                inside = self._block(path, self.diverges(stmt))
                self._write(stmt.var, inside)
                self._walk(stmt.body, inside)
            elif isinstance(stmt, While):
                inside = self._block(path, self.diverges(stmt))
                self._walk(stmt.head, inside)
                self._use(stmt.cond, inside)
                self._walk(stmt.body, self._block(inside, self.diverges(stmt)))
