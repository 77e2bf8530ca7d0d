"""Rows of matrix fragments: making them, changing their form, folding them, multiplying.

Sources: PTX ISA, "mma.m16n8k16", "movmatrix", "wgmma.mma_async" and its matrix descriptors.
"""

from __future__ import annotations

from poot.codegen.kir.nodes import Frag, Ins, Ty
from poot.codegen.ptx.body import Body, count_of, is_packed
from poot.codegen.ptx.rows import Scene, int_attr
from poot.codegen.ptx.scalars import FOLDS, SCALARS
from poot.codegen.ptx.tiles import corners, frag_of, lane_coordinate
from poot.codegen.ptx.types import convert, in_register
from poot.errors import DtypeLowering

_TILE_M, _TILE_N, _TILE_K = 16, 8, 16


def frag_fill(b: Body, ins: Ins, scene: Scene) -> None:
    dst = ins.dsts[0]
    b.put(dst, [b.one(ins.args[0])] * count_of(dst))


def frag_pack(b: Body, ins: Ins, scene: Scene) -> None:
    frag_of(ins.dsts[0])
    b.put(ins.dsts[0], [b.one(a) for a in ins.args])


def frag_coord(b: Body, ins: Ins, scene: Scene) -> None:
    frag, axis = frag_of(ins.dsts[0]), ins.attr("axis")
    own = lane_coordinate(b, frag, 1 if axis == 1 else 0)
    out: list[str] = []
    for corner in corners(frag):
        beyond = corner[1 if axis == 1 else 0]
        add = ("sum", own, beyond)
        out.append(b.shared(add, lambda n=beyond: b.ins("add.s32", "r", own, str(n))))
    b.put(ins.dsts[0], out)


def frag_cast(b: Body, ins: Ins, scene: Scene) -> None:
    source, target = frag_of(ins.args[0]), frag_of(ins.dsts[0])
    places = {corner: n for n, corner in enumerate(corners(source))}
    order = [places[corner] for corner in corners(target)]
    values = b.get(ins.args[0])
    if source.dtype == "f32" and is_packed(ins.dsts[0]):
        pairs = zip(order[::2], order[1::2], strict=True)
        op = f"cvt.rn.{target.dtype}x2.f32"
        b.put_raw(ins.dsts[0], [b.ins(op, "r", values[hi], values[lo]) for lo, hi in pairs])
        return
    b.put(ins.dsts[0], [convert(b, source.dtype, target.dtype, values[n]) for n in order])


def frag_slice(b: Body, ins: Ins, scene: Scene) -> None:
    source, target, at = frag_of(ins.args[0]), frag_of(ins.dsts[0]), int_attr(ins, "at")
    values = dict(zip(corners(source), _by_element(b, ins), strict=True))
    chosen = [values[row, column + at] for row, column in corners(target)]
    b.put_raw(ins.dsts[0], chosen[:: 2 if is_packed(ins.dsts[0]) else 1])


def _by_element(b: Body, ins: Ins) -> list[str]:
    """The register that holds each element; a pair's twice."""
    times = 2 if is_packed(ins.args[0]) else 1
    return [name for name in b.raw(ins.args[0]) for _ in range(times)]


def frag_move(b: Body, ins: Ins, scene: Scene) -> None:
    source, target = frag_of(ins.args[0]), frag_of(ins.dsts[0])
    pairs = dict(zip(corners(source)[::2], b.raw(ins.args[0]), strict=True))
    op = "movmatrix.sync.aligned.m8n8.trans.b16"
    b.put_raw(ins.dsts[0], [b.ins(op, "r", pairs[at]) for at in corners(target)[::2]])


def _lines(frag: Frag, axis: object) -> list[list[int]]:
    """The elements of each row (axis 1) or column (0) that a lane holds, ascending."""
    which = 0 if axis == 1 else 1
    found: dict[int, list[int]] = {}
    for n, corner in enumerate(corners(frag)):
        found.setdefault(corner[which], []).append(n)
    return [found[line] for line in sorted(found)]


