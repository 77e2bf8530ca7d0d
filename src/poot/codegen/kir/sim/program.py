"""A kernel made ready to run: each statement a closure over register slots.

A closure that can't wait takes the wave and returns nothing. One that can is a generator that
yields what it waits for, and so are the blocks around it. A machine says which ops there are and
which of them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Lit, Operand, Roles, Stmt, While
from poot.codegen.kir.sim.control import Driver, branch, chosen_role, counted, looped
from poot.codegen.kir.sim.poison import Poison
from poot.codegen.kir.sim.values import constant
from poot.codegen.kir.sim.wave import Value, Wave
from poot.codegen.kir.text import show_stmt
from poot.errors import SimulationError


@dataclass(frozen=True, slots=True)
class Wait:
    """What a wave waits for. `ready` says whether it is there; None lets the others run and goes
    on.
    """

    ready: Callable[[], bool] | None
    what: str


Step = Callable[[Wave], None]
WaitingStep = Callable[[Wave], Iterator[Wait]]
# From an instruction and the slots of its results and operands.
Maker = Callable[[Ins, tuple[int, ...], tuple[int, ...]], Step]
WaitingMaker = Callable[[Ins, tuple[int, ...], tuple[int, ...]], WaitingStep]


@dataclass(frozen=True, slots=True)
class Machine:
    """How each op runs. `spins`: a while loop lets other waves run between its trips."""

    name: str
    makers: dict[str, Maker]
    waiting: dict[str, WaitingMaker]
    spins: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in order, each a plain step or a waiting one."""

    steps: tuple[tuple[Step | None, WaitingStep | None], ...]
    plain: tuple[Step, ...] | None

    @staticmethod
    def of(steps: Sequence[tuple[Step | None, WaitingStep | None]]) -> Block:
        plain = [s for s, _ in steps if s is not None]
        return Block(tuple(steps), tuple(plain) if len(plain) == len(steps) else None)

    def run(self, wave: Wave) -> Iterator[Wait]:
        for plain, waiting in self.steps:
            if plain is not None:
                plain(wave)
            elif waiting is not None:
                yield from waiting(wave)


_SPIN = Wait(None, "another wave's word")


def _plain_loop(driver: Driver, blocks: list[tuple[Step, ...]]) -> Step:
    def run(wave: Wave) -> None:
        for which in driver(wave):
            for step in blocks[which]:
                step(wave)

    return run


def _waiting_loop(driver: Driver, blocks: list[Block], spins: bool) -> WaitingStep:
    def run(wave: Wave) -> Iterator[Wait]:
        for which in driver(wave):
            yield from blocks[which].run(wave)
            if spins and which == 1:
                yield _SPIN

    return run


class _Compiler:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.template: list[Value] = []
        self.regs: dict[str, int] = {}
        self.constants: dict[tuple[str, str], int] = {}

    def slot(self, operand: Operand) -> int:
        if isinstance(operand, Lit):
            key = (repr(operand.value), str(operand.type))
            if key not in self.constants:
                self.constants[key] = len(self.template)
                self.template.append(constant(operand))
            return self.constants[key]
        if operand.name not in self.regs:
            self.regs[operand.name] = len(self.template)
            poison = Poison("uninitialised", f"register {operand.name} holds nothing yet")
            self.template.append(cast("Value", poison))  # it stands for a value and fails when used
        return self.regs[operand.name]

    def block(self, body: tuple[Stmt, ...]) -> Block:
        return Block.of([self.stmt(s) for s in body])

    def stmt(self, stmt: Stmt) -> tuple[Step | None, WaitingStep | None]:
        if isinstance(stmt, Ins):
            return self.ins(stmt)
        if isinstance(stmt, If):
            return self.control(branch(stmt, self.slot(stmt.cond)), (stmt.then, stmt.orelse))
        if isinstance(stmt, For):
            bounds = (self.slot(stmt.start), self.slot(stmt.stop), self.slot(stmt.step))
            return self.control(counted(stmt, self.slot(stmt.var), bounds), (stmt.body,))
        if isinstance(stmt, While):
            driver = looped(stmt, self.slot(stmt.cond))
            return self.control(driver, (stmt.head, stmt.body), self.machine.spins)
        assert isinstance(stmt, Roles)
        return self.control(chosen_role(stmt), tuple(r.body for r in stmt.roles))

    def control(
        self, driver: Driver, bodies: tuple[tuple[Stmt, ...], ...], spins: bool = False
    ) -> tuple[Step | None, WaitingStep | None]:
        blocks = [self.block(body) for body in bodies]
        plain = [b.plain for b in blocks if b.plain is not None]
        if len(plain) == len(blocks) and not spins:
            return _plain_loop(driver, plain), None
        return None, _waiting_loop(driver, blocks, spins)

    def ins(self, ins: Ins) -> tuple[Step | None, WaitingStep | None]:
        dsts = tuple(self.slot(d) for d in ins.dsts)
        args = tuple(self.slot(a) for a in ins.args)
        if ins.op in self.machine.waiting:
            return None, self.machine.waiting[ins.op](ins, dsts, args)
        maker = self.machine.makers.get(ins.op)
        if maker is None:
            what = f"the {self.machine.name} simulator has no `{show_stmt(ins)}`"
            raise SimulationError(f"undefined: {what}")
        return maker(ins, dsts, args), None


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel's body, and the registers it starts with: constants in their slots, nothing in the
    others.
    """

    kernel: Kernel
    block: Block
    registers: tuple[Value, ...]


def compile_kernel(kernel: Kernel, machine: Machine) -> Program:
    """The kernel's closures. Raises SimulationError for an op that the machine lacks."""
    compiler = _Compiler(machine)
    block = compiler.block(kernel.body)
    return Program(kernel, block, tuple(compiler.template))
