"""Nothing touches what asynchronous work still uses: fragments, and workgroup ranges that are
surely the same.

Followed for each path: which registers and ranges open work reads or writes, and how many groups
were closed since. What only a run can tell (two registers that hold one index) is the simulator's
to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, cast

from poot.codegen.kir.nodes import (
    ELEMENT_BYTES,
    For,
    Frag,
    If,
    Ins,
    Kernel,
    Lit,
    Operand,
    Reg,
    Stmt,
    Token,
    Ty,
    While,
)
from poot.codegen.kir.text import show_operand, show_stmt
from poot.errors import VerifyError


@dataclass(frozen=True, slots=True)
class Use:
    """What open work of a kind uses: a register, or elements of a workgroup array from an index
    on. It writes it, or only reads it.
    """

    kind: str
    writes: bool
    reg: str = ""
    mem: str = ""
    index: Operand | None = None
    elems: int = 1

    def meets(self, mem: str, index: Operand, elems: int) -> bool:
        """Whether the elements from index on surely overlap these."""
        if mem != self.mem or self.index is None:
            return False
        if isinstance(index, Lit) and isinstance(self.index, Lit):
            start, own = int(index.value), int(self.index.value)
            return start < own + self.elems and own < start + elems
        return index == self.index

    def __str__(self) -> str:
        where = self.reg or f"{self.mem}[{show_operand(self.index) if self.index else ''}]"
        return f"{where} while an open {self.kind} {'writes' if self.writes else 'reads'} it"


# Each open use, and the groups of its kind closed after its own; -1 while its own is open.
State = dict[Use, int]


def _merge(a: State, b: State) -> State:
    return {use: min(x for x in (a.get(use), b.get(use)) if x is not None) for use in a | b}


def _touches(ins: Ins) -> Iterator[tuple[str, Operand, int, bool]]:
    """Workgroup elements that an instruction surely touches itself: array, index, elements,
    whether it writes.
    """
    mem = ins.attr("mem")
    if not isinstance(mem, str):
        return
    if ins.op in ("load", "store", "atomic"):
        type = ins.args[1].type if ins.op == "store" else ins.dsts[0].type
        elems = type.lanes if isinstance(type, Ty) else 1
        yield mem, ins.args[0], elems, ins.op != "load"
    if ins.op in ("frag_load", "frag_store") and ins.attr("swizzle") is None:
        yield mem, ins.args[0], 1, ins.op == "frag_store"


def _starts(ins: Ins, dtypes: dict[str, str]) -> list[Use]:
    """What the work that an instruction begins uses."""
    if ins.op == "cp_async":
        dst, nbytes = str(ins.attr("dst")), cast("int", ins.attr("nbytes"))  # verified: an int
        elems = max(1, nbytes // ELEMENT_BYTES[dtypes[dst]])
        return [Use("copy", True, mem=dst, index=ins.args[0], elems=elems)]
    if ins.op == "tma_store":
        return [Use("bulk", False, mem=str(ins.attr("mem")), index=ins.args[0])]
    if ins.op == "wgmma":
        uses = [Use("wgmma", True, reg=ins.dsts[0].name)]
        for operand, name in zip(ins.args, ("a", "b"), strict=True):
            if isinstance(operand.type, Frag) and isinstance(operand, Reg):
                uses.append(Use("wgmma", False, reg=operand.name))
            else:
                uses.append(Use("wgmma", False, mem=str(ins.attr(name)), index=operand))
        return uses
    return []


class _Follower:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.dtypes = {d.name: d.dtype for d in (*kernel.params, *kernel.shared)}

    def fail(self, use: Use, ins: Ins) -> NoReturn:
        raise VerifyError(f"kernel {self.kernel.name}: `{show_stmt(ins)}` touches {use}")

    def block(self, body: tuple[Stmt, ...], state: State) -> State:
        for stmt in body:
            state = self.stmt(stmt, state)
        return state

    def stmt(self, stmt: Stmt, state: State) -> State:
        if isinstance(stmt, Ins):
            return self.ins(stmt, state)
        if isinstance(stmt, If):
            return _merge(self.block(stmt.then, state), self.block(stmt.orelse, state))
        if isinstance(stmt, (For, While)):
            head = stmt.head if isinstance(stmt, While) else ()
            before = self.block(head, state)
            while True:
                after = _merge(before, self.block(head, self.block(stmt.body, before)))
                if after == before:
                    return after
                before = after
        ends = [self.block(role.body, state) for role in stmt.roles]
        for end in ends:
            state = _merge(state, end)
        return state

    def ins(self, ins: Ins, state: State) -> State:
        self.check(ins, state)
        # An index register that is written now names another place.
        written = {d.name for d in ins.dsts}
        state = {
            use: age
            for use, age in state.items()
            if not (isinstance(use.index, Reg) and use.index.name in written)
        }
        for use in _starts(ins, self.dtypes):
            state[use] = -1
        if ins.op in ("async_commit", "wgmma_commit", "tma_store"):
            kind = {"async_commit": "copy", "wgmma_commit": "wgmma"}.get(ins.op, "bulk")
            state = {use: age + (use.kind == kind) for use, age in state.items()}
        if ins.op == "wait" and isinstance(ins.args[0].type, Token):
            kind, pending = ins.args[0].type.kind, cast("int", ins.attr("pending"))  # verified
            state = {u: age for u, age in state.items() if u.kind != kind or age < pending}
        return state

    def check(self, ins: Ins, state: State) -> None:
        is_product = ins.op == "wgmma"
        read = {a.name for a in ins.args if isinstance(a, Reg)}
        written = {d.name for d in ins.dsts}
        for use in state:
            if use.reg:
                chained = is_product and use.writes and use.reg not in read
                if not chained and (use.reg in written or (use.writes and use.reg in read)):
                    self.fail(use, ins)
            else:
                for mem, index, elems, writes in _touches(ins):
                    if (writes or use.writes) and use.meets(mem, index, elems):
                        self.fail(use, ins)


def check_live(kernel: Kernel) -> None:
    """Raises VerifyError at an instruction that touches what open asynchronous work uses."""
    _Follower(kernel).block(kernel.body, {})