def frag_reduce(b: Body, ins: Ins, scene: Scene) -> None:
    frag, fold = frag_of(ins.args[0]), FOLDS[str(ins.attr("kind"))]
    values = b.get(ins.args[0])
    out: list[str] = []
    for line in _lines(frag, ins.attr("axis")):
        parts = [values[n] for n in line]
        while len(parts) > 1:  # a tree: short chains, and the rounding of pairs
            paired = zip(parts[::2], parts[1::2], strict=False)
            rest = parts[-1:] if len(parts) % 2 else []
            parts = [fold(b, frag.dtype, [x, y]) for x, y in paired] + rest
        out += parts
    b.put(ins.dsts[0], out)


def frag_apply(b: Body, ins: Ins, scene: Scene) -> None:
    frag, scalar = frag_of(ins.args[0]), SCALARS[str(ins.attr("kind"))]
    values, line = list(b.get(ins.args[0])), b.get(ins.args[1])
    assert isinstance(ins.args[1].type, Ty), ins
    for number, elements in enumerate(_lines(frag, ins.attr("axis"))):
        for n in elements:
            values[n] = scalar(b, frag.dtype, [values[n], line[number]])
    b.put(ins.dsts[0], values)


def mma(b: Body, ins: Ins, scene: Scene) -> None:
    """One m16n8k16 for each 16x8 tile of the result and each 16 of k."""
    fa, fb, fc = (frag_of(a) for a in ins.args)
    if fa.dtype not in ("f16", "bf16") or fa.dtype != fb.dtype or fc.dtype not in ("f32", "f16"):
        raise DtypeLowering(f"ptx multiplies f16 or bf16 into f32: not {fa.dtype} into {fc.dtype}")
    if fc.dtype == "f16" and fa.dtype != "f16":
        raise DtypeLowering("ptx sums bf16 products in f32 alone")
    ra, rb, acc = b.raw(ins.args[0]), b.raw(ins.args[1]), list(b.raw(ins.args[2]))
    across, deep, size = fc.n // _TILE_N, fa.n // _TILE_K, 4 if fc.dtype == "f32" else 2
    shape = f"mma.sync.aligned.m16n8k16.row.col.{fc.dtype}.{fa.dtype}.{fa.dtype}.{fc.dtype}"
    for tile in range(fc.m // _TILE_M * across):
        row, column = divmod(tile, across)
        part = acc[size * tile : size * tile + size]
        for k in range(deep):
            a = ra[4 * (row * deep + k) : 4 * (row * deep + k) + 4]
            x = rb[2 * (k * across + column) : 2 * (k * across + column) + 2]
            made = [b.temp("r") for _ in range(size)]
            groups = ", ".join(f"{{{', '.join(g)}}}" for g in (made, a, x, part))
            b.do(f"{shape} {groups}")
            part = made
        acc[size * tile : size * tile + size] = part
    b.put_raw(ins.dsts[0], acc)


# 1024 + b is an f16 whose low byte is b; a code of i8 with its sign turned is b - 128.
_BESIDE, _ABOVE = "0x64646464", "0x64806480"


def unpack(b: Body, ins: Ins, scene: Scene) -> None:
    """Two codes an instruction or three. f8e4m3 by the conversion that sm_89 has."""
    word = in_register(b, "u32", b.one(ins.args[0]))
    pairs: list[str] = []
    if ins.attr("dtype") == "i8":
        turned = b.ins("xor.b32", "r", word, "0x80808080")
        for picked in ("0x4140", "0x4342"):
            both = b.ins("prmt.b32", "r", turned, _BESIDE, picked)
            pairs.append(b.ins("sub.rn.f16x2", "r", both, b.once("above", "r", "mov.b32", _ABOVE)))
    else:
        b.need(89, "a conversion of f8e4m3")
        for half in _halves(b, word):
            pairs.append(b.ins("cvt.rn.f16x2.e4m3x2", "r", half))
    b.put(ins.dsts[0], [part for pair in pairs for part in _halves(b, pair)])


def _halves(b: Body, word: str) -> tuple[str, str]:
    low, high = b.temp("h"), b.temp("h")
    b.do(f"mov.b32 {{{low}, {high}}}, {word}")
    return low, high
