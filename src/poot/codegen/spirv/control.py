"""Structured control: one form of if, one form of loop, each with its merge block.

    loop:  header -> test -> body -> continue -> header, leaving from test alone

Every register that a branch writes and later code reads is a function variable, so there is no phi.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from poot.codegen.kir.nodes import For, If, Ins, Reg, Roles, Stmt, While
from poot.codegen.spirv.body import Body
from poot.errors import DtypeLowering

Emit = Callable[[Body, tuple[Stmt, ...]], None]
_UNROLL, _DONT_UNROLL = 1, 2


def escaping(body: Iterable[Stmt]) -> frozenset[str]:
    """Registers written once but read outside the block that writes them."""
    written: dict[str, tuple[int, ...]] = {}
    escaped: set[str] = set()
    count = 0

    def read(operand: object, path: tuple[int, ...]) -> None:
        if isinstance(operand, Reg) and not operand.mutable:
            home = written.get(operand.name, path)
            if path[: len(home)] != home:
                escaped.add(operand.name)

    def block(stmts: Iterable[Stmt], path: tuple[int, ...]) -> tuple[int, ...]:
        nonlocal count
        count += 1
        here = (*path, count)
        for stmt in stmts:
            visit(stmt, here)
        return here

    def visit(stmt: Stmt, here: tuple[int, ...]) -> None:
        if isinstance(stmt, Ins):
            for operand in stmt.args:
                read(operand, here)
            for dst in stmt.dsts:
                if written.setdefault(dst.name, here) != here:
                    escaped.add(dst.name)
        elif isinstance(stmt, If):
            read(stmt.cond, here)
            block(stmt.then, here)
            block(stmt.orelse, here)
        elif isinstance(stmt, While):
            head = block(stmt.head, here)
            read(stmt.cond, head)
            block(stmt.body, head)
        elif isinstance(stmt, For):
            for operand in (stmt.start, stmt.stop, stmt.step):
                read(operand, here)
            written.setdefault(stmt.var.name, (*here, count + 1))
            block(stmt.body, here)

    block(body, ())
    return frozenset(escaped)


def emit_if(b: Body, stmt: If, emit: Emit) -> None:
    cond = b.one(stmt.cond)
    then, merge = b.module.new_id(), b.module.new_id()
    orelse = b.module.new_id() if stmt.orelse else merge
    b.do("OpSelectionMerge", merge, 0)
    b.do("OpBranchConditional", cond, then, orelse)
    b.do("OpLabel", then)
    emit(b, stmt.then)
    b.do("OpBranch", merge)
    if stmt.orelse:
        b.do("OpLabel", orelse)
        emit(b, stmt.orelse)
        b.do("OpBranch", merge)
    b.do("OpLabel", merge)


def _loop(b: Body, hint: int, test: Callable[[], int], body: Callable[[], None],
          step: Callable[[], None]) -> None:  # fmt: skip
    header, first, inside, onward, merge = (b.module.new_id() for _ in range(5))
    b.do("OpBranch", header)
    b.do("OpLabel", header)
    b.do("OpLoopMerge", merge, onward, hint)
    b.do("OpBranch", first)
    b.do("OpLabel", first)
    b.do("OpBranchConditional", test(), inside, merge)
    b.do("OpLabel", inside)
    body()
    b.do("OpBranch", onward)
    b.do("OpLabel", onward)
    step()
    b.do("OpBranch", header)
    b.do("OpLabel", merge)


def emit_for(b: Body, stmt: For, emit: Emit) -> None:
    i32, flag = b.type("i32"), b.type("bool")
    counter = b.local("i32")
    start, stop, step = b.one(stmt.start), b.one(stmt.stop), b.one(stmt.step)
    b.do("OpStore", counter, start)

    def test() -> int:
        return b.ins("OpSLessThan", flag, b.ins("OpLoad", i32, counter), stop)

    def body() -> None:
        b.put(stmt.var, [b.ins("OpLoad", i32, counter)])
        emit(b, stmt.body)

    def onward() -> None:
        now = b.ins("OpLoad", i32, counter)
        b.do("OpStore", counter, b.ins("OpIAdd", i32, now, step))

    # A driver left to itself unrolls by the trip count: Mesa then takes up to a second for one
    # attention kernel, twenty times what it takes rolled. Generators ask where it pays.
    hint = _DONT_UNROLL if stmt.unroll in (None, 1) else _UNROLL
    _loop(b, hint, test, body, onward)


def emit_while(b: Body, stmt: While, emit: Emit) -> None:
    def test() -> int:
        emit(b, stmt.head)
        return b.one(stmt.cond)

    _loop(b, 0, test, lambda: emit(b, stmt.body), lambda: None)


def refuse_roles(stmt: Roles) -> None:
    names = ", ".join(role.name for role in stmt.roles)
    raise DtypeLowering(f"spirv has no roles within a workgroup: {names}")
