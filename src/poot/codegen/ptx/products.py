"""Warpgroup products: wgmma over workgroup tiles with a 128-byte swizzle.

A descriptor is address >> 4, the panel stride in bits 16 to 29, 1024 bytes between groups of 8 rows
in bits 32 to 45, and swizzle 128B in bit 62 (PTX ISA, "Matrix descriptor format").
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.codegen.kir.nodes import Frag, Ins, Operand
from poot.codegen.ptx.body import Body
from poot.codegen.ptx.rows import Scene, int_attr
from poot.codegen.ptx.tiles import frag_of
from poot.errors import CapabilityError

_K = 16
_PANEL = 64  # columns: 128 bytes of 16 bits
_HIGH = 64 << 32 | 1 << 62
_UNIT = 16  # bytes
_UNUSED = 1  # the panel stride of a tile one panel wide


def _descriptor(b: Body, scene: Scene, mem: str, index: Operand, panels: int) -> str:
    """The descriptor of a tile; `panels` is the panel stride in units of 16 bytes."""
    scene_decl = scene.memory.decl(mem)
    if scene_decl.align < 8 * 128:
        raise CapabilityError(f"wgmma reads tiles aligned to 1024 bytes: {mem} has "
                              f"{scene_decl.align}")  # fmt: skip
    window = scene.memory.window(b, mem, index)
    masked = b.ins("and.b32", "r", window, "0x3FFFF")
    low = b.ins("shr.u32", "r", masked, "4")
    return b.ins("or.b64", "d", b.ins("cvt.u64.u32", "d", low), str(panels << 16 | _HIGH))


def _stepped(b: Body, descriptor: str, units: int) -> str:
    return b.ins("add.s64", "d", descriptor, str(units)) if units else descriptor


def _along_k(step: int, stride: int) -> int:
    """Units of 16 bytes to k16 step `step` of a tile whose k runs along its lines."""
    panel, inside = divmod(step, _PANEL // _K)
    return panel * stride * 2 // _UNIT + inside * (_K * 2 // _UNIT)


def _panels(ins: Ins, name: str) -> int:
    stride = ins.attr(name)
    return stride if isinstance(stride, int) else 0


def wgmma(b: Body, ins: Ins, scene: Scene) -> None:
    b.need_hopper("wgmma")
    acc, k = frag_of(ins.dsts[0]), int_attr(ins, "k")
    mem, trans = str(ins.attr("b")), bool(ins.attr("trans_b"))
    dtype = scene.memory.decl(mem).dtype
    stride_b = _panels(ins, "stride_b")
    panels = stride_b * 2 // _UNIT if trans and acc.n > _PANEL else _UNUSED
    right = _descriptor(b, scene, mem, ins.args[1], panels)
    left = _left(b, ins, scene, k)
    if not b.has_open_products:
        b.do("wgmma.fence.sync.aligned")
        b.has_open_products = True
    registers = ", ".join(b.registers(ins.dsts[0]))
    for step in range(k // _K):
        adds = b.truth(not (step == 0 and ins.attr("zero")))
        units = step * _K * 128 // _UNIT if trans else _along_k(step, stride_b)
        a, tail = left[step], f"{adds}, 1, 1"
        if not isinstance(ins.args[0].type, Frag):
            tail += ", 0"
        b.do(
            f"wgmma.mma_async.sync.aligned.m64n{acc.n}k16.f32.{dtype}.{dtype} "
            f"{{{registers}}}, {a}, {_stepped(b, right, units)}, {tail}, {int(trans)}"
        )


def _left(b: Body, ins: Ins, scene: Scene, k: int) -> Sequence[str]:
    """The left operand of each k16 step: registers or descriptors."""
    if isinstance(ins.args[0].type, Frag):
        frag_of(ins.args[0])
        raw = b.raw(ins.args[0])
        return [f"{{{', '.join(raw[4 * s : 4 * s + 4])}}}" for s in range(k // _K)]
    first = _descriptor(b, scene, str(ins.attr("a")), ins.args[0], _UNUSED)
    stride = _panels(ins, "stride_a")
    return [_stepped(b, first, _along_k(s, stride)) for s in range(k // _K)]


def wgmma_commit(b: Body, ins: Ins, scene: Scene) -> None:
    b.need_hopper("wgmma")
    b.do("wgmma.commit_group.sync.aligned")
    b.has_open_products = False
