"""A whole kernel as a SPIR-V module.

Buffers are set 0, bindings in parameter order. Immediates are a uniform block at the binding after
the last buffer: WebGPU has no push constants, and one module serves Vulkan and wgpu.
"""

from __future__ import annotations

from poot.codegen.kir.nodes import For, If, Ins, Kernel, Stmt, While
from poot.codegen.kir.room import need_buffers, need_plain, need_room
from poot.codegen.kir.text import show
from poot.codegen.spirv.body import Body
from poot.codegen.spirv.control import emit_for, emit_if, emit_while, escaping, refuse_roles
from poot.codegen.spirv.coop import has_matrices, open_module
from poot.codegen.spirv.memory import Memory, accesses, declare_buffer, declare_shared
from poot.codegen.spirv.ops import SPIRV, Scene
from poot.codegen.spirv.words import BUILTINS, STORAGE, Module
from poot.errors import CapabilityError, PootError
from poot.limits import DeviceLimits

_VECTORS = ("NumWorkgroups", "WorkgroupId")
_SUBGROUP = ("SubgroupId", "SubgroupLocalInvocationId")


def emit(kernel: Kernel, limits: DeviceLimits) -> bytes:
    """The module's words, little-endian; the entry point is "main".

    Raises CapabilityError (threads, workgroup memory, subgroup width), BindingLimit (too many
    buffers) and DtypeLowering (an op or dtype the target lacks), each with the kernel's name."""
    check(kernel, limits)
    try:
        return _Writer(kernel, limits).write()
    except CapabilityError as refusal:
        raise type(refusal)(f"kernel {kernel.name}: {refusal.message}", refusal.loc) from refusal


def check(kernel: Kernel, limits: DeviceLimits) -> None:
    """Raises what `emit` says, for numbers over the device's."""
    need_room(kernel, limits)
    need_buffers(kernel, limits)
    need_plain(kernel, "spirv", limits)


def emit_spirv(kernel: Kernel, limits: DeviceLimits) -> tuple[bytes, str]:
    """The module's words, and the kernel's own text; `text.disassemble` shows the words."""
    return emit(kernel, limits), show(kernel)


class _Writer:
    """One kernel being written: the module, the function's body, and builtins read so far."""

    def __init__(self, kernel: Kernel, limits: DeviceLimits) -> None:
        self.kernel = kernel
        self.module = Module()
        matrices = has_matrices(kernel)
        self.body = Body(self.module, limits, escaping(kernel.body), kernel.subgroup, matrices)
        self.inputs: dict[str, int] = {}
        self.values: dict[str, int] = {}
        self.prologue: list[int] = []

    def write(self) -> bytes:
        m, b = self.module, self.body
        m.capability("Shader")
        open_module(b)
        uses = accesses(self.kernel)
        arrays = {
            p.name: declare_buffer(b, p, binding, uses[p.name])
            for binding, p in enumerate(self.kernel.params)
        }
        arrays |= {s.name: declare_shared(b, s, uses[s.name]) for s in self.kernel.shared}
        scene = Scene(Memory(arrays), self._builtin, self._immediates())
        entry = m.new_id()
        start, void = m.new_id(), m.type("OpTypeVoid")
        self._statements(b, self.kernel.body, scene)
        m.put("function", "OpFunction", void, entry, 0, m.type("OpTypeFunction", void))
        m.put("function", "OpLabel", start)
        m.raw("function", [*b.variables, *self.prologue, *b.code])
        m.put("function", "OpReturn")
        m.put("function", "OpFunctionEnd")
        m.put("entry", "OpEntryPoint", 5, entry, "main", *self.inputs.values())
        m.put("mode", "OpExecutionMode", entry, 17, self.kernel.threads, 1, 1)
        m.put("name", "OpName", entry, self.kernel.name)
        return m.binary()

    def _statements(self, b: Body, body: tuple[Stmt, ...], scene: Scene) -> None:
        def nested(inner: Body, block: tuple[Stmt, ...]) -> None:
            self._statements(inner, block, scene)

        for stmt in body:
            if isinstance(stmt, Ins):
                self._instruction(b, stmt, scene)
            elif isinstance(stmt, If):
                emit_if(b, stmt, nested)
            elif isinstance(stmt, For):
                emit_for(b, stmt, nested)
            elif isinstance(stmt, While):
                emit_while(b, stmt, nested)
            else:
                refuse_roles(stmt)

    def _instruction(self, b: Body, ins: Ins, scene: Scene) -> None:
        try:
            SPIRV[ins.op](b, ins, scene)
        except PootError as refusal:
            if ins.op in refusal.message:
                raise
            raise type(refusal)(f"{ins.op}: {refusal.message}", refusal.loc) from refusal

    def _builtin(self, name: str) -> int:
        """The builtin's value, loaded once at the function's start."""
        if name not in self.values:
            m, b = self.module, self.body
            if name in _SUBGROUP:
                m.capability("GroupNonUniform")
            held = b.vector_type("u32", 3 if name in _VECTORS else 1)
            pointer = m.type("OpTypePointer", STORAGE["Input"], held)
            variable = self.inputs[name] = m.variable(pointer, "Input")
            m.decorate(variable, "BuiltIn", BUILTINS[name])
            code, b.code = b.code, self.prologue
            self.values[name] = b.ins("OpLoad", held, variable)
            b.code = code
        return self.values[name]

    def _immediates(self) -> dict[str, int]:
        """A pointer to each immediate, made at the function's start; 4 bytes each, in order."""
        imms = self.kernel.imms
        if not imms:
            return {}
        m, b = self.module, self.body
        block = m.fresh_type("OpTypeStruct", *(b.type(i.dtype) for i in imms))
        m.decorate(block, "Block")
        for at in range(len(imms)):
            m.decorate_member(block, at, "Offset", 4 * at)
        uniform = STORAGE["Uniform"]
        variable = m.variable(m.type("OpTypePointer", uniform, block), "Uniform")
        m.decorate(variable, "DescriptorSet", 0)
        m.decorate(variable, "Binding", len(self.kernel.params))
        pointers: dict[str, int] = {}
        code, b.code = b.code, self.prologue
        for at, imm in enumerate(imms):
            pointer = m.type("OpTypePointer", uniform, b.type(imm.dtype))
            pointers[imm.name] = b.ins("OpAccessChain", pointer, variable, b.const("i32", at))
        b.code = code
        return pointers
