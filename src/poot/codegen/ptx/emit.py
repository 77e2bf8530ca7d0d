"""A whole kernel as a PTX module with one entry point, named as the kernel.

The entry's parameters are the buffers' addresses in order (64 bits each), then the immediates (32
bits each), then the blobs.
"""

from __future__ import annotations

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Stmt, While
from poot.codegen.kir.room import need_room
from poot.codegen.ptx.body import Body
from poot.codegen.ptx.control import (
    WARP,
    emit_for,
    emit_if,
    emit_roles,
    emit_while,
    has_budgets,
)
from poot.codegen.ptx.memory import Memory, shared_declaration
from poot.codegen.ptx.ops import PTX
from poot.codegen.ptx.rows import Scene
from poot.codegen.ptx.text import VERSION, arch_number, declarations
from poot.errors import BindingLimit, CapabilityError, PootError
from poot.limits import DeviceLimits

# PTX ISA, "Kernel function parameters": 4 KiB before sm_70's extension, which 8.1 brings.
PARAM_NBYTES = 4096


def emit_ptx(kernel: Kernel, limits: DeviceLimits) -> tuple[bytes, str]:
    """The module, as the driver takes it (ending in a zero byte) and as text.

    Raises CapabilityError (threads, workgroup memory, subgroup width, register budgets),
    BindingLimit (parameters) and DtypeLowering (an op or dtype the architecture lacks), each with
    the kernel's name."""
    check(kernel, limits)
    try:
        text = _Writer(kernel, limits).write()
    except CapabilityError as refusal:
        raise type(refusal)(f"kernel {kernel.name}: {refusal.message}", refusal.loc) from refusal
    return text.encode() + b"\0", text


def check(kernel: Kernel, limits: DeviceLimits) -> None:
    """Raises what `emit_ptx` says, for numbers over the device's."""
    arch_number(limits.arch)
    need_room(kernel, limits)
    nbytes = 8 * len(kernel.params) + 4 * len(kernel.imms) + sum(b.nbytes for b in kernel.blobs)
    if nbytes > PARAM_NBYTES - 64 * len(kernel.blobs):
        raise BindingLimit(
            f"kernel {kernel.name} takes {nbytes} bytes of parameters: ptx has {PARAM_NBYTES}"
        )
    if kernel.subgroup not in (None, WARP) or (kernel.subgroup and kernel.threads % WARP):
        raise CapabilityError(
            f"kernel {kernel.name} is written for {kernel.threads} lanes in subgroups of "
            f"{kernel.subgroup}: ptx has whole warps of {WARP}"
        )


class _Writer:
    def __init__(self, kernel: Kernel, limits: DeviceLimits) -> None:
        self.kernel, self.limits = kernel, limits
        self.body = Body(kernel, limits)
        self.scene = Scene(Memory(kernel))

    def write(self) -> str:
        k, b = self.kernel, self.body
        self._statements(b, k.body)
        shared = shared_declaration(k)
        held = k.residents or (1 if has_budgets(k) else 0)
        head = [
            f".version {VERSION}",
            f".target {self.limits.arch}",
            ".address_size 64",
            "",
            *([shared, ""] if shared else []),
            f".visible .entry {k.name}(",
            ",\n".join(f"    {p}" for p in self._parameters()),
            ")",
            f".maxntid {k.threads}, 1, 1",
            *([f".minnctapersm {held}"] if held else []),
            "{",
        ]
        lines = [*head, *declarations(b.names), *b.prologue, *b.lines, "    ret;", "}"]
        return "\n".join(lines) + "\n"

    def _parameters(self) -> list[str]:
        k = self.kernel
        return [
            *(f".param .u64 param_{p.name}" for p in k.params),
            *(f".param .b32 param_{i.name}" for i in k.imms),
            *(f".param .align {x.align} .b8 param_{x.name}[{x.nbytes}]" for x in k.blobs),
        ]

    def _statements(self, b: Body, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, Ins):
                self._instruction(b, stmt)
            elif isinstance(stmt, If):
                emit_if(b, stmt, self._statements)
            elif isinstance(stmt, For):
                emit_for(b, stmt, self._statements)
            elif isinstance(stmt, While):
                emit_while(b, stmt, self._statements)
            else:
                emit_roles(b, stmt, self._statements)

    def _instruction(self, b: Body, ins: Ins) -> None:
        b.hint = ins.dsts[0].name if ins.dsts else ins.op
        if b.folds(ins):
            return
        try:
            PTX[ins.op](b, ins, self.scene)
        except PootError as refusal:
            if ins.op in refusal.message:
                raise
            raise type(refusal)(f"{ins.op}: {refusal.message}", refusal.loc) from refusal
