"""A whole kernel as one LLVM function, and that as an object file.

    void k(ptr buffers, ptr imms, ptr grid, i64 first, i64 last, ptr shared)

runs workgroups first .. last-1 of the grid, x fastest. `buffers` holds a pointer a parameter,
`imms` 4 bytes an immediate, `grid` three i32, `shared` is one group's workgroup memory. All lanes
of a workgroup run together as one vector, so that a barrier costs nothing; where nothing meets,
they run in runs of the machine's vector width.
"""

from __future__ import annotations

from collections.abc import Iterator

from poot.codegen.code import code_key
from poot.codegen.kir.nodes import ELEMENT_BYTES, For, If, Ins, Kernel, Roles, Stmt, While
from poot.codegen.kir.room import need_buffers, need_plain, need_room
from poot.codegen.kir.uniform import analyse
from poot.codegen.llvm.body import HELD_IN, Body
from poot.codegen.llvm.compile import compile_text
from poot.codegen.llvm.control import emit_for, emit_if, emit_while, refuse_roles
from poot.codegen.llvm.homes import Homes
from poot.codegen.llvm.memory import Array
from poot.codegen.llvm.ops import LLVM
from poot.codegen.llvm.scene import Scene
from poot.errors import CapabilityError, PootError
from poot.limits import DeviceLimits


def symbol(key: str) -> str:
    """The function's name in its object file, from the code's key."""
    return f"k_{key[:40]}"


def emit_llvm(kernel: Kernel, limits: DeviceLimits) -> tuple[bytes, str]:
    """The kernel as an object file for the CPU, and its LLVM IR for people.

    Raises CapabilityError (threads, workgroup memory, subgroup width), BindingLimit and
    DtypeLowering, each with the kernel's name."""
    text = function_text(kernel, limits)
    return compile_text(text, limits.arch), text


def function_text(kernel: Kernel, limits: DeviceLimits) -> str:
    """The LLVM module of the kernel, not optimised yet. Raises as `emit_llvm` does."""
    check(kernel, limits)
    try:
        return _Writer(kernel, limits).write()
    except CapabilityError as refusal:
        raise type(refusal)(f"kernel {kernel.name}: {refusal.message}", refusal.loc) from refusal


def check(kernel: Kernel, limits: DeviceLimits) -> None:
    """Raises what `emit_llvm` says, for numbers over the device's."""
    need_room(kernel, limits)
    need_buffers(kernel, limits)
    need_plain(kernel, "llvm", limits)


def _instructions(body: tuple[Stmt, ...]) -> Iterator[Ins]:
    for stmt in body:
        if isinstance(stmt, Ins):
            yield stmt
        elif isinstance(stmt, If):
            yield from _instructions((*stmt.then, *stmt.orelse))
        elif isinstance(stmt, For):
            yield from _instructions(stmt.body)
        elif isinstance(stmt, While):
            yield from _instructions((*stmt.head, *stmt.body))
        else:
            for role in stmt.roles:
                yield from _instructions(role.body)


def lanes_together(kernel: Kernel, vector: int) -> int:
    """How many lanes run as one vector: all, rounded up to a power of two, or the machine's width
    where the lanes of a workgroup never meet."""
    meets = any(ins.op in ("barrier", "fence") for ins in _instructions(kernel.body))
    if kernel.threads > vector and not meets and (kernel.subgroup or 1) <= vector:
        return vector
    return 1 << (kernel.threads - 1).bit_length()


