"""Runs a kernel's portable ops in numpy, every lane of every group in lockstep: quick, and blind
to races."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Lit, Operand, Stmt, Ty, While

NUMPY = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "u32": np.uint32,
    "i8": np.int8, "u8": np.uint8, "bool": np.bool_, "f8e4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip

BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "nanmin": np.minimum, "nanmax": np.maximum, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
UNARY = {
    "neg": np.negative, "abs": np.abs, "floor": np.floor, "rint": np.rint, "sqrt": np.sqrt, "exp2": np.exp2,
    "log2": np.log2, "isnan": np.isnan, "rsqrt": lambda a: (1 / np.sqrt(a)).astype(np.float32),
    "rcp": lambda a: (np.float32(1) / a).astype(np.float32),
}  # fmt: skip


@dataclass
class Run:
    """The state of all lanes. `mem` maps a name to its elements; workgroup arrays are [groups,
    elems]."""

    kernel: Kernel
    grid: tuple[int, int, int]
    mem: dict[str, np.ndarray]
    regs: dict[str, np.ndarray] = field(default_factory=dict)
    active: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.groups = int(np.prod(self.grid))
        self.lanes = self.groups * self.kernel.threads
        self.group = np.repeat(np.arange(self.groups), self.kernel.threads)
        self.shared = {
            s.name: np.zeros((self.groups, s.elems), NUMPY[s.dtype]) for s in self.kernel.shared
        }
        self.known = {n: np.zeros(a.shape, bool) for n, a in self.shared.items()}
        self.active = np.ones(self.lanes, bool)

    def read(self, o: Operand) -> np.ndarray:
        if isinstance(o, Lit):
            return np.full(self.lanes, o.value, NUMPY[o.type.dtype])
        return self.regs[o.name]

    def write(self, reg, value: np.ndarray) -> None:
        dtype = NUMPY[reg.type.dtype]
        value = np.asarray(value)
        assert value.dtype == dtype, (reg, value.dtype)
        if reg.name in self.regs and reg.mutable:
            old = self.regs[reg.name]
            mask = self.active if value.ndim == 1 else self.active[:, None]
            self.regs[reg.name] = np.where(mask, value, old)
        else:
            self.regs[reg.name] = value

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        for s in stmts:
            if isinstance(s, Ins):
                self.ins(s)
            elif isinstance(s, If):
                self.branch(s)
            elif isinstance(s, For):
                self.loop(s)
            else:
                assert isinstance(s, While)
                self.loop_while(s)

    def branch(self, s: If) -> None:
        outer, cond = self.active, self.read(s.cond)
        for mask, part in ((outer & cond, s.then), (outer & ~cond, s.orelse)):
            if part and mask.any():
                self.active = mask
                self.body(part)
        self.active = outer

    def loop(self, s: For) -> None:
        outer = self.active
        at, stop, step = self.read(s.start).copy(), self.read(s.stop), self.read(s.step)
        while True:
            self.active = outer & (at < stop)
            if not self.active.any():
                break
            self.regs[s.var.name] = at
            self.body(s.body)
            at = at + step
        self.active = outer

    def loop_while(self, s: While) -> None:
        outer = self.active
        while True:
            self.body(s.head)
            self.active = self.active & self.read(s.cond)
            if not self.active.any():
                break
            self.body(s.body)
        self.active = outer

    def address(self, s: Ins, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        name, at = s.attr("mem"), self.read(s.args[0])
        shared = name in self.shared
        mem = self.shared[name] if shared else self.mem[name]
        live = at[self.active]
        assert not live.size or (live.min() >= 0 and live.max() + lanes <= mem.shape[-1]), (
            name,
            mem.shape,
            live.min(),
            live.max(),
        )
        assert lanes == 1 or not (live % lanes).any(), (name, lanes)
        return mem, at, self.known.get(name)

    def load(self, s: Ins) -> None:
        ty = s.dsts[0].type
        assert isinstance(ty, Ty)
        mem, at, known = self.address(s, ty.lanes)
        safe = np.where(self.active, at, 0)
        if ty.lanes > 1:
            safe = safe[:, None] + np.arange(ty.lanes)
        if known is None:
            got = mem[safe] if mem.size else np.zeros(safe.shape, mem.dtype)
        else:
            group = self.group if ty.lanes == 1 else self.group[:, None]
            assert known[group, safe][self.active].all(), ("read before write", s)
            got = mem[group, safe]
        self.write(s.dsts[0], got)

    def store(self, s: Ins) -> None:
        ty = s.args[1].type
        assert isinstance(ty, Ty)
        mem, at, known = self.address(s, ty.lanes)
        value = self.read(s.args[1])[self.active]
        index = at[self.active]
        if ty.lanes > 1:
            index = index[:, None] + np.arange(ty.lanes)
        if known is None:
            flat = np.sort(index.ravel())
            assert (np.diff(flat) > 0).all(), ("two lanes store one element", s)
            mem[index] = value
        else:
            group = self.group[self.active]
            group = group if ty.lanes == 1 else group[:, None]
            mem[group, index] = value
            known[group, index] = True

    def ins(self, s: Ins) -> None:
        op, args = s.op, s.args
        if op == "load":
            self.load(s)
        elif op == "store":
            self.store(s)
        elif op == "barrier":
            whole = self.active.reshape(self.groups, -1)
            assert (whole.all(1) | ~whole.any(1)).all(), "divergent barrier"
        else:
            self.write(s.dsts[0], self.value(s, op, [self.read(a) for a in args]))

    def value(self, s: Ins, op: str, a: list[np.ndarray]) -> np.ndarray:
        ty = s.dsts[0].type
        if op in BINARY:
            return BINARY[op](a[0], a[1])
        if op in UNARY:
            return UNARY[op](a[0])
        if op == "set":
            return a[0]
        if op in ("div", "rem"):
            return self.divide(op, a[0], a[1])
        if op == "fma":
            return a[0] * a[1] + a[2]
        if op == "mulhi":
            return ((a[0].astype(np.uint64) * a[1].astype(np.uint64)) >> np.uint64(32)).astype(
                np.uint32
            )
        if op in ("and", "or", "xor"):
            return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](
                a[0], a[1]
            )
        if op == "not":
            return ~a[0]
        if op in ("shl", "shr"):
            live = a[1][self.active]
            assert not live.size or (live >= 0).all() and (live < 32).all(), s
            fn = np.left_shift if op == "shl" else np.right_shift
            return fn(a[0], a[1].astype(a[0].dtype))
        if op == "select":
            cond = a[0] if a[1].ndim == 1 else a[0][:, None]
            return np.where(cond, a[1], a[2])
        if op == "cast":
            return self.cast(a[0], NUMPY[ty.dtype])
        if op == "bitcast":
            return a[0].view(NUMPY[ty.dtype])
        if op == "vec":
            return np.stack(a, 1)
        if op == "extract":
            return a[0][:, s.attr("at")]
        if op == "lane":
            return np.tile(np.arange(self.kernel.threads, dtype=np.int32), self.groups)
        assert op == "group_id", op
        gx, gy, _ = self.grid
        axis = s.attr("axis")
        return (self.group // (1, gx, gx * gy)[axis] % self.grid[axis]).astype(np.int32)

    def divide(self, op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind == "f":
            return a / b
        b = np.where(self.active, b, 1)
        assert (b != 0).all(), "division by zero"
        q = np.trunc(a.astype(np.float64) / b).astype(a.dtype)
        return q if op == "div" else a - q * b

    def cast(self, a: np.ndarray, dtype) -> np.ndarray:
        if a.dtype == np.float32 and np.dtype(dtype).kind in "iu":
            live = a[self.active]
            info = np.iinfo(dtype)
            assert not live.size or ((live >= info.min) & (live < float(info.max) + 1)).all(), (
                "cast out of range"
            )
            a = np.where(self.active, a, 0)
        return a.astype(dtype)


def lockstep(kernel: Kernel, buffers: dict[str, np.ndarray], grid: tuple[int, int, int]) -> None:
    """Runs every group; `buffers` are written in place. Checks bounds, divergent barriers,
    workgroup reads before a write, and two lanes storing one element of a buffer in one
    instruction."""
    for p in kernel.params:
        assert buffers[p.name].shape == (p.elems,), (p, buffers[p.name].shape)
        assert buffers[p.name].dtype == NUMPY[p.dtype], (p, buffers[p.name].dtype)
    with np.errstate(all="ignore"):
        Run(kernel, grid, buffers).body(kernel.body)
