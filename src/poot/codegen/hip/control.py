"""Structured control as C++: if, for, while, and roles as a choice by wave.

A loop's bounds are registers that its body leaves alone, as the verifier holds; its variable is the
loop's own.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.hip.body import Body
from poot.codegen.kir.nodes import For, If, Lit, Roles, Stmt, While
from poot.errors import DtypeLowering

Emit = Callable[[Body, tuple[Stmt, ...]], None]
# A loop of known length that says nothing of unrolling is left to the compiler up to this many
# trips; it unrolls longer ones whole, into more registers than a lane has (seen on gfx1100).
_LONG = 8
_LONG_UNROLL = 4


def emit_if(b: Body, stmt: If, emit: Emit) -> None:
    with b.block(f"if ({b.one(stmt.cond)})", "" if stmt.orelse else "}"):
        emit(b, stmt.then)
    if stmt.orelse:
        with b.block("} else"):
            emit(b, stmt.orelse)


def _is_long(stmt: For) -> bool:
    bounds = (stmt.start, stmt.stop, stmt.step)
    if not all(isinstance(x, Lit) for x in bounds):
        return False
    start, stop, step = (int(x.value) for x in bounds if isinstance(x, Lit))
    return (stop - start) // step > _LONG


def emit_for(b: Body, stmt: For, emit: Emit) -> None:
    name, stop, step = b.register(stmt.var), b.one(stmt.stop), b.one(stmt.step)
    unroll = _LONG_UNROLL if stmt.unroll is None and _is_long(stmt) else stmt.unroll
    if unroll is not None:
        b.line(f"#pragma unroll {unroll or ''}".rstrip())
    move = f"++{name}" if step == "1" else f"{name} += {step}"
    with b.block(f"for (int {name} = {b.one(stmt.start)}; {name} < {stop}; {move})"):
        emit(b, stmt.body)


def emit_while(b: Body, stmt: While, emit: Emit) -> None:
    with b.block("while (true)"):
        emit(b, stmt.head)
        b.line(f"if (!{b.one(stmt.cond)}) break;")
        emit(b, stmt.body)


def emit_roles(b: Body, stmt: Roles, emit: Emit) -> None:
    """Each wave runs the body of the role that holds it."""
    for role in stmt.roles:
        if role.registers:
            raise DtypeLowering(
                f"role {role.name} asks {role.registers} registers a lane: hip gives every wave of "
                "a kernel as many"
            )
    wave = f"(int)threadIdx.x / {b.wave}"
    for at, role in enumerate(stmt.roles):
        within = f"{wave} >= {role.first} && {wave} < {role.first + role.count}"
        is_last = at == len(stmt.roles) - 1
        head = f"{'} else ' if at else ''}if ({within})"
        with b.block(head, "}" if is_last else ""):
            b.line(f"// role {role.name}")
            emit(b, role.body)
