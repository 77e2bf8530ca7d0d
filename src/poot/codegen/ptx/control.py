"""Control: branches, loops, roles. Registers keep their names across blocks, so nothing is merged.

    for:  i = start; if i >= stop goto end;  top: body; i += step; if i < stop goto top;  end:

A loop that asks for copies gets them here, with its register known to be a number where its bounds
are.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Lit, Role, Roles, Stmt, Ty, While
from poot.codegen.kir.rules import named_scope
from poot.codegen.ptx.body import Body
from poot.codegen.ptx.text import KIND
from poot.codegen.ptx.types import letter
from poot.errors import CapabilityError

Emit = Callable[[Body, tuple[Stmt, ...]], None]
WARP = 32
_WARPGROUP = 4
_BARRIERS = 16
_FILE = 65536  # registers of a multiprocessor (CUDA C++ Programming Guide, compute capability 8, 9)
_MOST = 255
MOST_COPIES = 512


def emit_if(b: Body, stmt: If, emit: Emit) -> None:
    known = b.known(stmt.cond)
    if known is not None:
        _block(b, stmt.then if known else stmt.orelse, emit)
        return
    cond = b.one(stmt.cond)
    end = b.label()
    orelse = b.label() if stmt.orelse else end
    b.do(f"@!{cond} bra {orelse}")
    _block(b, stmt.then, emit)
    if stmt.orelse:
        b.do(f"bra {end}")
        b.place(orelse)
        _block(b, stmt.orelse, emit)
    b.place(end)


def _block(b: Body, body: tuple[Stmt, ...], emit: Emit) -> None:
    with b.scope():
        emit(b, body)


def _trips(b: Body, stmt: For) -> tuple[int, int, int] | None:
    """(start, step, trips) where all is known."""
    start, stop, step = (b.known(x) for x in (stmt.start, stmt.stop, stmt.step))
    if start is None or stop is None or step is None:
        return None
    return start, step, max(0, -((start - stop) // step))


def emit_for(b: Body, stmt: For, emit: Emit) -> None:
    known = _trips(b, stmt)
    copies = stmt.unroll
    if known is not None:
        start, step, trips = known
        whole = copies == 0 or (copies is not None and trips <= copies)
        if trips == 0:
            return
        if trips == 1 or (whole and trips <= MOST_COPIES):
            for n in range(trips):
                _copy(b, stmt, emit, start + n * step)
            return
        if copies is not None and copies > 1 and trips % copies == 0:
            _rolled(b, stmt, emit, copies)
            return
    if copies is not None and copies > 1:
        _with_rest(b, stmt, emit, copies)
        return
    _rolled(b, stmt, emit, 1)


def _copy(b: Body, stmt: For, emit: Emit, at: int) -> None:
    assert isinstance(stmt.var.type, Ty), stmt.var
    b.note(f"{stmt.var.name} = {at}")
    b.bind(stmt.var, Lit(at, stmt.var.type))
    emit(b, stmt.body)


class _Counter:
    """A loop's register and its bounds, as instructions."""

    def __init__(self, b: Body, stmt: For) -> None:
        assert isinstance(stmt.var.type, Ty), stmt.var
        dtype = stmt.var.type.dtype
        self.b, self.stmt, self.letter, self.kind = b, stmt, letter(dtype), KIND[dtype]
        self.dtype = dtype
        self.stop, self.step = b.steady(stmt.stop), b.steady(stmt.step)
        first = b.one(stmt.start)
        b.hint = stmt.var.name
        self.name = b.ins("mov.b64" if self.kind == "d" else "mov.b32", self.kind, first)
        self.divisor = min(b.divisor(stmt.start), b.divisor(stmt.step))

    def ahead(self, steps: int) -> str:
        """The register so many steps on."""
        if steps == 0:
            return self.name
        return self.b.ins(f"add.{self.letter}", self.kind, self.name, self._far(steps))

    def _far(self, steps: int) -> str:
        known = self.b.known(self.stmt.step)
        if known is not None:
            return str(known * steps)
        if steps == 1:
            return self.step
        return self.b.ins(f"mul.lo.{self.letter}", self.kind, self.step, str(steps))

    def tests(self, op: str, value: str) -> str:
        return self.b.ins(f"setp.{op}.{self.letter}", "p", value, self.stop)

    def advance(self, steps: int) -> None:
        far = self._far(steps)
        self.b.do(f"add.{self.letter} {self.name}, {self.name}, {far}")


def _body(b: Body, counter: _Counter, emit: Emit, copies: int) -> None:
    """`copies` of the body, each with the register in a name of its own; then the advance."""
    stmt = counter.stmt
    step = b.known(stmt.step)
    with b.scope():
        for n in range(copies):
            b.hint = stmt.var.name
            name = counter.ahead(n)
            ahead = (counter.name, n * step) if step is not None else (name, 0)
            b.bind_counter(stmt.var, name, counter.divisor, ahead)
            emit(b, stmt.body)
    b.hint = stmt.var.name
    counter.advance(copies)


def _rolled(b: Body, stmt: For, emit: Emit, copies: int) -> None:
    known = _trips(b, stmt)
    counter = _Counter(b, stmt)
    top, end = b.label(), b.label()
    if known is None:
        b.do(f"@{counter.tests('ge', counter.name)} bra {end}")
    b.place(top)
    if stmt.unroll is not None:
        b.lines.append('.pragma "nounroll";')
    _body(b, counter, emit, copies)
    b.do(f"@{counter.tests('lt', counter.name)} bra {top}")
    b.place(end)


