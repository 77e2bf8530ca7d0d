"""Structured control. A branch or loop that all lanes take alike is a branch; where lanes part, the
block runs under a mask, and is skipped where no lane is active."""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import For, If, Roles, Stmt, While
from poot.codegen.llvm.body import Body
from poot.errors import DtypeLowering

Emit = Callable[[tuple[Stmt, ...]], None]


def emit_if(b: Body, stmt: If, emit: Emit) -> None:
    if not b.diverges(stmt):
        cond = b.one(stmt.cond, False)
        _uniform_if(b, stmt, cond, emit)
        return
    cond = b.one(stmt.cond, True)
    outer = b.mask
    _masked(b, b.both(outer, cond), stmt.then, emit)
    if not stmt.orelse:
        b.skip_block()
        return
    other = b.ins(f"xor {b.wide('i1')} {cond}, splat (i1 true)")
    _masked(b, b.both(outer, other), stmt.orelse, emit)


def _masked(b: Body, mask: str, block: tuple[Stmt, ...], emit: Emit) -> None:
    inside, after = b.new_label("then"), b.new_label("after")
    b.do(f"br i1 {b.any(mask)}, label %{inside}, label %{after}")
    b.label(inside)
    with b.block(mask):
        emit(block)
    b.do(f"br label %{after}")
    b.label(after)


def _uniform_if(b: Body, stmt: If, cond: str, emit: Emit) -> None:
    then, after = b.new_label("then"), b.new_label("after")
    orelse = b.new_label("else") if stmt.orelse else after
    b.do(f"br i1 {cond}, label %{then}, label %{orelse}")
    b.label(then)
    with b.block(b.mask):
        emit(stmt.then)
    b.do(f"br label %{after}")
    if not stmt.orelse:
        b.skip_block()
    else:
        b.label(orelse)
        with b.block(b.mask):
            emit(stmt.orelse)
        b.do(f"br label %{after}")
    b.label(after)


def emit_for(b: Body, stmt: For, emit: Emit) -> None:
    """The bounds are read once. A lane that has left has passed its stop, and stays out."""
    parts = b.diverges(stmt)
    wide = b.is_wide(stmt.var)
    kind = b.type("i32", wide)
    counter = b.slot(kind)
    start, step = b.one(stmt.start, wide), b.one(stmt.step, wide)
    stop = b.one(stmt.stop, parts)
    outer = b.mask
    head, inside, after = (b.new_label(x) for x in ("for", "do", "after"))
    b.do(f"store {kind} {start}, ptr {counter}")
    b.do(f"br label %{head}")
    b.label(head)
    now = b.ins(f"load {kind}, ptr {counter}")
    mask = outer
    if parts:
        own = now if wide else b.spread("i32", now, b.stride(stmt.var) or 0)
        mask = b.both(outer, b.ins(f"icmp slt {b.wide('i32')} {own}, {stop}"))
        runs = b.any(mask)
    else:
        first = b.first("i32", now) if wide else now
        runs = b.ins(f"icmp slt i32 {first}, {stop}")
    b.do(f"br i1 {runs}, label %{inside}, label %{after}")
    b.label(inside)
    with b.block(mask):
        b.put(stmt.var, [now], wide)
        emit(stmt.body)
    b.do(f"store {kind} {b.ins(f'add nsw {kind} {now}, {step}')}, ptr {counter}")
    b.do(f"br label %{head}{b.loop_hint(stmt.unroll)}")
    b.label(after)


def emit_while(b: Body, stmt: While, emit: Emit) -> None:
    parts = b.diverges(stmt)
    outer, flags = b.mask, b.wide("i1")
    slot = b.slot(flags) if parts else ""
    head, inside, after = (b.new_label(x) for x in ("while", "do", "after"))
    if parts:
        b.do(f"store {flags} {b.active()}, ptr {slot}")
    b.do(f"br label %{head}")
    b.label(head)
    active = b.ins(f"load {flags}, ptr {slot}") if parts else outer
    with b.block(active):
        emit(stmt.head)
        cond = b.one(stmt.cond, parts)
        mask = b.both(active, cond) if parts else outer
        runs = b.any(mask) if parts and mask is not None else cond
        if parts:
            b.do(f"store {flags} {mask}, ptr {slot}")
        b.do(f"br i1 {runs}, label %{inside}, label %{after}")
        b.label(inside)
        with b.block(mask):
            emit(stmt.body)
    b.do(f"br label %{head}")
    b.label(after)


def refuse_roles(stmt: Roles) -> None:
    names = ", ".join(role.name for role in stmt.roles)
    raise DtypeLowering(f"llvm has no roles within a workgroup: {names}")
