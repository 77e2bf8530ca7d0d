"""Where lanes meet, control is uniform over all of those that do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Roles, Stmt, While
from poot.codegen.kir.rules import named_scope
from poot.codegen.kir.text import show_stmt
from poot.codegen.kir.uniform import Uniformity, analyse
from poot.errors import VerifyError

_WARPGROUP = 128
# Who meets at an op: "subgroup", "warpgroup", or the barrier's own scope.
_SUBGROUP_OPS = (
    "shuffle",
    "shuffle_xor",
    "subgroup_reduce",
    "subgroup_broadcast",
    "vote_any",
    "vote_all",
    "ballot",
    "elect",
    "frag_load",
    "frag_store",
    "frag_move",
    "mma",
    "barrier_sync",
    "barrier_arrive",
)
_WARPGROUP_OPS = ("wgmma", "wgmma_commit")
_NEEDS_WIDTH = (*_SUBGROUP_OPS, *_WARPGROUP_OPS, "subgroup_id", "subgroup_lane")


@dataclass(frozen=True, slots=True)
class _Paths:
    """Whether control has parted between the lanes of a workgroup, a warpgroup, a subgroup; and
    whether in a role.
    """

    group: bool = False
    warpgroup: bool = False
    subgroup: bool = False
    in_role: bool = False


class _Meetings:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.group = analyse(kernel)
        width = kernel.subgroup
        self.subgroup: Uniformity | None = analyse(kernel, width) if width else None
        self.warpgroup: Uniformity | None = analyse(kernel, _WARPGROUP) if width else None

    def fail(self, needs: str, ins: Ins) -> NoReturn:
        raise VerifyError(f"kernel {self.kernel.name}: `{show_stmt(ins)}` needs {needs}")

    def inside(self, stmt: If | For | While, paths: _Paths) -> _Paths:
        sub, wide = self.subgroup, self.warpgroup
        return _Paths(
            paths.group or self.group.diverges(stmt),
            paths.warpgroup or (wide is not None and wide.diverges(stmt)),
            paths.subgroup or (sub is not None and sub.diverges(stmt)),
            paths.in_role,
        )

    def block(self, body: tuple[Stmt, ...], paths: _Paths) -> None:
        for stmt in body:
            if isinstance(stmt, Ins):
                self.ins(stmt, paths)
            elif isinstance(stmt, If):
                inner = self.inside(stmt, paths)
                self.block(stmt.then, inner)
                self.block(stmt.orelse, inner)
            elif isinstance(stmt, For):
                self.block(stmt.body, self.inside(stmt, paths))
            elif isinstance(stmt, While):
                inner = self.inside(stmt, paths)
                self.block(stmt.head, inner)
                self.block(stmt.body, inner)
            else:
                self.roles(stmt, paths)

    def roles(self, stmt: Roles, paths: _Paths) -> None:
        if paths.group:
            raise VerifyError(f"kernel {self.kernel.name}: roles need uniform control")
        for role in stmt.roles:
            self.block(role.body, _Paths(in_role=True))

    def ins(self, ins: Ins, paths: _Paths) -> None:
        if ins.op in _NEEDS_WIDTH and self.kernel.subgroup is None:
            self.fail("a kernel with a subgroup width", ins)
        if ins.op in _SUBGROUP_OPS and paths.subgroup:
            self.fail("control that is uniform in the subgroup", ins)
        if ins.op in _WARPGROUP_OPS and paths.warpgroup:
            self.fail("control that is uniform in the warpgroup", ins)
        if ins.op == "barrier":
            self.barrier(ins, paths)

    def barrier(self, ins: Ins, paths: _Paths) -> None:
        scope = ins.attr("scope")
        if scope == "subgroup" or named_scope(scope) is not None:
            if self.kernel.subgroup is None:
                self.fail("a kernel with a subgroup width", ins)
            if paths.subgroup:
                self.fail("control that is uniform in the subgroup", ins)
            return
        if paths.group:
            self.fail(f"control that is uniform in the {scope}", ins)
        if scope == "group" and paths.in_role:
            self.fail("a place outside of roles, or scope role", ins)


def _meets(body: tuple[Stmt, ...]) -> bool:
    """Whether lanes meet anywhere in it."""
    for stmt in body:
        if isinstance(stmt, Ins):
            found = stmt.op == "barrier" or stmt.op in _NEEDS_WIDTH
        elif isinstance(stmt, If):
            found = _meets(stmt.then) or _meets(stmt.orelse)
        elif isinstance(stmt, While):
            found = _meets(stmt.head) or _meets(stmt.body)
        else:
            found = isinstance(stmt, Roles) or _meets(stmt.body)
        if found:
            return True
    return False


def check_meetings(kernel: Kernel) -> None:
    """Raises VerifyError at a barrier, subgroup op or matrix op that only some of its lanes may
    reach.
    """
    if _meets(kernel.body):
        _Meetings(kernel).block(kernel.body, _Paths())
