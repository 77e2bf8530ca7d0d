"""How each kernel IR op is spelled in PTX: one row an op.

Most write one instruction an element; ptxas joins and schedules them. What an architecture lacks is
refused by the row with a reason.
"""

from __future__ import annotations

from poot.codegen.kir.nodes import ELEMENT_BYTES, Ins, Token
from poot.codegen.kir.rules import named_scope
from poot.codegen.ptx.body import Body, count_of, dtype_of
from poot.codegen.ptx.copies import (
    async_commit,
    cp_async,
    grid_trigger,
    grid_wait,
    mbar_arrive,
    mbar_init,
    mbar_wait,
    tma_load,
    tma_store,
    wait,
)
from poot.codegen.ptx.frags import (
    frag_apply,
    frag_cast,
    frag_coord,
    frag_fill,
    frag_move,
    frag_pack,
    frag_reduce,
    frag_slice,
    mma,
    unpack,
)
from poot.codegen.ptx.products import wgmma, wgmma_commit
from poot.codegen.ptx.rows import Row, Scene, elementwise, int_attr
from poot.codegen.ptx.scalars import SCALARS, select
from poot.codegen.ptx.subgroup import ballot, broadcast, elect, reduce, shuffle, shuffle_xor, vote
from poot.codegen.ptx.text import KIND
from poot.codegen.ptx.tiles import frag_load, frag_store
from poot.codegen.ptx.types import convert, from_words, in_register, to_words
from poot.errors import DtypeLowering

_AXES = "xyz"


def _set(b: Body, ins: Ins, scene: Scene) -> None:
    if isinstance(ins.dsts[0].type, Token):
        return
    values, count = b.raw(ins.args[0]), len(b.raw(ins.args[0]))
    whole = count_of(ins.dsts[0])
    b.put_raw(ins.dsts[0], values * whole if count == 1 and whole > 1 else values)


def _undef(b: Body, ins: Ins, scene: Scene) -> None:
    if not isinstance(ins.dsts[0].type, Token):
        b.registers(ins.dsts[0])


def _select(b: Body, ins: Ins, scene: Scene) -> None:
    conds, first, second = (b.get(a) for a in ins.args)
    dtype, count = dtype_of(ins.dsts[0]), count_of(ins.dsts[0])
    wide = conds * count if len(conds) == 1 else conds
    rows = zip(wide, first, second, strict=True)
    b.put(ins.dsts[0], [select(b, dtype, c, x, y) for c, x, y in rows])


def _cast(b: Body, ins: Ins, scene: Scene) -> None:
    source, target = dtype_of(ins.args[0]), dtype_of(ins.dsts[0])
    b.put(ins.dsts[0], [convert(b, source, target, v) for v in b.get(ins.args[0])])


def _bitcast(b: Body, ins: Ins, scene: Scene) -> None:
    source, target = dtype_of(ins.args[0]), dtype_of(ins.dsts[0])
    values = [in_register(b, source, v) for v in b.get(ins.args[0])]
    same_kind = KIND[source] == KIND[target] and ELEMENT_BYTES[source] > 1
    if source != target and not (same_kind and ELEMENT_BYTES[target] > 1):
        words = to_words(b, source, values)
        values = from_words(b, target, count_of(ins.dsts[0]), words)
    b.put(ins.dsts[0], values)


def _vec(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.one(a) for a in ins.args])


def _extract(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.get(ins.args[0])[int_attr(ins, "at")]])


def _insert(b: Body, ins: Ins, scene: Scene) -> None:
    lanes = list(b.get(ins.args[0]))
    lanes[int_attr(ins, "at")] = b.one(ins.args[1])
    b.put(ins.dsts[0], lanes)


def _lane(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.once("tid", "r", "mov.u32", "%tid.x")])


def _grid(name: str) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        axis = _AXES[int_attr(ins, "axis")]
        b.put(ins.dsts[0], [b.once(f"{name}_{axis}", "r", "mov.u32", f"%{name}.{axis}")])

    return row


