"""Refuses kernels that are malformed. Every refusal names the instruction.

Checked here: declarations, operand and result types, registers (one type, immutables written once,
nothing read before a write on every path), indices known to be outside, workgroup memory against
the device's. `meet` checks that control is uniform where lanes meet, `live` that nothing touches
what asynchronous work still uses. `check_arrays` is for what a generator made: it holds no
workgroup array that nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from poot.codegen.kir.frags import frag_problem
from poot.codegen.kir.live import check_live
from poot.codegen.kir.meet import check_meetings
from poot.codegen.kir.nodes import (
    ELEMENT_BYTES,
    For,
    Frag,
    If,
    Ins,
    Kernel,
    Lit,
    Operand,
    Param,
    Reg,
    Roles,
    Stmt,
    Ty,
    While,
    instructions,
)
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.rules import BOOL, INDEX, RULES, Decls
from poot.codegen.kir.target_rules import TARGET_RULES
from poot.codegen.kir.text import show_stmt
from poot.errors import VerifyError
from poot.limits import DeviceLimits

# Ops that write a mutable register; every other result is written once.
WRITES_MUTABLE = ("set", "undef", "wgmma")
# Ops that write the array they name as `mem` and read none.
_ONLY_WRITES = ("store", "frag_store")
_LANES = (1, 2, 4, 8, 16)


def _is_power(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


class _Checker:
    """One walk in program order. `written` are the registers that hold something on every path to
    here.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.decls = Decls.of(kernel)
        self.regs: dict[str, Reg] = {}
        self.once: set[str] = set()
        self.bounds: list[tuple[str, ...]] = []
        self.in_role = False

    def fail(self, needs: str, at: Stmt | str) -> NoReturn:
        where = at if isinstance(at, str) else show_stmt(at)
        raise VerifyError(f"kernel {self.kernel.name}: `{where}` needs {needs}")

    # Declarations

    def declarations(self) -> None:
        k = self.kernel
        names = [d.name for d in (*k.params, *k.shared, *k.blobs)]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.fail("a name of its own", name)
        for name in (k.name, *names, *(i.name for i in k.imms)):
            if not name.isidentifier():
                self.fail("a word as name", name)
        for decl in (*k.params, *k.shared):
            is_known = decl.dtype in ELEMENT_BYTES or (decl.dtype == "mbar" and decl in k.shared)
            if not is_known:
                self.fail(f"a dtype of {', '.join(ELEMENT_BYTES)}", f"{decl.name}: {decl.dtype}")
            size = ELEMENT_BYTES.get(decl.dtype, 8)
            least = 1 if decl in k.shared else 0
            if decl.elems < least or not _is_power(decl.align) or decl.align < size:
                at = f"{decl.name}: {decl.dtype}[{decl.elems}] align={decl.align}"
                self.fail(
                    f"{least} elements or more, aligned to a power of two of at least {size}", at
                )
        for p in k.params:
            if p.access not in ("r", "w", "rw"):
                self.fail("access r, w or rw", f"{p.name} {p.access}")
        for i in k.imms:
            if i.dtype not in ("i32", "u32", "f32"):
                self.fail("a 32-bit dtype", f"imm {i.name}: {i.dtype}")
        if k.threads < 1:
            self.fail("one lane at least", f"threads={k.threads}")
        if k.residents is not None and k.residents < 1:
            self.fail("one resident group at least", f"residents={k.residents}")
        width = k.subgroup
        if width is not None and (not _is_power(width) or k.threads % width):
            self.fail(f"a power of two that divides {k.threads} lanes", f"subgroup={width}")

    # Registers

    def reg(self, reg: Reg, at: Stmt | str) -> None:
        known = self.regs.setdefault(reg.name, reg)
        if known != reg:
            self.fail(f"one type for {reg.name}: it is {known.type} and {reg.type}", at)
        type = reg.type
        if isinstance(type, Ty) and (type.dtype not in ELEMENT_BYTES or type.lanes not in _LANES):
            self.fail(f"a type, not {type}", at)
        problem = frag_problem(type) if isinstance(type, Frag) else ""
        if problem:
            self.fail(f"a fragment that there is: {problem}", at)

    def read(self, operand: Operand, written: set[str], at: Stmt | str) -> None:
        if isinstance(operand, Lit):
            self.literal(operand, at)
            return
        self.reg(operand, at)
        if operand.name not in written:
            self.fail(f"{operand.name} written before, on every path", at)

    def literal(self, lit: Lit, at: Stmt | str) -> None:
        dtype, value = lit.type.dtype, lit.value
        if dtype == "bool":
            right = isinstance(value, bool)
        elif dtype in ("f32", "f16", "bf16", "f8e4m3"):
            right = not isinstance(value, bool)
        else:
            bits = ELEMENT_BYTES[dtype] * 8
            right = isinstance(value, int) and -(1 << (bits - 1)) <= value < 1 << bits
        if not right:
            self.fail(f"a number that {dtype} holds, not {value!r}", at)

    def write(self, reg: Reg, op: str, written: set[str], at: Stmt | str) -> None:
        self.reg(reg, at)
        if reg.mutable and op not in WRITES_MUTABLE:
            self.fail(f"an immutable result: only {', '.join(WRITES_MUTABLE)} write {reg.name}", at)
        if not reg.mutable and op in ("undef", "wgmma"):
            self.fail("a mutable register", at)
        if not reg.mutable and reg.name in self.once:
            self.fail(f"{reg.name} written once", at)
        if reg.mutable and any(reg.name in names for names in self.bounds):
            self.fail(f"{reg.name} left alone: a loop around counts with it", at)
        self.once.add(reg.name)
        written.add(reg.name)

    # Statements

    def block(self, body: tuple[Stmt, ...], written: set[str]) -> set[str]:
        for stmt in body:
            written = self.stmt(stmt, written)
        return written

    def stmt(self, stmt: Stmt, written: set[str]) -> set[str]:
        if isinstance(stmt, Ins):
            self.ins(stmt, written)
            return written
        if isinstance(stmt, If):
            self.cond(stmt.cond, written, stmt)
            then = self.block(stmt.then, set(written))
            return then & self.block(stmt.orelse, set(written))
        if isinstance(stmt, While):
            head = self.block(stmt.head, set(written))
            self.cond(stmt.cond, head, f"while {stmt.cond}")
            self.block(stmt.body, set(head))
            return head
        if isinstance(stmt, For):
            self.for_(stmt, written)
            return written
        return self.roles(stmt, written)

    def cond(self, cond: Operand, written: set[str], at: Stmt | str) -> None:
        self.read(cond, written, at)
        if cond.type != BOOL:
            self.fail("a bool", at)

    def for_(self, stmt: For, written: set[str]) -> None:
        at = stmt
        bounds = (stmt.start, stmt.stop, stmt.step)
        for bound in bounds:
            self.read(bound, written, at)
        type = stmt.var.type
        if not isinstance(type, Ty) or type.lanes != 1 or type.dtype not in INDEX:
            self.fail(f"a register of {', '.join(INDEX)}", at)
        if any(b.type != type for b in bounds):
            self.fail("bounds of the register's type", at)
        if isinstance(stmt.step, Lit) and stmt.step.value <= 0:
            self.fail("a step above 0", at)
        if stmt.unroll is not None and stmt.unroll < 0:
            self.fail("unroll of 0 or more", at)
        if stmt.var.mutable:
            self.fail("an immutable register", at)
        inside = set(written)
        self.write(stmt.var, "for", inside, at)
        self.bounds.append(tuple(b.name for b in bounds if isinstance(b, Reg)))
        self.block(stmt.body, inside)
        self.bounds.pop()

    def roles(self, stmt: Roles, written: set[str]) -> set[str]:
        width = self.kernel.subgroup
        if width is None or self.in_role:
            self.fail("a subgroup width, and no roles around", stmt)
        taken: set[int] = set()
        ends: list[set[str]] = []
        self.in_role = True
        for role in stmt.roles:
            at = f"{role.name} first={role.first} count={role.count}"
            own = set(range(role.first, role.first + role.count))
            if not own or taken & own or max(own) >= self.kernel.threads // width or min(own) < 0:
                self.fail("whole subgroups of the workgroup that no other role has", at)
            taken |= own
            ends.append(self.block(role.body, set(written)))
        self.in_role = False
        is_whole = len(taken) == self.kernel.threads // width
        return set[str].intersection(*ends) if ends and is_whole else written

    def ins(self, ins: Ins, written: set[str]) -> None:
        at = ins
        row = KIR_OPS.get(ins.op)
        if row is None:
            self.fail("an op of the table", at)
        if row.args is not None and len(ins.args) != row.args:
            self.fail(f"{row.args} operands", at)
        if len(ins.dsts) != row.dsts:
            self.fail(f"{row.dsts} results", at)
        if tuple(name for name, _ in ins.attrs) != row.attrs:
            self.fail(f"each of its attributes, sorted: {', '.join(row.attrs) or 'none'}", at)
        for operand in ins.args:
            self.read(operand, written, at)
        problem = (RULES.get(ins.op) or TARGET_RULES[ins.op])(ins, self.decls)
        if problem:
            self.fail(problem, at)
        self.static(ins, at)
        if ins.op == "wgmma" and not ins.attr("zero") and ins.dsts[0].name not in written:
            self.fail(f"{ins.dsts[0].name} written before, or zero", at)
        for dst in ins.dsts:
            self.write(dst, ins.op, written, at)

    def static(self, ins: Ins, at: Stmt | str) -> None:
        """Numbers that are wrong whatever the kernel is run on."""
        last = ins.args[-1] if ins.args else None
        if ins.op in ("div", "rem") and isinstance(last, Lit) and last.value == 0:
            is_float = last.type.dtype in ("f32", "f16", "bf16")
            if not is_float:
                self.fail("a divisor other than 0", at)
        if ins.op in ("shl", "shr") and isinstance(last, Lit):
            bits = ELEMENT_BYTES[last.type.dtype] * 8
            if not 0 <= last.value < bits:
                self.fail(f"a shift of 0 .. {bits - 1}", at)
        if ins.op in ("load", "prefetch", "store", "atomic") and isinstance(ins.args[0], Lit):
            mem = self.decls.memory(ins.attr("mem"))
            whole = [*ins.dsts, *ins.args[1:]] if ins.op in ("load", "store") else []
            lanes = max((x.type.lanes for x in whole if isinstance(x.type, Ty)), default=1)
            index = int(ins.args[0].value)
            if isinstance(mem, Param) and mem.is_long and index < 0:
                index += 1 << 32
            if mem is not None and not 0 <= index <= mem.elems - lanes:
                self.fail(f"an index inside {mem.name}, of {mem.elems} elements", at)
            if index % lanes:
                self.fail(f"an index that is a multiple of {lanes}", at)


