"""A whole kernel as HIP C++ text.

The function is `extern "C"`, named as `names.symbol` says, and takes a pointer a buffer in
parameter order and then the immediates. The text is compiled with OPTIONS: i32 wraps, and nothing
is contracted that the kernel keeps apart.
"""

from __future__ import annotations

from poot.codegen.hip.body import Body
from poot.codegen.hip.control import emit_for, emit_if, emit_roles, emit_while
from poot.codegen.hip.homes import at_top
from poot.codegen.hip.memory import pointer_type, workgroup_lines
from poot.codegen.hip.names import symbol
from poot.codegen.hip.ops import HIP
from poot.codegen.hip.types import C_TYPES
from poot.codegen.kir.nodes import For, If, Ins, Kernel, Param, Stmt, While, instructions
from poot.codegen.kir.room import need_at_most, need_buffers, need_plain, need_room
from poot.errors import CapabilityError, PootError
from poot.limits import DeviceLimits

# What every compiler of the text is given.
OPTIONS = ("-O3", "-std=c++17", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing")
# Bytes of arguments that a launch may have (HIP programming guide, kernel arguments).
ARGUMENT_NBYTES = 4096


def emit_hip(kernel: Kernel, limits: DeviceLimits) -> tuple[bytes, str]:
    """The text as bytes for the compiler, and as text.

    Raises CapabilityError (lanes, workgroup memory, wave), BindingLimit (too many buffers) and
    DtypeLowering (an op or dtype that HIP lacks), each with the kernel's name."""
    check(kernel, limits)
    try:
        text = _write(kernel, limits)
    except CapabilityError as refusal:
        raise type(refusal)(f"kernel {kernel.name}: {refusal.message}", refusal.loc) from refusal
    return text.encode(), text


def check(kernel: Kernel, limits: DeviceLimits) -> None:
    """Raises what `emit_hip` says, for numbers over the device's."""
    need_room(kernel, limits)
    need_buffers(kernel, limits)
    need_at_most(kernel, "bytes of arguments", argument_nbytes(kernel), ARGUMENT_NBYTES, limits)
    need_plain(kernel, "hip", limits)


def argument_nbytes(kernel: Kernel) -> int:
    """Bytes of a launch's arguments: 8 a buffer, then 4 an immediate."""
    return 8 * len(kernel.params) + 4 * len(kernel.imms)


def _write(kernel: Kernel, limits: DeviceLimits) -> str:
    wave = kernel.subgroup or limits.subgroup
    b = Body(limits, wave, (*kernel.params, *kernel.shared))
    args = [_parameter(b, kernel, p) for p in kernel.params]
    args += [f"{C_TYPES[i.dtype]} {b.immediate(i.name)}" for i in kernel.imms]
    for line in workgroup_lines(b, kernel):
        b.line(line)
    for reg in at_top(kernel.body):
        b.declare(reg)
    _statements(b, kernel.body)
    signature = f'extern "C" __global__ __launch_bounds__({kernel.threads})\nvoid '
    signature += f"{symbol(kernel.name)}({', '.join(args)})"
    waves = f", waves of {kernel.subgroup}" if kernel.subgroup else ""
    head = f"// {kernel.name}: {kernel.threads} lanes{waves}, {kernel.shared_nbytes} bytes shared"
    include = "#ifndef __HIPCC_RTC__\n#include <hip/hip_runtime.h>\n#endif"
    parts = [f"{head}\n{include}", *b.prelude()]
    return "\n\n".join([*parts, "\n".join([f"{signature} {{", *b.lines, "}"])]) + "\n"


def _parameter(b: Body, kernel: Kernel, param: Param) -> str:
    """`const float* __restrict__ q`, restrict where every load says that nothing writes it."""
    name, _ = b.memory(param.name)
    loads = [i for i in instructions(kernel.body) if i.attr("mem") == param.name]
    alone = param.access == "r" and all(
        i.op == "load" and i.attr("cache") == "const" for i in loads
    )
    return f"{pointer_type(param)}{' __restrict__' if alone and loads else ''} {name}"


def _statements(b: Body, body: tuple[Stmt, ...]) -> None:
    for stmt in body:
        if isinstance(stmt, Ins):
            _instruction(b, stmt)
        elif isinstance(stmt, If):
            emit_if(b, stmt, _statements)
        elif isinstance(stmt, For):
            emit_for(b, stmt, _statements)
        elif isinstance(stmt, While):
            emit_while(b, stmt, _statements)
        else:
            emit_roles(b, stmt, _statements)


def _instruction(b: Body, ins: Ins) -> None:
    try:
        HIP[ins.op](b, ins)
    except PootError as refusal:
        if ins.op in refusal.message:
            raise
        raise type(refusal)(f"{ins.op}: {refusal.message}", refusal.loc) from refusal
