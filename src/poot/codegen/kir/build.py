"""Writes kernels: a builder that folds constants, shares equal pure values in scope, and keeps
control structured.

k = KernelBuilder("axpy", threads=64) x, y = k.param("x", "f32", 1024, "r"), k.param("y", "f32",
1024, "rw") i = k.group_id(0) * 64 + k.lane() with k.if_(i < 1000):
    k.store(y, i, k.load(x, i) * 2.0 + k.load(y, i))
kernel = k.kernel()
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from poot.codegen.kir.fold import fold
from poot.codegen.kir.nodes import (
    Blob,
    For,
    Frag,
    If,
    Imm,
    Ins,
    Kernel,
    Lit,
    Operand,
    Param,
    Reg,
    Role,
    Roles,
    Shared,
    Stmt,
    Token,
    Ty,
    Type,
    While,
)
from poot.codegen.kir.ops import KIR_OPS

BOOL = Ty("bool")
I32 = Ty("i32")
U32 = Ty("u32")
F32 = Ty("f32")
Number = float | int | bool


@dataclass(frozen=True, slots=True)
class Val:
    """A register or literal with operators; each makes one instruction of its builder."""

    k: KernelBuilder
    operand: Operand

    @property
    def type(self) -> Type:
        return self.operand.type

    @property
    def ty(self) -> Ty:
        """The type, where it is a scalar or vector."""
        assert isinstance(self.operand.type, Ty), self.operand
        return self.operand.type

    @property
    def literal(self) -> Number | None:
        return self.operand.value if isinstance(self.operand, Lit) else None

    def __add__(self, other: Val | Number) -> Val:
        return self.k.op("add", self, other)

    def __radd__(self, other: Number) -> Val:
        return self.k.op("add", self, other)

    def __sub__(self, other: Val | Number) -> Val:
        return self.k.op("sub", self, other)

    def __rsub__(self, other: Number) -> Val:
        return self.k.op("sub", self.k.lit(other, self.ty), self)

    def __mul__(self, other: Val | Number) -> Val:
        return self.k.op("mul", self, other)

    def __rmul__(self, other: Number) -> Val:
        return self.k.op("mul", self, other)

    def __truediv__(self, other: Val | Number) -> Val:
        return self.k.op("div", self, other)

    def __floordiv__(self, other: Val | Number) -> Val:
        """Truncating integer division; the generator uses it on what is not negative."""
        return self.k.op("div", self, other)

    def __mod__(self, other: Val | Number) -> Val:
        return self.k.op("rem", self, other)

    def __and__(self, other: Val | Number) -> Val:
        return self.k.op("and", self, other)

    def __or__(self, other: Val | Number) -> Val:
        return self.k.op("or", self, other)

    def __xor__(self, other: Val | Number) -> Val:
        return self.k.op("xor", self, other)

    def __invert__(self) -> Val:
        return self.k.op("not", self)

    def __lshift__(self, other: Val | Number) -> Val:
        return self.k.op("shl", self, other)

    def __rshift__(self, other: Val | Number) -> Val:
        return self.k.op("shr", self, other)

    def __neg__(self) -> Val:
        return self.k.op("neg", self)

    def __lt__(self, other: Val | Number) -> Val:
        return self.k.op("lt", self, other)

    def __le__(self, other: Val | Number) -> Val:
        return self.k.op("le", self, other)

    def __gt__(self, other: Val | Number) -> Val:
        return self.k.op("gt", self, other)

    def __ge__(self, other: Val | Number) -> Val:
        return self.k.op("ge", self, other)

    def eq(self, other: Val | Number) -> Val:
        return self.k.op("eq", self, other)

    def ne(self, other: Val | Number) -> Val:
        return self.k.op("ne", self, other)


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "vote_any", "vote_all")
SHAREABLE_IDS = ("lane", "group_id", "num_groups", "subgroup_id", "subgroup_lane", "imm")
SHAREABLE = frozenset(
    name
    for name, row in KIR_OPS.items()
    if (row.effect == "pure" and name not in ("undef", "set")) or name in SHAREABLE_IDS
)
_LEFT_OUT = {name: tuple((attr, None) for attr in row.attrs) for name, row in KIR_OPS.items()}
_FLOATS = ("f32", "f16", "bf16")


def _attrs(name: str, given: dict[str, object]) -> tuple[tuple[str, object], ...]:
    """Each attribute of the op's row, None where it is left out."""
    if not given:
        return _LEFT_OUT[name]
    row = KIR_OPS[name]
    assert given.keys() <= set(row.attrs), (name, given)
    return tuple([(attr, given.get(attr)) for attr in row.attrs])


