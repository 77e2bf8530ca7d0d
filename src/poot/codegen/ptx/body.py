"""What op rows write into: the function's lines, and the PTX registers of each kernel register.

A register of n lanes is n PTX registers. A 16-bit matrix fragment is b32 registers of two
neighbouring elements. An immutable register is bound to whatever names hold its value; a mutable
one has registers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from poot.codegen.kir.fold import fold
from poot.codegen.kir.frags import elems_per_lane
from poot.codegen.kir.nodes import Frag, Ins, Kernel, Lit, Operand, Reg, Token, Ty
from poot.codegen.ptx.text import KIND, arch_number, spell
from poot.errors import CapabilityError, DtypeLowering
from poot.limits import DeviceLimits

_FOLDED = (
    "add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "eq", "ne",
    "lt", "le", "gt", "ge", "select", "not",
)  # fmt: skip


def dtype_of(operand: Operand) -> str:
    """The element dtype of a register or literal. Raises DtypeLowering on a token."""
    if isinstance(operand.type, Token):
        raise DtypeLowering(f"a token holds no value: {operand}")
    return operand.type.dtype


def count_of(operand: Operand) -> int:
    """Elements that one lane holds."""
    if isinstance(operand.type, Frag):
        return elems_per_lane(operand.type)
    return operand.type.lanes if isinstance(operand.type, Ty) else 0


def is_packed(operand: Operand) -> bool:
    """Whether the operand is a fragment whose elements lie two in a register."""
    return isinstance(operand.type, Frag) and operand.type.dtype in ("f16", "bf16")


class Body:
    """The function under construction. Rows call `ins`, `do`, `get` and `put`."""

    def __init__(self, kernel: Kernel, limits: DeviceLimits) -> None:
        self.kernel = kernel
        self.limits = limits
        self.arch = arch_number(limits.arch)
        self.is_hopper = limits.arch == "sm_90a"
        self.lines: list[str] = []
        self.prologue: list[str] = []
        self.names: dict[str, list[str]] = {"p": [], "h": [], "r": [], "d": []}
        self.hint = "v"
        self.role: tuple[int, int] | None = None
        self.has_open_products = False
        self._depth = 1
        self._labels = 0
        self._counts: dict[str, int] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        self._own: set[str] = set()
        self._const: dict[str, Lit] = {}
        self._offset: dict[str, tuple[Reg, int]] = {}
        self._divisor: dict[str, int] = {}
        self._scopes: list[dict[tuple[object, ...], str]] = [{}]

    # Lines

    def do(self, text: str) -> None:
        self.lines.append(f"{'    ' * self._depth}{text};")

    def note(self, text: str) -> None:
        self.lines.append(f"{'    ' * self._depth}// {text}")

    def label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def temp(self, kind: str) -> str:
        """A new PTX register, named after the kernel register being computed."""
        number = self._counts.get(self.hint, 0)
        self._counts[self.hint] = number + 1
        name = f"${self.hint}${number}" if number else f"${self.hint}"
        self.names[kind].append(name)
        return name

    def ins(self, op: str, kind: str, *args: str) -> str:
        """One instruction with a result in a new register of that class."""
        made = self.temp(kind)
        self.do(f"{op} {', '.join((made, *args))}")
        return made

    def once(self, key: str, kind: str, op: str, *args: str) -> str:
        """A register that is set at the function's start."""
        scope = self._scopes[0]
        if ("once", key) not in scope:
            hint, self.hint = self.hint, key
            made = scope["once", key] = self.temp(kind)
            self.hint = hint
            self.prologue.append(f"    {op} {', '.join((made, *args))};")
        return scope["once", key]

    def truth(self, value: bool) -> str:
        return self.once("true" if value else "false", "p", "mov.pred", str(int(value)))

    # Scopes

    @contextmanager
    def scope(self) -> Generator[None]:
        """A block: what is shared in it isn't known after it."""
        self._scopes.append({})
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._scopes.pop()

    def shared(self, key: tuple[object, ...], make: Callable[[], str]) -> str:
        """The register known by that key in an open block, or a new one in this block."""
        for known in self._scopes:
            if key in known:
                return known[key]
        made = self._scopes[-1][key] = make()
        return made

    # Registers

    def resolve(self, operand: Operand) -> Operand:
        """The literal that an immutable register is known to hold, or the operand."""
        return self._const.get(operand.name, operand) if isinstance(operand, Reg) else operand

    def known(self, operand: Operand) -> int | None:
        """The integer that an operand is known to hold, or None."""
        found = self.resolve(operand)
        return int(found.value) if isinstance(found, Lit) else None

    def raw(self, operand: Operand) -> tuple[str, ...]:
        """The PTX registers as they are held: pairs for a 16-bit fragment."""
        operand = self.resolve(operand)
        if isinstance(operand, Lit):
            is_bool = operand.type.dtype == "bool"
            one = self.truth(bool(operand.value)) if is_bool else spell(operand)
            return (one,) * operand.type.lanes
        assert operand.name in self._held, operand
        return self._held[operand.name]

    def get(self, operand: Operand) -> tuple[str, ...]:
        """A name for each element that a lane holds."""
        held = self.raw(operand)
        if not is_packed(operand):
            return held
        out: list[str] = []
        for pair in held:
            low, high = self.temp("h"), self.temp("h")
            self.do(f"mov.b32 {{{low}, {high}}}, {pair}")
            out += [low, high]
        return tuple(out)

    def one(self, operand: Operand) -> str:
        """The name of a scalar."""
        names = self.get(operand)
        assert len(names) == 1, operand
        return names[0]

    def steady(self, operand: Operand) -> str:
        """The name of a scalar, which nothing changes later."""
        name = self.one(operand)
        return self._kept(KIND[dtype_of(operand)], name)

    def put(self, reg: Reg, values: Sequence[str]) -> None:
        """The register holds these elements from here on."""
        assert len(values) == count_of(reg), (reg, values)
        if is_packed(reg):
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [self.ins("mov.b32", "r", f"{{{low}, {high}}}") for low, high in pairs]
        self.put_raw(reg, values)

    def put_raw(self, reg: Reg, values: Sequence[str]) -> None:
        """As `put`, with values as they are held."""
        kind = "r" if is_packed(reg) else KIND[dtype_of(reg)]
        if reg.mutable:
            for name, value in zip(self.registers(reg), values, strict=True):
                self.move(kind, name, value)
        else:
            self._held[reg.name] = tuple(self._kept(kind, value) for value in values)

    def _kept(self, kind: str, value: str) -> str:
        """A name that nothing will change: a mutable register's value is copied."""
        return self.ins(_move(kind), kind, value) if value in self._own else value

    def move(self, kind: str, name: str, value: str) -> None:
        if name != value:
            self.do(f"{_move(kind)} {name}, {value}")

    def registers(self, reg: Reg) -> tuple[str, ...]:
        """A mutable register's own PTX registers, declared when first asked for."""
        if reg.name not in self._held:
            kind = "r" if is_packed(reg) else KIND[dtype_of(reg)]
            count = count_of(reg) // (2 if is_packed(reg) else 1)
            hint, self.hint = self.hint, reg.name
            self._held[reg.name] = tuple(self.temp(kind) for _ in range(count))
            self.hint = hint
            self._own |= set(self._held[reg.name])
        return self._held[reg.name]

    # What is known of integers

    def folds(self, ins: Ins) -> bool:
        """Binds the result of what needs no instruction, and notes what later addresses use."""
        type = ins.dsts[0].type if len(ins.dsts) == 1 else None
        if not isinstance(type, Ty) or ins.dsts[0].mutable:
            return False
        dst, args = ins.dsts[0], tuple(self.resolve(a) for a in ins.args)
        if ins.op == "set":
            found: Operand | None = args[0] if isinstance(args[0], Lit) else None
        else:
            found = fold(ins.op, args, type) if ins.op in _FOLDED else None
        if found is None:
            self._note(ins.op, dst, args)
            return False
        self.bind(dst, found)
        return True

    def bind(self, dst: Reg, found: Operand) -> None:
        """The register is this operand from here on."""
        self._const.pop(dst.name, None)
        self._offset.pop(dst.name, None)
        if isinstance(found, Lit):
            self._const[dst.name] = found
            self._held[dst.name] = ()
            return
        self.put_raw(dst, self.raw(found))
        if not found.mutable:
            self._offset[dst.name] = self._offset.get(found.name, (found, 0))
            self._divisor[dst.name] = self._divisor.get(found.name, 1)

    def bind_counter(self, var: Reg, name: str, divisor: int, ahead: tuple[str, int]) -> None:
        """A loop's register is `name` in the body, `ahead[1]` beyond the counter `ahead[0]`, which
        changes at the body's end.
        """
        counter, beyond = ahead
        self._const.pop(var.name, None)
        self._held[var.name] = (name,)
        self._divisor[var.name] = divisor
        self._own.add(counter)
        root = Reg(f"{counter}+0", var.type)
        self._held[root.name] = (counter,)
        self._offset[var.name] = (root, beyond)

    def _note(self, op: str, dst: Reg, args: tuple[Operand, ...]) -> None:
        self._const.pop(dst.name, None)
        self._offset.pop(dst.name, None)
        self._divisor.pop(dst.name, None)
        if len(args) != 2 or dst.type not in (Ty("i32"), Ty("i64")):
            return
        a, b = args
        if isinstance(a, Lit) and op == "add":
            a, b = b, a
        if isinstance(a, Reg) and not a.mutable and isinstance(b, Lit) and op in ("add", "sub"):
            root, before = self._offset.get(a.name, (a, 0))
            self._offset[dst.name] = (root, before + int(b.value) * (1 if op == "add" else -1))
        elif op == "add" and dst.type == Ty("i32") and isinstance(a, Reg) and isinstance(b, Reg):
            self._note_sum(dst, a, b)
        self._divisor[dst.name] = self._divides(op, a, b)

    def _note_sum(self, dst: Reg, a: Reg, b: Reg) -> None:
        """Of (x + 3) + (y + 2) the root is x + y, made once, and 5 is what addresses add."""
        if a.mutable or b.mutable:
            return
        (x, first), (y, second) = self._offset.get(a.name, (a, 0)), self._offset.get(b.name, (b, 0))
        if not (first or second):
            return
        names = self.one(x), self.one(y)
        made = self.shared(("root", *names), lambda: self.ins("add.s32", "r", *names))
        root = Reg(f"{made}+0", dst.type)
        self._held[root.name] = (made,)
        self._offset[dst.name] = (root, first + second)

    def _divides(self, op: str, a: Operand, b: Operand) -> int:
        x, y = self.divisor(a), self.divisor(b)
        if op == "mul":
            return min(x * y, 1 << 16)
        if op == "shl" and isinstance(b, Lit):
            return min(x << int(b.value), 1 << 16)
        return min(x, y) if op in ("add", "sub") else 1

    def divisor(self, operand: Operand) -> int:
        """A power of two that an integer is a multiple of."""
        known = self.known(operand)
        if known is not None:
            return min(known & -known, 1 << 16) if known else 1 << 16
        return self._divisor.get(operand.name, 1) if isinstance(operand, Reg) else 1

    def rooted(self, operand: Operand) -> tuple[Operand, int]:
        """(root, c) where the operand is root + c, as far as the instructions before show."""
        operand = self.resolve(operand)
        if isinstance(operand, Lit):
            return Lit(0, operand.type), int(operand.value)
        return self._offset.get(operand.name, (operand, 0))

    def need(self, arch: int, what: str) -> None:
        """Raises DtypeLowering where the architecture is older."""
        if self.arch < arch:
            raise DtypeLowering(f"{what} needs sm_{arch} or newer: {self.limits.name} is "
                                f"{self.limits.arch}")  # fmt: skip

    def need_hopper(self, what: str) -> None:
        if not self.is_hopper:
            raise CapabilityError(f"{what} needs sm_90a: {self.limits.name} is {self.limits.arch}")


def _move(kind: str) -> str:
    return {"p": "mov.pred", "h": "mov.b16", "d": "mov.b64"}.get(kind, "mov.b32")
