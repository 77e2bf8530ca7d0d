"""What op rows write into: the lines of one function, and what has to stand before it.

A register of one scalar is a local of that type; a vector or fragment is a struct with an array
whose elements are never chosen at run time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from poot.codegen.hip.names import Names
from poot.codegen.hip.prelude import FUNCTIONS, HEAD
from poot.codegen.hip.types import (
    C_TYPES,
    HELD_IN,
    dtype_of,
    lanes_of,
    literal,
    needs,
    struct_name,
    struct_text,
)
from poot.codegen.kir.nodes import Lit, Operand, Param, Reg, Shared, Type
from poot.limits import DeviceLimits

# The name of the block that holds every workgroup array.
BLOCK = "shared"


class Body:
    """The function under construction. `wave` is how many lanes run together."""

    def __init__(
        self,
        limits: DeviceLimits,
        wave: int,
        memories: Iterable[Param | Shared],
    ) -> None:
        self.limits = limits
        self.wave = wave
        self.names = Names()
        self.lines: list[str] = []
        self._memories = {m.name: m for m in memories}
        self._structs: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._declared: set[str] = set()
        self._depth = 1
        for name in (BLOCK, *FUNCTIONS, *C_TYPES):
            self.names.reserve(name)
        for memory in self._memories:
            self.names.of("memory", memory)

    # Text

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """`head {`, what is written inside, and `}`."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        if tail:
            self.line(tail)

    # What stands before the function

    def struct(self, dtype: str, lanes: int) -> str:
        """The name of a vector's struct, declared before the function."""
        name = struct_name(dtype, lanes)
        self._structs[name] = struct_text(dtype, lanes)
        return name

    def use(self, *functions: str) -> None:
        """Functions of the prelude that the text calls."""
        for name in functions:
            if name not in self._functions:
                row = FUNCTIONS[name]
                self.use(*row.calls)
                self._functions[name] = row.text

    def use_dtype(self, dtype: str) -> None:
        self.use(*needs(dtype))

    def function(self, name: str, result: str, args: str, lines: Sequence[str]) -> None:
        """A function of this kernel's own, made once."""
        if name not in self._functions:
            inside = "\n".join(f"  {line}" for line in lines)
            self._functions[name] = f"{HEAD} {result} {name}({args}) {{\n{inside}\n}}"

    def prelude(self) -> list[str]:
        """The structs and functions that the text needs."""
        return [*self._structs.values(), *self._functions.values()]

    # Memory

    def memory(self, name: object) -> tuple[str, Param | Shared]:
        """The C++ name and the declaration of a buffer or workgroup array."""
        decl = self._memories[str(name)]
        return self.names.of("memory", decl.name), decl

    def immediate(self, name: object) -> str:
        return self.names.of("immediate", str(name))

    # Registers

    def c_type(self, type: Type) -> str:
        held, lanes = HELD_IN[dtype_of(type)], lanes_of(type)
        return C_TYPES[held] if lanes == 1 else self.struct(held, lanes)

    def register(self, reg: Reg) -> str:
        return self.names.of("register", reg.name)

    def whole(self, operand: Operand) -> str:
        """The operand as one expression."""
        if isinstance(operand, Reg):
            return self.register(operand)
        parts = self.lanes(operand)
        return parts[0] if len(parts) == 1 else f"{self.c_type(operand.type)}{{{', '.join(parts)}}}"

    def lanes(self, operand: Operand) -> list[str]:
        """Each scalar of the operand, as an expression without operators around it."""
        count = lanes_of(operand.type)
        if isinstance(operand, Lit):
            return [literal(operand)] * count
        name = self.register(operand)
        return [name] if count == 1 else [f"{name}.s[{at}]" for at in range(count)]

    def one(self, operand: Operand) -> str:
        parts = self.lanes(operand)
        assert len(parts) == 1, operand
        return parts[0]

    def put(self, reg: Reg, lanes: Sequence[str]) -> None:
        """The register holds these scalars from here on."""
        assert len(lanes) == lanes_of(reg.type), (reg, lanes)
        if len(lanes) == 1:
            self.put_whole(reg, lanes[0])
        else:
            self.put_whole(reg, f"{self.c_type(reg.type)}{{{', '.join(lanes)}}}")

    def put_whole(self, reg: Reg, value: str) -> None:
        name = self.register(reg)
        if reg.name in self._declared:
            self.line(f"{name} = {value};")
            return
        self._declared.add(reg.name)
        const = "" if reg.mutable else "const "
        self.line(f"{const}{self.c_type(reg.type)} {name} = {value};")

    def declare(self, reg: Reg) -> None:
        """A register whose value is not yet meant to be read."""
        if reg.name not in self._declared:
            self._declared.add(reg.name)
            self.line(f"{self.c_type(reg.type)} {self.register(reg)};")
