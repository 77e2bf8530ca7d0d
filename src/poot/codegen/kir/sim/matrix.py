"""Fragments: [elements, lanes] arrays laid out by the lane maps, and the products within a
subgroup.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from poot.codegen.kir.frags import coords, elems_per_lane, lane_map, swizzle
from poot.codegen.kir.nodes import ELEMENT_BYTES, Frag, Ins, Type
from poot.codegen.kir.sim.barriers import uniform_int, warp_of
from poot.codegen.kir.sim.program import Maker, Step
from poot.codegen.kir.sim.team import Warp
from poot.codegen.kir.sim.values import F32, NUMPY, pure
from poot.codegen.kir.sim.wave import Ints, Value, Wave

Slots = tuple[int, ...]


def frag_of(type: Type) -> Frag:
    assert isinstance(type, Frag), type
    return type


def layout(warp: Warp, frag: Frag) -> tuple[Ints, Ints]:
    """Row and column of each element that the wave's lanes hold. An opaque frag's elements are
    dealt out in order.
    """
    row = lane_map(frag)
    if row is None:
        total = frag.m * frag.n
        elems = -(-total // warp.lanes)
        at = np.minimum(np.arange(elems)[:, None] * warp.lanes + warp.order, total - 1)
        return at // frag.n, at % frag.n
    r, c = coords(frag)
    first = int(warp.place.lane[0]) % row.lanes
    return r[:, first : first + warp.lanes], c[:, first : first + warp.lanes]


def whole(warp: Warp, frag: Frag, value: Value) -> Value:
    """[elements, lanes] of a register that may hold one number for all lanes."""
    elems = elems_per_lane(frag) if lane_map(frag) is not None else value.shape[0]
    return np.broadcast_to(value, (elems, warp.lanes))


def _matrix(warp: Warp, frag: Frag, value: Value) -> Value:
    """The matrix [m, n] in f32 from the lanes' elements."""
    r, c = layout(warp, frag)
    out = np.zeros((frag.m, frag.n), F32)
    out[r, c] = whole(warp, frag, value).astype(F32)
    return out


