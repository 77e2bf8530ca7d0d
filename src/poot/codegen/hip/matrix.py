"""Fragments and products: MFMA on CDNA (waves of 64), WMMA on RDNA 3 (waves of 32).

A fragment is a struct of one lane's elements; where each lies is the row of `frags.LANE_MAPS`. A
product of larger fragments is one instruction a base tile, summed along k in order.
Sources: the AMD matrix instruction calculator for V_MFMA_F32_16X16X16_F16 and its kin; RDNA 3 ISA,
section 7.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from poot.codegen.hip.body import Body
from poot.codegen.hip.types import kind_of, loaded, rounded, stored
from poot.codegen.kir.frags import AMD_FAMILIES, Step, amd_family, coords, elems_per_lane, lane_map
from poot.codegen.kir.nodes import ELEMENT_BYTES, Frag, Ins, Operand, Type
from poot.errors import DtypeLowering


def matrix_dtypes(arch: str, wave: int) -> tuple[str, ...]:
    """The 16-bit dtypes of which a wave multiplies 16x16 matrices."""
    return ("bf16", "f16") if amd_family(arch, wave) else ()


_FOLD = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}"}
_EXTREME = {"max": "__builtin_fmaxf({0}, {1})", "min": "__builtin_fminf({0}, {1})"}


def frag_of(b: Body, type: Type) -> Frag:
    """The fragment type. Raises DtypeLowering where the device's matrix unit isn't its family's."""
    assert isinstance(type, Frag), type
    if type.family not in AMD_FAMILIES:
        raise DtypeLowering(f"hip has no {type.family} fragments: ask for mfma or wmma")
    wave, archs = AMD_FAMILIES[type.family]
    arch = b.limits.arch.partition(":")[0]
    if arch not in archs or b.wave != wave:
        raise DtypeLowering(
            f"{type.family} fragments are of {', '.join(archs)} in waves of {wave}: "
            f"{b.limits.name} is {arch or 'of no named architecture'}, waves of {b.wave}"
        )
    return type


def _linear(steps: Sequence[Step], axis: int, lane: str) -> str:
    """The part of a row (axis 0) or column (1) that the lane number gives, as an expression."""
    parts: list[str] = []
    at = 0
    while at < len(steps):
        first = steps[at][axis]
        count = 1
        while at + count < len(steps) and first and steps[at + count][axis] == first << count:
            count += 1
        if first:
            field = f"({lane} >> {at} & {(1 << count) - 1})"
            parts.append(field if first == 1 else f"{field} * {first}")
        at += count
    return " + ".join(parts) or "0"


def _plus(text: str, more: int) -> str:
    return f"{text} + {more}" if more else text


class _Place:
    """Row and column of each element of a fragment in this lane, as expressions."""

    def __init__(self, b: Body, frag: Frag) -> None:
        row = lane_map(frag)
        assert row is not None, frag
        lane = f"((int)threadIdx.x % {b.wave})"
        self._base = tuple(_linear(row.lane_steps, axis, lane) for axis in (0, 1))
        self._more = coords(frag)
        self.count = elems_per_lane(frag)

    def base(self, axis: int) -> str:
        return self._base[axis]

    def more(self, axis: int, at: int) -> int:
        """What element `at` adds to the lane's own row or column."""
        return int(self._more[axis][at, 0])


def fill(b: Body, ins: Ins) -> None:
    frag = frag_of(b, ins.dsts[0].type)
    b.put(ins.dsts[0], [b.one(ins.args[0])] * elems_per_lane(frag))


def pack(b: Body, ins: Ins) -> None:
    frag_of(b, ins.dsts[0].type)
    b.put(ins.dsts[0], [b.one(a) for a in ins.args])


def coord(b: Body, ins: Ins) -> None:
    place = _Place(b, frag_of(b, ins.dsts[0].type))
    axis = _axis(ins)
    b.put(ins.dsts[0], [_plus(place.base(axis), place.more(axis, n)) for n in range(place.count)])


def _axis(ins: Ins) -> int:
    axis = ins.attr("axis")
    assert isinstance(axis, int), ins
    return axis


