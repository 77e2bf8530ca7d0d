"""Moves matrix fragments between registers and memory.

16-bit tiles in workgroup memory go by ldmatrix and (sm_90) stmatrix, four 8x8 blocks at a time;
other tiles element by element, two where they lie side by side. Block corners come from the lane
maps, so one piece of code serves every family of the matrix instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.kir.frags import LaneMap, coords, lane_map
from poot.codegen.kir.nodes import ELEMENT_BYTES, Frag, Ins, Operand, Shared
from poot.codegen.ptx.body import Body
from poot.codegen.ptx.memory import Place, read, write
from poot.codegen.ptx.rows import Scene
from poot.errors import DtypeLowering

FAMILIES = ("mma", "wgmma")
_LINE_NBYTES = 128  # a swizzle moves 16-byte chunks within so many bytes


def frag_of(operand: Operand) -> Frag:
    """The operand's fragment type. Raises DtypeLowering on families of other targets."""
    frag = operand.type
    assert isinstance(frag, Frag), operand
    if frag.family not in FAMILIES:
        raise DtypeLowering(f"ptx has no {frag.family} fragments")
    return frag


def map_of(frag: Frag) -> LaneMap:
    row = lane_map(frag)
    assert row is not None, frag
    return row


def corners(frag: Frag) -> list[tuple[int, int]]:
    """(row, column) of each element in lane 0."""
    r, c = coords(frag)
    return [(int(x), int(y)) for x, y in zip(r[:, 0], c[:, 0], strict=True)]


def lane_coordinate(b: Body, frag: Frag, axis: int) -> str:
    """The lane's own part of a row (axis 0) or column (1), which adds to a corner's."""
    steps = map_of(frag).lane_steps
    lane = lane_number(b, len(steps))
    parts: list[str] = []
    bit = 0
    while bit < len(steps):
        step, first = steps[bit][axis], bit
        while bit < len(steps) and steps[bit][axis] == step << (bit - first) and step:
            bit += 1
        if bit == first:
            bit += 1
            continue
        key = ("field", lane, first, bit, step)
        parts.append(b.shared(key, lambda f=first, n=bit, s=step: _field(b, lane, f, n - f, s)))
    total = parts[0] if parts else "0"
    for part in parts[1:]:
        total = b.shared(("sum", total, part), lambda x=total, y=part: b.ins("add.s32", "r", x, y))
    return total


def lane_number(b: Body, bits: int) -> str:
    """The lane within the warp (5 bits) or the warpgroup (7)."""
    if bits <= 5:
        return b.once("laneid", "r", "mov.u32", "%laneid")
    tid = b.once("tid", "r", "mov.u32", "%tid.x")
    return b.once("warpgroup_lane", "r", "and.b32", tid, "127")


def _field(b: Body, lane: str, first: int, count: int, step: int) -> str:
    field = b.ins("bfe.u32", "r", lane, str(first), str(count))
    return field if step == 1 else b.ins("mul.lo.s32", "r", field, str(step))


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of memory: element (r, c) at first + r * pitch + c, the other way round where
    `trans`.
    """

    mem: str
    first: Operand
    pitch: Operand
    trans: bool
    swizzle: str | None

    @staticmethod
    def of(ins: Ins) -> Tile:
        swizzle = ins.attr("swizzle")
        return Tile(
            str(ins.attr("mem")),
            ins.args[0],
            ins.args[1],
            bool(ins.attr("trans")),
            None if swizzle is None else str(swizzle),
        )


# Element by element


def _start(b: Body, frag: Frag, tile: Tile) -> str:
    """The element index of the lane's element at corner (0, 0)."""
    row, column = (lane_coordinate(b, frag, axis) for axis in (0, 1))
    if tile.trans:
        row, column = column, row
    first, pitch = b.steady(tile.first), b.steady(tile.pitch)
    line = b.ins("mad.lo.s32", "r", row, pitch, first) if row != "0" else first
    return b.ins("add.s32", "r", line, column) if column != "0" else line


def _element(
    b: Body, frag: Frag, tile: Tile, scene: Scene, start: str, at: tuple[int, int]
) -> Place:
    """Where an element lies, from the index of the one at corner (0, 0)."""
    line, inner = at if not tile.trans else (at[1], at[0])
    decl = scene.memory.decl(tile.mem)
    size = ELEMENT_BYTES[decl.dtype]
    pitch = b.known(tile.pitch)
    if tile.swizzle is None and pitch is not None:
        base = b.shared(("tile", tile.mem, start), lambda: scene.memory.at(b, tile.mem, start))
        return Place(base, scene.memory.start(tile.mem) + (line * pitch + inner) * size)
    index = b.ins("mad.lo.s32", "r", b.one(tile.pitch), str(line), start) if line else start
    index = b.ins("add.s32", "r", index, str(inner)) if inner else index
    if tile.swizzle is not None:
        chunk = _chunk(b, tile, index, size)
        index = b.ins("xor.b32", "r", index, b.ins("shl.b32", "r", chunk, str(_shift(size))))
    return Place(scene.memory.at(b, tile.mem, index), scene.memory.start(tile.mem))