def _check_limits(kernel: Kernel, limits: DeviceLimits, regs: Iterable[Reg]) -> None:
    def need(claim: bool, what: Stmt | str) -> None:
        if not claim:
            raise VerifyError(f"kernel {kernel.name} on {limits.name} needs {what}")

    nbytes, threads = kernel.shared_nbytes, kernel.threads
    has, lanes = limits.workgroup_nbytes, limits.threads
    need(nbytes <= has, f"{has} bytes of workgroup memory or fewer: it has {nbytes}")
    need(threads <= lanes, f"{lanes} lanes or fewer: it has {threads}")
    width = kernel.subgroup
    need(width in (None, limits.subgroup), f"subgroups of {limits.subgroup}: it has {width}")
    wide = [r.name for r in regs if isinstance(r.type, Ty) and r.type.dtype in ("i64", "u64")]
    need(limits.has_i64 or not wide, f"no 64-bit integers, as in {', '.join(wide[:1])}")


def verify(kernel: Kernel, limits: DeviceLimits | None = None) -> None:
    """Raises VerifyError, naming the instruction, unless the kernel is well formed; with `limits`
    also unless the device has the workgroup memory, lanes, subgroup width and integers it asks for.
    """
    checker = _Checker(kernel)
    checker.declarations()
    checker.block(kernel.body, set())
    check_meetings(kernel)
    check_live(kernel)
    if limits is not None:
        _check_limits(kernel, limits, checker.regs.values())


def check_arrays(kernel: Kernel) -> None:
    """Raises VerifyError, naming the array, where an instruction reads none of a workgroup array's
    elements: it is memory of every group's for nothing."""
    read: set[object] = set()
    for ins in instructions(kernel.body):
        names = ("a", "b") if ins.op in _ONLY_WRITES else ("a", "b", "mem")
        read |= {ins.attr(name) for name in names}
    for s in kernel.shared:
        if s.name not in read:
            raise VerifyError(
                f"kernel {kernel.name}: `shared {s.name}: {s.dtype}[{s.elems}]` needs an "
                "instruction that reads it"
            )