def _subgroup_id(b: Body, ins: Ins, scene: Scene) -> None:
    tid = b.once("tid", "r", "mov.u32", "%tid.x")
    b.put(ins.dsts[0], [b.once("warpid", "r", "shr.u32", tid, "5")])


def _subgroup_lane(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [b.once("laneid", "r", "mov.u32", "%laneid")])


def _imm(b: Body, ins: Ins, scene: Scene) -> None:
    name = str(ins.attr("name"))
    b.put(ins.dsts[0], [b.once(f"{name}_imm", "r", "ld.param.b32", f"[param_{name}]")])


def _load(b: Body, ins: Ins, scene: Scene) -> None:
    scene.memory.load(b, ins)


def _prefetch(b: Body, ins: Ins, scene: Scene) -> None:
    b.do(f"prefetch.global.L2 {scene.memory.place(b, ins.attr('mem'), ins.args[0])}")


def _store(b: Body, ins: Ins, scene: Scene) -> None:
    scene.memory.store(b, ins)


def _atomic(b: Body, ins: Ins, scene: Scene) -> None:
    scene.memory.atomic(b, ins)


def _barrier(b: Body, ins: Ins, scene: Scene) -> None:
    scope = ins.attr("scope")
    named = b.role if scope == "role" else named_scope(scope)
    if scope == "subgroup":
        b.do("bar.warp.sync 0xFFFFFFFF")
    elif named is not None:
        b.do(f"bar.sync {named[0]}, {named[1]}")
    elif scope in ("group", "role"):
        b.do("bar.sync 0")
    else:
        raise DtypeLowering(f"ptx has no barrier of scope {scope}")


def _fence(b: Body, ins: Ins, scene: Scene) -> None:
    scope = ins.attr("scope")
    if scope == "async":
        b.need(90, "a fence before the copy engine or the matrix unit")
        b.do("fence.proxy.async.shared::cta")
        return
    b.do("fence.acq_rel.gpu" if scope == "device" else "fence.acq_rel.cta")


def _named(op: str) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        b.do(f"{op} {b.one(ins.args[0])}, {int_attr(ins, 'threads')}")

    return row


PTX: dict[str, Row] = {
    "set": _set,
    "undef": _undef,
    **{name: elementwise(scalar) for name, scalar in SCALARS.items()},
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "vec": _vec,
    "extract": _extract,
    "insert": _insert,
    "lane": _lane,
    "group_id": _grid("ctaid"),
    "num_groups": _grid("nctaid"),
    "subgroup_id": _subgroup_id,
    "subgroup_lane": _subgroup_lane,
    "imm": _imm,
    "load": _load,
    "prefetch": _prefetch,
    "store": _store,
    "atomic": _atomic,
    "barrier": _barrier,
    "fence": _fence,
    "shuffle": shuffle,
    "shuffle_xor": shuffle_xor,
    "subgroup_reduce": reduce,
    "subgroup_broadcast": broadcast,
    "vote_any": vote("any"),
    "vote_all": vote("all"),
    "agree": _set,
    "ballot": ballot,
    "cp_async": cp_async,
    "async_commit": async_commit,
    "wait": wait,
    "mbar_init": mbar_init,
    "mbar_arrive": mbar_arrive,
    "mbar_wait": mbar_wait,
    "barrier_sync": _named("bar.sync"),
    "barrier_arrive": _named("bar.arrive"),
    "tma_load": tma_load,
    "tma_store": tma_store,
    "unpack": unpack,
    "frag_fill": frag_fill,
    "frag_pack": frag_pack,
    "frag_coord": frag_coord,
    "frag_load": frag_load,
    "frag_store": frag_store,
    "frag_cast": frag_cast,
    "frag_slice": frag_slice,
    "frag_move": frag_move,
    "frag_reduce": frag_reduce,
    "frag_apply": frag_apply,
    "mma": mma,
    "wgmma": wgmma,
    "wgmma_commit": wgmma_commit,
    "elect": elect,
    "grid_wait": grid_wait,
    "grid_trigger": grid_trigger,
}