def _known_as(o: Operand) -> object:
    """What equal operands share. Numbers are told apart by their text: 0.0, -0.0 and 0 differ."""
    if isinstance(o, Reg):
        return o.name
    type = o.type
    return type.dtype, type.lanes, o.value if type.dtype in ("i32", "u32") else repr(o.value)


class KernelBuilder:
    """Collects one kernel. Pure instructions, and loads of what the kernel only reads, are made
    once in an open scope, and outside the innermost `for_` loops that none of their operands need.
    """

    def __init__(self, name: str, threads: int, subgroup: int | None = None) -> None:
        self.name = name
        self.threads = threads
        self.subgroup = subgroup
        self.residents: int | None = None
        self._params: dict[str, Param] = {}
        self._imms: dict[str, Imm] = {}
        self._blobs: dict[str, Blob] = {}
        self._shared: dict[str, Shared] = {}
        self._blocks: list[list[Stmt]] = [[]]
        self._known: list[dict[tuple[object, ...], Reg]] = [{}]
        self._loops: list[bool] = [False]
        self._homes: dict[str, list[Stmt]] = {}
        self._count = 0

    # Declarations

    def param(self, name: str, dtype: str, elems: int, access: str, align: int = 16) -> str:
        assert name not in {**self._params, **self._shared}, name
        self._params[name] = Param(name, dtype, elems, access, align)
        return name

    def shared(self, name: str, dtype: str, elems: int, align: int = 16) -> str:
        assert name not in {**self._params, **self._shared}, name
        self._shared[name] = Shared(name, dtype, elems, align)
        return name

    def need_shared(self, name: str, dtype: str, elems: int) -> str:
        """A workgroup array of at least this size, declared now or grown."""
        known = self._shared.get(name)
        assert known is None or known.dtype == dtype, known
        self._shared[name] = Shared(name, dtype, max(elems, known.elems if known else 0), 16)
        return name

    def blob(
        self, name: str, dtype: str = "", box: tuple[int, ...] = (), swizzle: str | None = None
    ) -> str:
        self._blobs[name] = Blob(name, 128, 64, dtype, box, swizzle)
        return name

    def imm(self, name: str, dtype: str = "i32") -> Val:
        self._imms[name] = Imm(name, dtype)
        return self.op("imm", name=name, type=Ty(dtype))

    # Values

    def lit(self, value: Number, type: Ty = F32) -> Val:
        dtype = type.dtype
        typed = bool(value) if dtype == "bool" else float(value) if dtype in _FLOATS else int(value)
        return Val(self, Lit(typed, type))

    def _operand(self, value: Val | Number, like: Type) -> Operand:
        if isinstance(value, Val):
            return value.operand
        assert isinstance(like, Ty), like
        return self.lit(value, like).operand

    def _new(self, type: Type, prefix: str = "t", mutable: bool = False) -> Reg:
        self._count += 1
        reg = Reg(f"{prefix}{self._count}", type, mutable)
        self._homes[reg.name] = self._blocks[-1]
        return reg

    def op(
        self, name: str, /, *args: Val | Number, type: Type | None = None, **attrs: object
    ) -> Val:
        """One instruction with one result. `type` is needed where the operands don't give it."""
        like: Type = F32
        first = args[1:] if name == "select" else args
        for a in first:
            if isinstance(a, Val):
                like = a.operand.type
                break
        found = [a.operand if isinstance(a, Val) else self._operand(a, like) for a in args]
        if name == "select":
            found[0] = self._operand(args[0], BOOL)
        operands = tuple(found)
        if type is None:
            if name in COMPARISONS:
                lanes = like.lanes if isinstance(like, Ty) else 1
                type = BOOL if lanes == 1 else Ty("bool", lanes)
            else:
                type = operands[1].type if name == "select" else operands[0].type
        folded = fold(name, operands, type) if isinstance(type, Ty) else None
        if folded is not None:
            return Val(self, folded)
        frozen = _attrs(name, attrs)
        mutable = [o for o in operands if isinstance(o, Reg) and o.mutable]
        if name in SHAREABLE and not mutable:
            return self._shared_ins(name, type, operands, frozen)
        dst = self._new(type)
        self._blocks[-1].append(Ins(name, (dst,), operands, frozen))
        return Val(self, dst)

    def _shared_ins(
        self,
        name: str,
        type: Type,
        operands: tuple[Operand, ...],
        attrs: tuple[tuple[str, object], ...],
    ) -> Val:
        """The register that holds this instruction's result: a known one, or a new one made as far
        out as may be.
        """
        asked = [_known_as(o) for o in operands]
        if isinstance(type, Ty):
            key = (name, attrs, type.dtype, type.lanes, *asked)
        else:
            key = (name, attrs, type, *asked)
        for known in reversed(self._known):
            found = known.get(key)
            if found is not None:
                return Val(self, found)
        dst = self._new(type)
        needed = max([self._depth(o) for o in operands], default=0)
        depth = len(self._blocks) - 1
        while depth > needed and self._loops[depth]:
            depth -= 1
        self._blocks[depth].append(Ins(name, (dst,), operands, attrs))
        self._known[depth][key] = dst
        self._homes[dst.name] = self._blocks[depth]
        return Val(self, dst)

    def _depth(self, o: Operand) -> int:
        """How many scopes in an operand is made; a register of a closed scope (a while's head)
        counts as innermost.
        """
        if isinstance(o, Lit):
            return 0
        home = self._homes.get(o.name)
        for depth, block in enumerate(self._blocks):
            if block is home:
                return depth
        return len(self._blocks) - 1

    def is_open(self, value: Val) -> bool:
        """Whether the value's register is made in a scope that is still open."""
        if isinstance(value.operand, Lit):
            return True
        home = self._homes.get(value.operand.name)
        return any(block is home for block in self._blocks)

    def into(self, name: str, dst: Val, /, *args: Val, **attrs: object) -> None:
        """One instruction whose result goes to a mutable register."""
        assert isinstance(dst.operand, Reg), dst.operand
        assert dst.operand.mutable, dst.operand
        operands = tuple(a.operand for a in args)
        self._emit(Ins(name, (dst.operand,), operands, _attrs(name, attrs)))

    def do(self, name: str, /, *args: Val | Number, like: Type = I32, **attrs: object) -> None:
        """One instruction without a result."""
        operands = tuple(self._operand(a, like) for a in args)
        self._emit(Ins(name, (), operands, _attrs(name, attrs)))

    def _emit(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)

    def lane(self) -> Val:
        return self.op("lane", type=I32)

    def group_id(self, axis: int) -> Val:
        return self.op("group_id", type=I32, axis=axis)

    def num_groups(self, axis: int) -> Val:
        return self.op("num_groups", type=I32, axis=axis)

    def select(self, cond: Val, a: Val | Number, b: Val | Number) -> Val:
        return self.op("select", cond, a, b)

    def cast(self, a: Val, dtype: str) -> Val:
        return a if a.ty.dtype == dtype else self.op("cast", a, type=Ty(dtype, a.ty.lanes))

    def bitcast(self, a: Val, type: Ty) -> Val:
        return a if a.ty == type else self.op("bitcast", a, type=type)

    def fma(self, a: Val, b: Val | Number, c: Val | Number) -> Val:
        return self.op("fma", a, b, c)

    def vec(self, *scalars: Val) -> Val:
        return self.op("vec", *scalars, type=Ty(scalars[0].ty.dtype, len(scalars)))

    def extract(self, a: Val, at: int) -> Val:
        dtype = a.type.dtype if isinstance(a.type, (Ty, Frag)) else ""
        return self.op("extract", a, type=Ty(dtype), at=at)

    # Memory

    def load(self, mem: str, index: Val | int, lanes: int = 1, cache: str | None = None) -> Val:
        decl = self._params.get(mem) or self._shared[mem]
        attrs = _attrs("load", {"mem": mem, "cache": cache})
        operand = self._operand(index, I32)
        is_fixed = isinstance(decl, Param) and decl.access == "r" and cache != "relaxed"
        if is_fixed and not (isinstance(operand, Reg) and operand.mutable):
            return self._shared_ins("load", Ty(decl.dtype, lanes), (operand,), attrs)
        dst = self._new(Ty(decl.dtype, lanes))
        self._emit(Ins("load", (dst,), (operand,), attrs))
        return Val(self, dst)

    def prefetch(self, mem: str, index: Val | int) -> None:
        """A hint that the memory about an element will be read soon."""
        self._emit(Ins("prefetch", (), (self._operand(index, I32),), (("mem", mem),)))

    def store(
        self, mem: str, index: Val | int, value: Val | Number, cache: str | None = None
    ) -> None:
        decl = self._params.get(mem) or self._shared[mem]
        operand = self._operand(value, Ty(decl.dtype))
        got = operand.type
        assert isinstance(got, Ty), (mem, got)
        assert got.dtype == decl.dtype, (mem, decl.dtype, got)
        attrs: dict[str, object] = {"mem": mem, "cache": cache}
        self._emit(
            Ins("store", (), (self._operand(index, I32), operand), tuple(sorted(attrs.items())))
        )

    def barrier(self, scope: object = "group") -> None:
        self.do("barrier", scope=scope)

    # Mutable registers

    def var(self, init: Val | Number, type: Type | None = None, name: str = "m") -> Val:
        """A mutable register that starts as init."""
        like = type or (init.type if isinstance(init, Val) else F32)
        reg = self._new(like, name + "_", mutable=True)
        self._emit(Ins("set", (reg,), (self._operand(init, like),)))
        return Val(self, reg)

    def register(self, type: Ty, name: str = "m") -> Val:
        """A mutable register that holds nothing yet."""
        reg = self._new(type, name + "_", mutable=True)
        self._emit(Ins("undef", (reg,), ()))
        return Val(self, reg)

    def set(self, var: Val, value: Val | Number) -> None:
        assert isinstance(var.operand, Reg), var.operand
        assert var.operand.mutable, var.operand
        self._emit(Ins("set", (var.operand,), (self._operand(value, var.type),)))

    def copy(self, a: Val) -> Val:
        """An immutable register that holds what a mutable one holds now."""
        dst = self._new(a.type)
        self._emit(Ins("set", (dst,), (a.operand,)))
        return Val(self, dst)

    # Control

    @contextmanager
    def _scope(self, *, loop: bool = False) -> Generator[list[Stmt]]:
        block: list[Stmt] = []
        self._blocks.append(block)
        self._known.append({})
        self._loops.append(loop)
        try:
            yield block
        finally:
            self._blocks.pop()
            self._known.pop()
            self._loops.pop()

    @contextmanager
    def for_(
        self,
        start: Val | int,
        stop: Val | int,
        step: Val | int = 1,
        *,
        unroll: int | None = None,
        name: str = "i",
    ) -> Generator[Val]:
        var = self._new(I32, name + "_")
        bounds = tuple(self._operand(b, I32) for b in (start, stop, step))
        with self._scope(loop=True) as block:
            self._homes[var.name] = block
            yield Val(self, var)
        self._emit(For(var, bounds[0], bounds[1], bounds[2], tuple(block), unroll))

    @contextmanager
    def if_(self, cond: Val) -> Generator[None]:
        """Runs the body where cond. A literal condition still makes its block, so text shows what
        was asked.
        """
        with self._scope() as block:
            yield
        self._emit(If(cond.operand, tuple(block)))

    @contextmanager
    def else_(self) -> Generator[None]:
        last = self._blocks[-1][-1]
        assert isinstance(last, If), "else_ follows its if_"
        assert not last.orelse, "one else_ for an if_"
        with self._scope() as block:
            yield
        self._blocks[-1][-1] = If(last.cond, last.then, tuple(block))

    @contextmanager
    def while_(self, head: list[Stmt], cond: Val) -> Generator[None]:
        """The body of a loop whose head (from `block_`) computed cond."""
        with self._scope() as block:
            yield
        self._emit(While(tuple(head), cond.operand, tuple(block)))

    @contextmanager
    def block_(self) -> Generator[list[Stmt]]:
        """Statements kept apart: a while's head, or a role's body."""
        with self._scope() as block:
            yield block

    def roles(self, *roles: Role) -> None:
        self._emit(Roles(roles))

    def kernel(self) -> Kernel:
        assert len(self._blocks) == 1, "an open scope"
        return Kernel(
            self.name,
            tuple(self._params.values()),
            tuple(self._imms.values()),
            tuple(self._blobs.values()),
            tuple(self._shared.values()),
            self.threads,
            self.subgroup,
            tuple(self._blocks[0]),
            self.residents,
        )


TOKEN = Token()