def _shift(size: int) -> int:
    """Bits from a 16-byte chunk's number to its first element's."""
    return (16 // size).bit_length() - 1


def _chunk(b: Body, tile: Tile, index: str, size: int) -> str:
    """What a swizzle xors into the chunk number of an element: its line, modulo 8."""
    if tile.swizzle == "128B":
        return b.ins("bfe.u32", "r", index, str((_LINE_NBYTES // size).bit_length() - 1), "3")
    pitch = b.known(tile.pitch)
    if pitch is not None and pitch & (pitch - 1) == 0:
        return b.ins("bfe.u32", "r", index, str(pitch.bit_length() - 1), "3")
    line = b.ins("div.u32", "r", index, b.one(tile.pitch))
    return b.ins("and.b32", "r", line, "7")


def _pairs_lie_together(b: Body, frag: Frag, tile: Tile) -> bool:
    """Whether elements 2i and 2i+1 are neighbours in memory, the first at an even index."""
    (r0, c0), (r1, c1) = corners(frag)[:2]
    along = (c1 - c0 == 1 and r0 == r1) != tile.trans
    return along and b.divisor(tile.first) % 2 == 0 and b.divisor(tile.pitch) % 2 == 0


def frag_load(b: Body, ins: Ins, scene: Scene) -> None:
    frag, tile = frag_of(ins.dsts[0]), Tile.of(ins)
    decl = scene.memory.decl(tile.mem)
    if decl.dtype != frag.dtype:
        raise DtypeLowering(f"ptx loads fragments of {frag.dtype} from such alone: not from words")
    if isinstance(decl, Shared) and ELEMENT_BYTES[frag.dtype] == 2 and _fits_lines(b, tile):
        b.put_raw(ins.dsts[0], _by_matrix(b, frag, tile, scene))
        return
    op = "ld.shared" if isinstance(decl, Shared) else "ld.global"
    start, out = _start(b, frag, tile), list[str]()
    step = 2 if _pairs_lie_together(b, frag, tile) else 1
    for corner in corners(frag)[::step]:
        out += read(b, op, _element(b, frag, tile, scene, start, corner), decl, step)
    b.put(ins.dsts[0], out)


def frag_store(b: Body, ins: Ins, scene: Scene) -> None:
    frag, tile = frag_of(ins.args[2]), Tile.of(ins)
    decl = scene.memory.decl(tile.mem)
    is_shared = isinstance(decl, Shared)
    if is_shared and ELEMENT_BYTES[frag.dtype] == 2 and b.arch >= 90 and _fits_lines(b, tile):
        _store_by_matrix(b, frag, tile, scene, b.raw(ins.args[2]))
        return
    op = "st.shared" if is_shared else "st.global"
    start, values = _start(b, frag, tile), b.get(ins.args[2])
    step = 2 if _pairs_lie_together(b, frag, tile) else 1
    for n, corner in enumerate(corners(frag)[::step]):
        at = _element(b, frag, tile, scene, start, corner)
        write(b, op, at, decl, values[step * n : step * n + step])


# Four 8x8 blocks at a time


def _fits_lines(b: Body, tile: Tile) -> bool:
    """Whether each line of 8 elements starts at a multiple of 16 bytes, as the matrix loads ask."""
    return b.divisor(tile.first) % 8 == 0 and b.divisor(tile.pitch) % 8 == 0


def _blocks(frag: Frag) -> tuple[list[tuple[int, int]], bool]:
    """Corner of the 8x8 block of each b32 register, and whether a pair runs along a column."""
    points = corners(frag)
    down = points[1][0] != points[0][0]
    return points[::2], down


def _groups(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(first, count) of runs of 4, 2 or 1 blocks whose corners are base + bit sums."""
    out: list[tuple[int, int]] = []
    at = 0
    while at < len(blocks):
        count = 4 if at + 4 <= len(blocks) else 2 if at + 2 <= len(blocks) else 1
        if count == 4:
            p, q, r, s = blocks[at : at + 4]
            if any(q[i] + r[i] - p[i] != s[i] for i in (0, 1)):
                count = 2
        out.append((at, count))
        at += count
    return out


def _matrix_address(b: Body, tile: Tile, scene: Scene, blocks: list[tuple[int, int]]) -> Place:
    """Where the lane's own line starts: lane 8j + i names line i of block j."""
    lines = [(c, r) if tile.trans else (r, c) for r, c in blocks]
    (line0, inner0), size = lines[0], 2
    lane = lane_number(b, 5)
    line = b.shared(("low", lane), lambda: b.ins("and.b32", "r", lane, "7"))
    inner = "0"
    for bit, other in ((3, 1), (4, 2)):
        if other >= len(lines):
            continue
        step = (lines[other][0] - line0, lines[other][1] - inner0)
        if step[0]:
            line = _plus_bit(b, line, lane, bit, step[0])
        if step[1]:
            inner = _plus_bit(b, inner, lane, bit, step[1])
    pitch, first = b.steady(tile.pitch), b.steady(tile.first)
    known = b.known(tile.pitch)

    def start() -> str:
        at = b.ins("mad.lo.s32", "r", line, pitch, first)
        return at if inner == "0" else b.ins("add.s32", "r", at, inner)

    index = b.shared(("lines", tile.mem, line, inner, pitch, first), start)
    if known is None:
        index = b.ins("mad.lo.s32", "r", pitch, str(line0), index) if line0 else index
        far, near = 0, inner0
    else:
        far, near = line0 * known * size, inner0
    if tile.swizzle is None:
        base = b.shared(("tile", tile.mem, index), lambda: scene.memory.at(b, tile.mem, index))
        return Place(base, scene.memory.start(tile.mem) + far + near * size)
    return _swizzled(b, tile, scene, index, (far, near * size), line0)


def _plus_bit(b: Body, value: str, lane: str, bit: int, step: int) -> str:
    def make() -> str:
        field = b.ins("bfe.u32", "r", lane, str(bit), "1")
        if value == "0":
            return b.ins("mul.lo.s32", "r", field, str(step))
        return b.ins("mad.lo.s32", "r", field, str(step), value)

    return b.shared(("bit", value, lane, bit, step), make)


def _swizzled(
    b: Body, tile: Tile, scene: Scene, index: str, beyond: tuple[int, int], line0: int
) -> Place:
    """A line's place under a swizzle. Whole groups of 8 lines beyond stay beyond; what is beyond
    within a line of 128 bytes goes below the xor.
    """
    far, near = beyond
    in_line = tile.swizzle != "128B" or b.divisor(tile.first) % (_LINE_NBYTES // 2) == 0
    if line0 % 8 or far % (8 * _LINE_NBYTES) or not in_line:
        moved = b.ins("add.s32", "r", index, str((far + near) // 2))
        chunk = _chunk(b, tile, moved, 2)
        index = b.ins("xor.b32", "r", moved, b.ins("shl.b32", "r", chunk, "3"))
        return Place(scene.memory.at(b, tile.mem, index), scene.memory.start(tile.mem))
    if tile.swizzle == "128B" and near >= _LINE_NBYTES:
        moved = b.ins("add.s32", "r", index, str(near // 2))
        index, near = moved, 0
    chunk = b.shared(("chunk", tile.mem, index), lambda: _chunk(b, tile, index, 2))
    mask = b.shared(("mask", chunk), lambda: b.ins("shl.b32", "r", chunk, "4"))
    base = b.shared(("tile", tile.mem, index), lambda: scene.memory.at(b, tile.mem, index))
    inside = near % _LINE_NBYTES

    def make() -> str:
        moved = b.ins("add.s32", "r", base, str(inside)) if inside else base
        return b.ins("xor.b32", "r", moved, mask)

    at = b.shared(("swizzled", base, inside, mask), make)
    return Place(at, scene.memory.start(tile.mem) + far + near - inside)


def _by_matrix(b: Body, frag: Frag, tile: Tile, scene: Scene) -> list[str]:
    blocks, down = _blocks(frag)
    trans = ".trans" if down != tile.trans else ""
    out: list[str] = []
    for first, count in _groups(blocks):
        at = _matrix_address(b, tile, scene, blocks[first : first + count])
        got = [b.temp("r") for _ in range(count)]
        b.do(f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{', '.join(got)}}}, {at}")
        out += got
    return out


def _store_by_matrix(b: Body, frag: Frag, tile: Tile, scene: Scene, pairs: tuple[str, ...]) -> None:
    blocks, down = _blocks(frag)
    trans = ".trans" if down != tile.trans else ""
    for first, count in _groups(blocks):
        at = _matrix_address(b, tile, scene, blocks[first : first + count])
        part = ", ".join(pairs[first : first + count])
        b.do(f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {at}, {{{part}}}")