def _with_rest(b: Body, stmt: For, emit: Emit, copies: int) -> None:
    """Whole groups of copies while they last, then one at a time."""
    counter = _Counter(b, stmt)
    top, rest, again, end = (b.label() for _ in range(4))
    b.place(top)
    b.lines.append('.pragma "nounroll";')
    b.do(f"@{counter.tests('ge', counter.ahead(copies - 1))} bra {rest}")
    _body(b, counter, emit, copies)
    b.do(f"bra {top}")
    b.place(rest)
    b.do(f"@{counter.tests('ge', counter.name)} bra {end}")
    b.place(again)
    b.lines.append('.pragma "nounroll";')
    _body(b, counter, emit, 1)
    b.do(f"@{counter.tests('lt', counter.name)} bra {again}")
    b.place(end)


def emit_while(b: Body, stmt: While, emit: Emit) -> None:
    top, end = b.label(), b.label()
    b.place(top)
    _block(b, stmt.head, emit)
    b.do(f"@!{b.one(stmt.cond)} bra {end}")
    _block(b, stmt.body, emit)
    b.do(f"bra {top}")
    b.place(end)


# Roles


def entry_registers(threads: int) -> int:
    """Registers that each lane starts with in a workgroup alone on its multiprocessor."""
    return min(_MOST, _FILE // threads // 8 * 8)


def has_budgets(kernel: Kernel) -> bool:
    """Whether some role asks for its own number of registers."""
    return any(
        role.registers for stmt in kernel.body if isinstance(stmt, Roles) for role in stmt.roles
    )


def used_barriers(body: tuple[Stmt, ...]) -> set[int]:
    """Numbers of named barriers that the kernel names itself."""
    used: set[int] = set()
    for stmt in body:
        if isinstance(stmt, Ins):
            named = named_scope(stmt.attr("scope"))
            if named is not None:
                used.add(named[0])
            if stmt.op in ("barrier_sync", "barrier_arrive") and isinstance(stmt.args[0], Lit):
                used.add(int(stmt.args[0].value))
        elif isinstance(stmt, If):
            used |= used_barriers((*stmt.then, *stmt.orelse))
        elif isinstance(stmt, For):
            used |= used_barriers(stmt.body)
        elif isinstance(stmt, While):
            used |= used_barriers((*stmt.head, *stmt.body))
        else:
            for role in stmt.roles:
                used |= used_barriers(role.body)
    return used


def _check_budgets(stmt: Roles, threads: int) -> None:
    """Raises CapabilityError on budgets that could never be had: they would wait for ever."""
    pool = entry_registers(threads) * threads
    asked = sum(role.registers * role.count * WARP for role in stmt.roles)
    bad = [
        r for r in stmt.roles if r.registers and (r.registers % 8 or not 24 <= r.registers <= 256)
    ]
    torn = [r for r in stmt.roles if r.registers and (r.first % _WARPGROUP or r.count % _WARPGROUP)]
    if asked > pool or bad or torn:
        rows = ", ".join(f"{r.name} {r.count} warps x {r.registers}" for r in stmt.roles)
        raise CapabilityError(
            f"register budgets need whole warpgroups, multiples of 8 from 24 to 256, and at most "
            f"{pool} registers in all: {rows}"
        )


def emit_roles(b: Body, stmt: Roles, emit: Emit) -> None:
    """One branch a role, on the warp's number, which a shuffle makes uniform."""
    budgets = any(role.registers for role in stmt.roles) and b.is_hopper
    if budgets:
        _check_budgets(stmt, b.kernel.threads)
    free = [n for n in range(_BARRIERS - 1, 0, -1) if n not in used_barriers(b.kernel.body)]
    tid = b.once("tid", "r", "mov.u32", "%tid.x")
    b.hint = "warp"
    own = b.ins("shr.u32", "r", tid, "5")
    warp = b.ins("shfl.sync.idx.b32", "r", own, "0", "31", "0xFFFFFFFF")
    end = b.label()
    for role in stmt.roles:
        if not free:
            raise CapabilityError(f"role {role.name} needs a barrier of its own: none is left")
        b.role = (free.pop(0), role.count * WARP)
        _emit_role(b, role, warp, end, budgets, emit)
    b.role = None
    b.place(end)


def _emit_role(b: Body, role: Role, warp: str, end: str, budgets: bool, emit: Emit) -> None:
    after = b.label()
    b.note(f"role {role.name}: warps {role.first} .. {role.first + role.count - 1}")
    b.hint = "warp"
    if role.first:
        b.do(f"@{b.ins('setp.lt.s32', 'p', warp, str(role.first))} bra {after}")
    last = b.kernel.threads // WARP - role.first - role.count
    if last:
        b.do(f"@{b.ins('setp.ge.s32', 'p', warp, str(role.first + role.count))} bra {after}")
    with b.scope():
        if budgets and role.registers:
            grows = role.registers > entry_registers(b.kernel.threads)
            b.do(f"setmaxnreg.{'inc' if grows else 'dec'}.sync.aligned.u32 {role.registers}")
        emit(b, role.body)
    b.do(f"bra {end}")
    b.place(after)