def _addresses(b: Body, ins: Ins, frag: Frag) -> list[str]:
    """Where each of the lane's elements lies in memory."""
    place = _Place(b, frag)
    start, pitch = b.one(ins.args[0]), b.one(ins.args[1])
    far, near = (1, 0) if ins.attr("trans") else (0, 1)
    swizzle, nbytes = ins.attr("swizzle"), ELEMENT_BYTES[frag.dtype]
    out: list[str] = []
    for n in range(place.count):
        row = f"({_plus(place.base(far), place.more(far, n))})"
        at = f"{start} + {row} * {pitch} + {_plus(place.base(near), place.more(near, n))}"
        if swizzle == "128B":
            b.use("swizzle_128b")
            at = f"swizzle_128b({at}, {nbytes})"
        elif swizzle == "row":
            b.use("swizzle_row")
            at = f"swizzle_row({at}, {pitch}, {nbytes})"
        out.append(at)
    return out


def load(b: Body, ins: Ins) -> None:
    frag = frag_of(b, ins.dsts[0].type)
    name, decl = b.memory(ins.attr("mem"))
    b.use_dtype(frag.dtype)
    places = _addresses(b, ins, frag)
    if decl.dtype != frag.dtype:  # u32 words of two elements
        elements = [_half(frag.dtype, name, at) for at in places]
    else:
        elements = [f"{name}[{at}]" for at in places]
    b.put(ins.dsts[0], [loaded(frag.dtype, element) for element in elements])


def _half(dtype: str, name: str, at: str) -> str:
    """The element `at` of words of two, as it lies in memory: shorts and _Float16 alike."""
    kind = "_Float16" if dtype == "f16" else "unsigned short"
    return f"((const {kind}*){name})[{at}]"


def store(b: Body, ins: Ins) -> None:
    value: Operand = ins.args[2]
    frag = frag_of(b, value.type)
    name, _ = b.memory(ins.attr("mem"))
    b.use_dtype(frag.dtype)
    for at, lane in zip(_addresses(b, ins, frag), b.lanes(value), strict=True):
        b.line(f"{name}[{at}] = {stored(frag.dtype, lane)};")


def cast(elements: Callable[[Body, Ins], None]) -> Callable[[Body, Ins], None]:
    """Element by element, within one family and lane map."""

    def row(b: Body, ins: Ins) -> None:
        frag_of(b, ins.args[0].type)
        elements(b, ins)

    return row