def _make_fill(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag = frag_of(ins.dsts[0].type)

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        shape = layout(warp, frag)[0].shape
        wave.regs[dsts[0]] = np.array(np.broadcast_to(wave.regs[args[0]], shape))

    return run


def _make_pack(ins: Ins, dsts: Slots, args: Slots) -> Step:
    def run(wave: Wave) -> None:
        wave.regs[dsts[0]] = np.stack([wave.spread(wave.regs[a]) for a in args])

    return run


def _make_coord(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag, axis = frag_of(ins.dsts[0].type), cast("int", ins.attr("axis"))  # verified

    def run(wave: Wave) -> None:
        wave.regs[dsts[0]] = layout(warp_of(wave), frag)[axis].astype(np.int32)

    return run


def _addresses(warp: Warp, ins: Ins, frag: Frag, args: Slots) -> Ints:
    """Each element's index in memory."""
    warp.whole(ins)
    base = uniform_int(warp, warp.regs[args[0]], ins)
    pitch = uniform_int(warp, warp.regs[args[1]], ins)
    r, c = layout(warp, frag)
    if ins.attr("trans"):
        r, c = c, r
    name = cast("str | None", ins.attr("swizzle"))  # verified
    at = base + r * pitch + c
    return swizzle(name, at, pitch, ELEMENT_BYTES[frag.dtype]) if name else at


def _make_load(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag, mem = frag_of(ins.dsts[0].type), str(ins.attr("mem"))

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        at = _addresses(warp, ins, frag, args)
        space = warp.team.spaces[mem]
        if space.dtype == "u32" and frag.dtype != "u32":
            words = space.load(warp, at // 2, 1, ins).astype(np.uint32)
            bits = (words >> (at % 2 * 16)).astype(np.uint16)
            wave.regs[dsts[0]] = bits.view(NUMPY[frag.dtype])
            return
        wave.regs[dsts[0]] = space.load(warp, at, 1, ins)

    return run


def _make_store(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag, mem = frag_of(ins.args[2].type), str(ins.attr("mem"))

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        at, value = _addresses(warp, ins, frag, args), wave.regs[args[2]]
        warp.team.spaces[mem].store(warp, at, whole(warp, frag, value), 1, ins)

    return run


def _make_cast(ins: Ins, dsts: Slots, args: Slots) -> Step:
    kind = NUMPY[frag_of(ins.dsts[0].type).dtype]

    def run(wave: Wave) -> None:
        wave.regs[dsts[0]] = wave.regs[args[0]].astype(kind)

    return run


def _make_move(ins: Ins, dsts: Slots, args: Slots) -> Step:
    old, new = frag_of(ins.args[0].type), frag_of(ins.dsts[0].type)

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        warp.whole(ins)
        table = np.zeros((old.m, old.n), NUMPY[old.dtype])
        table[layout(warp, old)] = whole(warp, old, wave.regs[args[0]])
        wave.regs[dsts[0]] = table[layout(warp, new)]

    return run


def _make_slice(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag, part = frag_of(ins.args[0].type), frag_of(ins.dsts[0].type)
    at = cast("int", ins.attr("at"))  # verified

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        columns = layout(warp, frag)[1][:, 0]
        base = columns - columns.min()
        chosen = (base >= at) & (base < at + part.n)
        wave.regs[dsts[0]] = whole(warp, frag, wave.regs[args[0]])[chosen]

    return run


def _lines(warp: Warp, frag: Frag, axis: int) -> Ints:
    """For each element the number of its row (axis 1) or column (0) among those that the lane
    holds, ascending.
    """
    number = layout(warp, frag)[0 if axis == 1 else 1]
    return np.searchsorted(np.unique(number[:, 0]), number[:, 0])


def _make_reduce(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag, axis = frag_of(ins.args[0].type), cast("int", ins.attr("axis"))  # verified
    fold = pure(Ins(str(ins.attr("kind")), ins.dsts, (ins.args[0], ins.args[0])))
    assert fold is not None, ins

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        lines = _lines(warp, frag, axis)
        value = whole(warp, frag, wave.regs[args[0]])
        rows: list[Value] = []
        for line in range(int(lines.max()) + 1):
            parts = value[lines == line]
            total = parts[0]
            for part in parts[1:]:
                total = fold(total, part)
            rows.append(total)
        wave.regs[dsts[0]] = np.stack(rows) if len(rows) > 1 else rows[0]

    return run


def _make_apply(ins: Ins, dsts: Slots, args: Slots) -> Step:
    frag, axis = frag_of(ins.args[0].type), cast("int", ins.attr("axis"))  # verified
    fold = pure(Ins(str(ins.attr("kind")), ins.dsts, (ins.args[0], ins.args[0])))
    assert fold is not None, ins

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        line = wave.regs[args[1]]
        by = line[_lines(warp, frag, axis)] if line.ndim > 1 else line
        wave.regs[dsts[0]] = fold(whole(warp, frag, wave.regs[args[0]]), by)

    return run


def _make_mma(ins: Ins, dsts: Slots, args: Slots) -> Step:
    a, b, c = (frag_of(x.type) for x in ins.args)

    def run(wave: Wave) -> None:
        warp = warp_of(wave)
        warp.whole(ins)
        left, right = _matrix(warp, a, wave.regs[args[0]]), _matrix(warp, b, wave.regs[args[1]])
        product = np.matmul(left, right)[layout(warp, c)]
        total = np.add(product, whole(warp, c, wave.regs[args[2]]).astype(F32))
        wave.regs[dsts[0]] = total.astype(NUMPY[c.dtype])

    return run


def _make_unpack(ins: Ins, dsts: Slots, args: Slots) -> Step:
    kind = NUMPY[str(ins.attr("dtype"))]
    shifts = np.arange(0, 32, 8, dtype=np.uint32)[:, None]

    def run(wave: Wave) -> None:
        words = np.asarray(wave.regs[args[0]], np.uint32).reshape(1, -1)
        codes = (words >> shifts).astype(np.uint8).view(kind)
        with np.errstate(invalid="ignore"):  # a signalling NaN
            wave.regs[dsts[0]] = codes.astype(NUMPY["f16"])

    return run


MATRIX: dict[str, Maker] = {
    "unpack": _make_unpack,
    "frag_fill": _make_fill,
    "frag_pack": _make_pack,
    "frag_coord": _make_coord,
    "frag_load": _make_load,
    "frag_store": _make_store,
    "frag_cast": _make_cast,
    "frag_move": _make_move,
    "frag_slice": _make_slice,
    "frag_reduce": _make_reduce,
    "frag_apply": _make_apply,
    "mma": _make_mma,
}
