"""Kernel IR nodes: typed registers, instructions, structured control, and the kernel around them.

A kernel is what one lane of a workgroup does. Registers are named, typed and mutable (no phi). An
index counts elements of the memory it addresses. Memory is a parameter (a device buffer) or a
workgroup array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Size in bytes of an element in memory. bool in memory is a u32 word.
ELEMENT_BYTES = {
    "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1,
    "i32": 4, "u32": 4, "i64": 8, "u64": 8, "i8": 1, "u8": 1, "bool": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ty:
    """A scalar (lanes == 1) or a short vector (lanes 2, 4, 8 or 16) held by each lane."""

    dtype: str
    lanes: int = 1

    def __str__(self) -> str:
        return self.dtype if self.lanes == 1 else f"{self.dtype}x{self.lanes}"


@dataclass(frozen=True, slots=True)
class Frag:
    """A matrix tile [m, n] spread over the lanes of a subgroup or warpgroup: a fixed tuple of
    registers a lane.

    `family` names the instruction it belongs to ("mma", "wgmma", "mfma", "wmma", "coop"), `role` is
    "a", "b" or "acc". The lane map is the row of `frags.LANE_MAPS` for (family, role); a register
    is never chosen at run time.
    """

    family: str
    role: str
    m: int
    n: int
    dtype: str

    def __str__(self) -> str:
        return f"frag[{self.family},{self.role},{self.m},{self.n},{self.dtype}]"


@dataclass(frozen=True, slots=True)
class Token:
    """What closes a group of asynchronous work; `wait` ends it. Groups of one kind end in the order
    they were made.

    `kind` is "copy" (cp_async), "wgmma" or "bulk" (tma_store).
    """

    kind: str = "copy"

    def __str__(self) -> str:
        return f"token[{self.kind}]"


Type = Ty | Frag | Token


@dataclass(frozen=True, slots=True)
class Reg:
    """A register of each lane. `mutable` ones are declared by `var` and written by `set`; others
    are written once.
    """

    name: str
    type: Type
    mutable: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Lit:
    """A number known at generation time. Floats print so that they round-trip; inf and nan are
    allowed, and every nan is one value: its bits are not kept.
    """

    value: float | int | bool
    type: Ty

    def __post_init__(self) -> None:
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)

    def __str__(self) -> str:
        return str(self.value).lower() if self.type.dtype == "bool" else repr(self.value)


Operand = Reg | Lit


@dataclass(frozen=True, slots=True)
class Ins:
    """dsts = op(*args) **attrs, one row of `ops.KIR_OPS`. `mem` attributes name a parameter or
    workgroup array.

    `attrs` has each attribute of the row, sorted by name, None where it is left out.
    """

    op: str
    dsts: tuple[Reg, ...]
    args: tuple[Operand, ...]
    attrs: tuple[tuple[str, object], ...] = ()

    def attr(self, name: str, default: object = None) -> object:
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclass(frozen=True, slots=True)
class For:
    """for var in range(start, stop, step), step a positive literal or register. The bounds are read
    once, before the first trip; lanes may differ in them.

    `unroll`: None leaves it to the target, 1 keeps it rolled, n > 1 asks for n copies, 0 for full
    unrolling.
    """

    var: Reg
    start: Operand
    stop: Operand
    step: Operand
    body: tuple[Stmt, ...]
    unroll: int | None = None


@dataclass(frozen=True, slots=True)
class While:
    """Run `head`, leave when `cond` (a bool register that head sets) is false, else run `body`, and
    again.
    """

    head: tuple[Stmt, ...]
    cond: Operand
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If:
    cond: Operand
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """One part of a workgroup: whole subgroups first..first+count-1, with a register budget a lane
    (0: unset).
    """

    name: str
    first: int
    count: int
    registers: int
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """Splits the workgroup: each subgroup runs the body of the one role that holds it; all go on
    after.
    """

    roles: tuple[Role, ...]


Stmt = Ins | For | While | If | Roles


def walk(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement in text order, outer before inner."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, If):
            yield from walk((*stmt.then, *stmt.orelse))
        elif isinstance(stmt, For):
            yield from walk(stmt.body)
        elif isinstance(stmt, While):
            yield from walk((*stmt.head, *stmt.body))
        elif isinstance(stmt, Roles):
            for role in stmt.roles:
                yield from walk(role.body)


def instructions(body: Iterable[Stmt]) -> Iterator[Ins]:
    """Every instruction in text order, nested ones too."""
    return (stmt for stmt in walk(body) if isinstance(stmt, Ins))


@dataclass(frozen=True, slots=True)
class Param:
    """A device buffer. `elems` is how many elements a launch may touch from its base (0 <= index <
    elems). Past what a signed word counts, an index is read as an unsigned one (PTX alone).

    `access` is "r", "w" or "rw". `align` is the promise on the base address, in bytes.
    """

    name: str
    dtype: str
    elems: int
    access: str
    align: int = 16

    @property
    def is_long(self) -> bool:
        """Whether its elements are as many as a signed word doesn't count."""
        return self.elems >= 1 << 31


@dataclass(frozen=True, slots=True)
class Imm:
    """A 32-bit immediate ("i32", "u32" or "f32"), the same for all lanes, given at the launch."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Blob:
    """Opaque launch bytes that the backend fills at bind (a tensor map). `nbytes` and alignment are
    its own.

    A tensor map's box, in elements, innermost axis first, its dtype and its swizzle are what the
    kernel counts on.
    """

    name: str
    nbytes: int = 128
    align: int = 64
    dtype: str = ""
    box: tuple[int, ...] = ()
    swizzle: str | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """A workgroup array of `elems` elements; dtype "mbar" is an array of mbarriers.

    Not initialised: a read before a write is an error that the simulator reports. `align` in bytes.
    """

    name: str
    dtype: str
    elems: int
    align: int = 16


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch's code. `threads` lanes a workgroup on one axis; `subgroup` the width it is
    written for, or None where it uses no subgroup op (then any width is right). Group ids are read
    by `group_id`. `residents` groups are to fit a compute unit at once, which bounds the registers
    of a lane; None asks nothing.
    """

    name: str
    params: tuple[Param, ...]
    imms: tuple[Imm, ...]
    blobs: tuple[Blob, ...]
    shared: tuple[Shared, ...]
    threads: int
    subgroup: int | None
    body: tuple[Stmt, ...]
    residents: int | None = None

    @property
    def shared_nbytes(self) -> int:
        """Workgroup memory, each array at its alignment, in declaration order."""
        return self._shared_ends()[-1][1] if self.shared else 0

    @property
    def shared_offsets(self) -> dict[str, int]:
        """Where each workgroup array starts, in bytes, as `shared_nbytes` counts."""
        return {s.name: at for s, (at, _) in zip(self.shared, self._shared_ends(), strict=True)}

    def _shared_ends(self) -> list[tuple[int, int]]:
        """Of each workgroup array where it starts and stops."""
        out: list[tuple[int, int]] = []
        stop = 0
        for s in self.shared:
            at = -(-stop // s.align) * s.align
            stop = at + s.elems * (8 if s.dtype == "mbar" else ELEMENT_BYTES[s.dtype])
            out.append((at, stop))
        return out