class _Writer:
    """One kernel being written."""

    def __init__(self, kernel: Kernel, limits: DeviceLimits) -> None:
        self.kernel = kernel
        self.key = code_key(kernel, limits)
        self.width = lanes_together(kernel, limits.vector)
        uniformity = analyse(kernel, self.width)
        homes = Homes(kernel.body, uniformity)
        has_avx512 = {"+avx512f", "+avx512dq"} <= set(limits.arch.split(","))
        self.body = Body(self.width, uniformity, homes, has_avx512)

    def write(self) -> str:
        b, k = self.body, self.kernel
        arrays = {p.name: Array(p.dtype, f"%p.{n}") for n, p in enumerate(k.params)}
        arrays |= {s.name: Array(s.dtype, f"%shared.{n}") for n, s in enumerate(k.shared)}
        imms = {i.name: f"%imm.{n}" for n, i in enumerate(k.imms)}
        is_chunked = self.width < k.threads
        base = "%base" if is_chunked else "0"
        grid = ("%nx", "%ny", "%nz")
        scene = Scene(arrays, imms, base, ("%gx", "%gy", "%gz"), grid, k.subgroup or k.threads)
        if k.threads % self.width:
            lanes = b.spread("i32", base, 1)
            b.mask = b.ins(f"icmp slt {b.wide('i32')} {lanes}, {b.integer(k.threads, True)}")
        self._statements(k.body, scene)
        name = symbol(self.key)
        args = "ptr %bufs, ptr %imms, ptr %grid, i64 %first, i64 %last, ptr %shared"
        lines = [
            f"; kernel {k.name}: {k.threads} lanes, {self.width} together",
            f"define void @{name}({args}) #0 {{",
            "entry:",
            *b.slots_text,
            *self._prologue(),
            *_first_group(),
            "group:",
            "  %at = phi i64 [ %first, %ready ], [ %at.next, %group.end ]",
            "  %gx = phi i32 [ %gx.0, %ready ], [ %gx.next, %group.end ]",
            "  %gy = phi i32 [ %gy.0, %ready ], [ %gy.next, %group.end ]",
            "  %gz = phi i32 [ %gz.0, %ready ], [ %gz.next, %group.end ]",
            *b.resets,
            *(self._chunked(b.lines) if is_chunked else b.lines),
            "  br label %group.end",
            *_next_group(),
            "}",
            *sorted(b.declares.values()),
            'attributes #0 = { nounwind "prefer-vector-width"="512" '
            '"min-legal-vector-width"="512" "no-builtins" }',
            *b.metadata,
        ]
        return "\n".join(lines) + "\n"

    def _chunked(self, lines: list[str]) -> list[str]:
        return [
            "  br label %chunk",
            "chunk:",
            "  %base = phi i32 [ 0, %group ], [ %base.next, %chunk.end ]",
            *lines,
            "  br label %chunk.end",
            "chunk.end:",
            f"  %base.next = add nsw i32 %base, {self.width}",
            f"  %is.chunk = icmp slt i32 %base.next, {self.kernel.threads}",
            "  br i1 %is.chunk, label %chunk, label %group.done",
            "group.done:",
        ]

    def _prologue(self) -> list[str]:
        """Pointers and immediates, read once."""
        k, out = self.kernel, list[str]()
        for n in range(len(k.params)):
            out.append(f"  %pp.{n} = getelementptr ptr, ptr %bufs, i64 {n}")
            out.append(f"  %p.{n} = load ptr, ptr %pp.{n}, !invariant.load !0")
        at = 0
        for n, s in enumerate(k.shared):
            at = -(-at // s.align) * s.align
            out.append(f"  %shared.{n} = getelementptr i8, ptr %shared, i64 {at}")
            at += s.elems * ELEMENT_BYTES[s.dtype]
        for n, i in enumerate(k.imms):
            out.append(f"  %ip.{n} = getelementptr i32, ptr %imms, i64 {n}")
            out.append(f"  %imm.{n} = load {HELD_IN[i.dtype]}, ptr %ip.{n}, !invariant.load !0")
        return out

    def _statements(self, body: tuple[Stmt, ...], scene: Scene) -> None:
        b = self.body

        def nested(block: tuple[Stmt, ...]) -> None:
            self._statements(block, scene)

        for stmt in body:
            if isinstance(stmt, Ins):
                self._instruction(stmt, scene)
            elif isinstance(stmt, If):
                emit_if(b, stmt, nested)
            elif isinstance(stmt, For):
                emit_for(b, stmt, nested)
            elif isinstance(stmt, While):
                emit_while(b, stmt, nested)
            else:
                assert isinstance(stmt, Roles), stmt
                refuse_roles(stmt)

    def _instruction(self, ins: Ins, scene: Scene) -> None:
        try:
            LLVM[ins.op](self.body, ins, scene)
        except PootError as refusal:
            if ins.op in refusal.message:
                raise
            raise type(refusal)(f"{ins.op}: {refusal.message}", refusal.loc) from refusal


def _first_group() -> list[str]:
    """The first workgroup's coordinates."""
    return [
        "  %nx = load i32, ptr %grid, !invariant.load !0",
        "  %np.y = getelementptr i32, ptr %grid, i64 1",
        "  %ny = load i32, ptr %np.y, !invariant.load !0",
        "  %np.z = getelementptr i32, ptr %grid, i64 2",
        "  %nz = load i32, ptr %np.z, !invariant.load !0",
        "  %is.some = icmp ult i64 %first, %last",
        "  br i1 %is.some, label %ready, label %end",
        "ready:",
        "  %nx.w = zext i32 %nx to i64",
        "  %ny.w = zext i32 %ny to i64",
        "  %row = udiv i64 %first, %nx.w",
        "  %gx.w = urem i64 %first, %nx.w",
        "  %gy.w = urem i64 %row, %ny.w",
        "  %gz.w = udiv i64 %row, %ny.w",
        "  %gx.0 = trunc i64 %gx.w to i32",
        "  %gy.0 = trunc i64 %gy.w to i32",
        "  %gz.0 = trunc i64 %gz.w to i32",
        "  br label %group",
    ]


def _next_group() -> list[str]:
    return [
        "group.end:",
        "  %at.next = add i64 %at, 1",
        "  %gx.up = add i32 %gx, 1",
        "  %is.row = icmp eq i32 %gx.up, %nx",
        "  %gx.next = select i1 %is.row, i32 0, i32 %gx.up",
        "  %y.add = zext i1 %is.row to i32",
        "  %gy.up = add i32 %gy, %y.add",
        "  %is.plane = icmp eq i32 %gy.up, %ny",
        "  %gy.next = select i1 %is.plane, i32 0, i32 %gy.up",
        "  %z.add = zext i1 %is.plane to i32",
        "  %gz.next = add i32 %gz, %z.add",
        "  %is.last = icmp eq i64 %at.next, %last",
        "  br i1 %is.last, label %end, label %group",
        "end:",
        "  ret void",
    ]