def columns(b: Body, ins: Ins) -> None:
    """The columns from `at` on: the base tiles of each row of tiles that hold them."""
    frag, part = frag_of(b, ins.args[0].type), frag_of(b, ins.dsts[0].type)
    at, row = ins.attr("at"), lane_map(frag)
    assert isinstance(at, int), ins
    assert row is not None, frag
    across, first, count = (n // row.tile[1] for n in (frag.n, at, part.n))
    lanes, out = b.lanes(ins.args[0]), list[str]()
    for down in range(frag.m // row.tile[0]):
        start = (down * across + first) * row.elems
        out += lanes[start : start + count * row.elems]
    b.put(ins.dsts[0], out)


def _lines(frag: Frag, axis: int) -> list[int]:
    """For each element the number of its row (axis 1) or column (0) among those that a lane
    holds."""
    own = coords(frag)[0 if axis == 1 else 1][:, 0]
    return [int(n) for n in np.searchsorted(np.unique(own), own)]


def _fold(dtype: str, kind: str) -> str:
    if kind in _FOLD:
        return _FOLD[kind]
    if kind_of(dtype) == "float":
        return _EXTREME[kind]
    sign = ">" if kind == "max" else "<"
    return f"({{0}} {sign} {{1}} ? {{0}} : {{1}})"


def reduce(b: Body, ins: Ins) -> None:
    frag = frag_of(b, ins.args[0].type)
    b.use_dtype(frag.dtype)
    text = _fold(frag.dtype, str(ins.attr("kind")))
    totals: dict[int, str] = {}
    for line, lane in zip(_lines(frag, _axis(ins)), b.lanes(ins.args[0]), strict=True):
        old = totals.get(line)
        totals[line] = lane if old is None else rounded(frag.dtype, text.format(old, lane))
    b.put(ins.dsts[0], [totals[line] for line in sorted(totals)])


def apply(b: Body, ins: Ins) -> None:
    frag = frag_of(b, ins.args[0].type)
    b.use_dtype(frag.dtype)
    text, by = _fold(frag.dtype, str(ins.attr("kind"))), b.lanes(ins.args[1])
    pairs = zip(b.lanes(ins.args[0]), _lines(frag, _axis(ins)), strict=True)
    b.put(ins.dsts[0], [rounded(frag.dtype, text.format(x, by[line])) for x, line in pairs])


# (family, dtype of a and b) -> the builtin, and the C++ type that it takes its operands' elements
# in. "bits" are the elements' own bits as shorts.
_PRODUCTS = {
    ("mfma", "f16"): ("__builtin_amdgcn_mfma_f32_16x16x16f16", "_Float16"),
    ("mfma", "bf16"): ("__builtin_amdgcn_mfma_f32_16x16x16bf16_1k", "short"),
    ("mfma", "f32"): ("__builtin_amdgcn_mfma_f32_16x16x4f32", "float"),
    ("wmma", "f16"): ("__builtin_amdgcn_wmma_f32_16x16x16_f16_w32", "_Float16"),
    ("wmma", "bf16"): ("__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32", "short"),
}
_TILE = {"mfma": (4, 4), "wmma": (16, 8)}  # elements a lane of an operand's tile, of the result's


def _instruction(b: Body, family: str, dtype: str) -> str:
    """The name of a function that multiplies one base tile: acc + a x b."""
    builtin, element = _PRODUCTS[family, dtype]
    given, held = _TILE[family]
    name = f"{family}_{dtype}"
    operand, total = b.struct("f32", given), b.struct("f32", held)
    b.use_dtype(dtype)
    lines = [f"typedef float total_t __attribute__((vector_size({4 * held})));"]
    sums = ", ".join(f"c.s[{n}]" for n in range(held))
    lines.append(f"total_t t = {{{sums}}};")
    extra = ", 0, 0, 0" if family == "mfma" else ""
    if dtype == "f32":  # four columns of a with four rows of b at a time
        lines += [f"t = {builtin}(a.s[{n}], b.s[{n}], t{extra});" for n in range(given)]
    else:
        lines.append(f"typedef {element} part_t __attribute__((vector_size({2 * given})));")
        for x in ("a", "b"):
            parts = [f"{x}.s[{n}]" for n in range(given)]
            cast_to = "(short)bf16_bits({})" if dtype == "bf16" else "(_Float16){}"
            lines.append(f"const part_t {x}_ = {{{', '.join(cast_to.format(p) for p in parts)}}};")
        lines.append(f"t = {builtin}(a_, b_, t{extra});")
    lines.append(f"return {total}{{{', '.join(f't[{n}]' for n in range(held))}}};")
    args = f"const {operand}& a, const {operand}& b, const {total}& c"
    b.function(name, total, args, lines)
    return name


def product(b: Body, ins: Ins) -> None:
    left, right, acc = (frag_of(b, x.type) for x in ins.args)
    if left.dtype != right.dtype or (left.family, left.dtype) not in _PRODUCTS:
        raise DtypeLowering(f"{left.family} multiplies no {left.dtype} by {right.dtype}")
    if acc.dtype != "f32":
        raise DtypeLowering(f"{left.family} sums in f32: not in {acc.dtype}")
    name = _instruction(b, left.family, left.dtype)
    given, held = _TILE[left.family]
    operand, total = b.struct("f32", given), b.struct("f32", held)
    a, x, c = (b.lanes(operand_) for operand_ in ins.args)
    inner, across = left.n // 16, acc.n // 16

    def tile(parts: list[str], struct: str, number: int, size: int) -> str:
        return f"{struct}{{{', '.join(parts[number * size : (number + 1) * size])}}}"

    results: list[str] = []
    for number in range(acc.m // 16 * across):
        row, column = number // across, number % across
        made = f"{b.register(ins.dsts[0])}_{number}"
        b.line(f"{total} {made} = {tile(c, total, number, held)};")
        for k in range(inner):
            one = tile(a, operand, row * inner + k, given)
            other = tile(x, operand, k * across + column, given)
            b.line(f"{made} = {name}({one}, {other}, {made});")
        results += [f"{made}.s[{n}]" for n in range(held)]
    b.put(ins.dsts[0], results)
