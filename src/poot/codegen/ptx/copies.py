"""Rows of asynchronous copies and of barriers with phases.

Sources: PTX ISA, "Asynchronous copy", "mbarrier", "Tensors".
"""

from __future__ import annotations

from poot.codegen.kir.nodes import Ins, Token
from poot.codegen.ptx.body import Body
from poot.codegen.ptx.rows import Scene, int_attr
from poot.errors import CapabilityError

_HOPPER = 90
_WHOLE = 16  # the only size that may pass L1 by


def cp_async(b: Body, ins: Ins, scene: Scene) -> None:
    nbytes = int_attr(ins, "nbytes")
    dst = scene.memory.place(b, ins.attr("dst"), ins.args[0])
    src = scene.memory.place(b, ins.attr("mem"), ins.args[1])
    level = "cg" if ins.attr("bypass") and nbytes == _WHOLE else "ca"
    text = f"cp.async.{level}.shared.global {dst}, {src}, {nbytes}"
    if len(ins.args) == 3:
        # Of a source of no bytes nothing is read, and the rest is zeros.
        text += f", {b.ins('selp.b32', 'r', str(nbytes), '0', b.one(ins.args[2]))}"
    b.do(text)


def async_commit(b: Body, ins: Ins, scene: Scene) -> None:
    b.do("cp.async.commit_group")


def wait(b: Body, ins: Ins, scene: Scene) -> None:
    kind, pending = ins.args[0].type, int_attr(ins, "pending")
    assert isinstance(kind, Token), ins
    if kind.kind == "copy":
        b.do(f"cp.async.wait_group {pending}")
    elif kind.kind == "bulk":
        b.need(_HOPPER, "a bulk copy")
        b.do(f"cp.async.bulk.wait_group.read {pending}")
    else:
        b.need_hopper("wgmma")
        b.do(f"wgmma.wait_group.sync.aligned {pending}")


def mbar_init(b: Body, ins: Ins, scene: Scene) -> None:
    at = scene.memory.place(b, ins.attr("mem"), ins.args[0])
    if b.arch < _HOPPER:
        b.do(f"mbarrier.init.shared.b64 {at}, {int_attr(ins, 'count')}")
        return
    b.do(f"mbarrier.init.shared::cta.b64 {at}, {int_attr(ins, 'count')}")
    b.do("fence.mbarrier_init.release.cluster")


def mbar_arrive(b: Body, ins: Ins, scene: Scene) -> None:
    at = scene.memory.place(b, ins.attr("mem"), ins.args[0])
    expect = ins.attr("expect")
    state = b.temp("d")
    if expect is None:
        where = "shared::cta" if b.arch >= _HOPPER else "shared"
        b.do(f"mbarrier.arrive.{where}.b64 {state}, {at}")
        return
    b.need(_HOPPER, "an mbarrier that counts bytes")
    b.do(f"mbarrier.arrive.expect_tx.shared::cta.b64 {state}, {at}, {int_attr(ins, 'expect')}")


def mbar_wait(b: Body, ins: Ins, scene: Scene) -> None:
    at = scene.memory.place(b, ins.attr("mem"), ins.args[0])
    parity = b.one(ins.args[1])
    again, done = b.label(), b.temp("p")
    test = "try_wait.parity.shared::cta" if b.arch >= _HOPPER else "test_wait.parity.shared"
    b.place(again)
    b.do(f"mbarrier.{test}.b64 {done}, {at}, {parity}")
    b.do(f"@!{done} bra {again}")


def _tensor_map(b: Body, ins: Ins) -> str:
    name = str(ins.attr("blob"))
    held = b.once(f"{name}_param", "d", "mov.b64", f"param_{name}")
    return b.once(f"{name}_map", "d", "cvta.param.u64", held)


def _need_tensor(b: Body, axes: int) -> None:
    b.need(_HOPPER, "a tensor map")
    if not 1 <= axes <= 5:
        raise CapabilityError(f"a tensor map has 1 to 5 axes: got {axes}")


def tma_load(b: Body, ins: Ins, scene: Scene) -> None:
    at = [b.one(a) for a in ins.args[2:]]
    _need_tensor(b, len(at))
    dst = scene.memory.window(b, ins.attr("dst"), ins.args[0])
    bar = scene.memory.window(b, ins.attr("mem"), ins.args[1])
    b.do(
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[{dst}], [{_tensor_map(b, ins)}, {{{', '.join(at)}}}], [{bar}]"
    )


def tma_store(b: Body, ins: Ins, scene: Scene) -> None:
    at = [b.one(a) for a in ins.args[1:]]
    _need_tensor(b, len(at))
    src = scene.memory.window(b, ins.attr("mem"), ins.args[0])
    b.do(
        f"cp.async.bulk.tensor.{len(at)}d.global.shared::cta.bulk_group "
        f"[{_tensor_map(b, ins)}, {{{', '.join(at)}}}], [{src}]"
    )
    b.do("cp.async.bulk.commit_group")


def grid_wait(b: Body, ins: Ins, scene: Scene) -> None:
    """Before sm_90 a launch begins when the one before has finished: nothing to wait for."""
    if b.arch >= _HOPPER:
        b.do("griddepcontrol.wait")


def grid_trigger(b: Body, ins: Ins, scene: Scene) -> None:
    if b.arch >= _HOPPER:
        b.do("griddepcontrol.launch_dependents")
