"""How each kernel IR op is spelled: one row an op, and a refusal with its reason is a row too.

A row writes lines into a Body. Vectors and fragments are spelled scalar by scalar.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.hip import matrix, memory, subgroup
from poot.codegen.hip.body import Body
from poot.codegen.hip.types import (
    C_TYPES,
    HELD_IN,
    IN_MEMORY,
    dtype_of,
    kind_of,
    lanes_of,
    literal,
    rounded,
)
from poot.codegen.kir.nodes import ELEMENT_BYTES, Ins, Lit, Ty
from poot.codegen.kir.refusals import refused
from poot.errors import DtypeLowering

Row = Callable[[Body, Ins], None]


def _spread(b: Body, ins: Ins) -> list[tuple[str, ...]]:
    """For each scalar of the result, the operands' scalars; one scalar stands for all."""
    count = lanes_of(ins.dsts[0].type)
    parts = [b.lanes(a) for a in ins.args]
    return list(zip(*(p * count if len(p) == 1 else p for p in parts), strict=True))


def _pick(ins: Ins, names: dict[str, str]) -> tuple[str, str]:
    """The first operand's dtype, and the spelling for its kind."""
    dtype = dtype_of(ins.args[0].type)
    text = names.get(kind_of(dtype))
    if text is None:
        raise DtypeLowering(f"hip has this op for {', '.join(names)}: not for {dtype}")
    return dtype, text


def spelled(*calls: str, **names: str) -> Row:
    """Each scalar alone: `{0}`, `{1}`, `{2}` are the operands. `calls` are functions of the
    prelude."""

    def row(b: Body, ins: Ins) -> None:
        dtype, text = _pick(ins, names)
        b.use(*calls)
        b.use_dtype(dtype)
        b.put(ins.dsts[0], [rounded(dtype, text.format(*one)) for one in _spread(b, ins)])

    return row


def compared(sign: str) -> Row:
    """A bool for each scalar; with a NaN, C++ says as the kernel IR does."""

    def row(b: Body, ins: Ins) -> None:
        b.put(ins.dsts[0], [f"{x} {sign} {y}" for x, y in _spread(b, ins)])

    return row


def _isnan(b: Body, ins: Ins) -> None:
    _pick(ins, {"float": ""})
    b.use("is_nan")
    b.put(ins.dsts[0], [f"is_nan({x})" for (x,) in _spread(b, ins)])


def _negative(b: Body, ins: Ins) -> None:
    _, text = _pick(ins, {"float": "-{0}", "int": "-{0}"})
    parts = [x for (x,) in _spread(b, ins)]
    b.put(ins.dsts[0], [text.format(f"({x})" if x.startswith("-") else x) for x in parts])


def _select(b: Body, ins: Ins) -> None:
    """Lane by lane: clang keeps a struct that it chooses as a whole in memory of the lane's own."""
    b.put(ins.dsts[0], [f"{c} ? {x} : {y}" for c, x, y in _spread(b, ins)])


def _converted(source: str, target: str, value: str) -> str:
    """A register scalar of one dtype as one of another."""
    have, want = HELD_IN[source], HELD_IN[target]
    if want == "bool":
        return value if have == "bool" else f"{value} != {literal(Lit(0, Ty(source)))}"
    if have == "bool":
        return f"{value} ? {literal(Lit(1, Ty(target)))} : {literal(Lit(0, Ty(target)))}"
    made = value if have == want else f"({C_TYPES[want]}){value}"
    # A narrow dtype's every value is one of the dtype it is held in.
    return made if source == target else rounded(target, made)


def cast(b: Body, ins: Ins) -> None:
    source, target = dtype_of(ins.args[0].type), dtype_of(ins.dsts[0].type)
    b.use_dtype(target)
    b.put(ins.dsts[0], [_converted(source, target, x) for x in b.lanes(ins.args[0])])


def _bits(b: Body, dtype: str, lane: str) -> str:
    """A scalar's bits in the low end of an unsigned, zeros above."""
    if dtype in ("f16", "bf16", "f8e4m3"):
        b.use(f"{dtype}_bits")
        return f"{dtype}_bits({lane})"
    if dtype in ("i8", "u8"):
        return f"((unsigned){lane} & 0xffu)"
    if dtype == "i32":
        return f"(unsigned){lane}"
    return lane if dtype == "u32" else f"__builtin_bit_cast(unsigned, {lane})"


def _from_bits(b: Body, dtype: str, bits: str) -> str:
    """The scalar whose bits lie in the low end of an unsigned; what lies above is ignored."""
    if dtype in ("f16", "f8e4m3", "bf16"):
        b.use(f"{dtype}_value")
        return f"{dtype}_value({bits})"
    if dtype in ("i8", "u8"):
        return f"({C_TYPES[HELD_IN[dtype]]})({IN_MEMORY[dtype]})({bits})"
    if dtype in ("u32", "i32"):
        return f"({C_TYPES[dtype]})({bits})"
    return f"__builtin_bit_cast(float, {bits})"


def _words(b: Body, dtype: str, lanes: list[str]) -> list[str]:
    """The scalars as they lie in memory, as unsigned words."""
    if ELEMENT_BYTES[dtype] == 8:
        halves = ("(unsigned){0}", "(unsigned)((unsigned long long){0} >> 32)")
        return [half.format(lane) for lane in lanes for half in halves]
    held, size = 4 // ELEMENT_BYTES[dtype], 8 * ELEMENT_BYTES[dtype]
    parts = [_bits(b, dtype, lane) for lane in lanes]
    words: list[str] = []
    for first in range(0, len(parts), held):
        group = parts[first : first + held]
        shifted = [f"{p} << {size * n}" if n else p for n, p in enumerate(group)]
        words.append(" | ".join(shifted))
    return words


def _unpacked(b: Body, dtype: str, lanes: int, words: list[str]) -> list[str]:
    """The first scalars that lie in the words, which are names."""
    if ELEMENT_BYTES[dtype] == 8:
        pairs = zip(words[::2], words[1::2], strict=True)
        return [f"({C_TYPES[dtype]})((unsigned long long){high} << 32 | {low})"
                for low, high in pairs]  # fmt: skip
    held, size = 4 // ELEMENT_BYTES[dtype], 8 * ELEMENT_BYTES[dtype]
    return [
        _from_bits(b, dtype, f"{words[n // held]} >> {size * (n % held)}" if n % held else
                   words[n // held])
        for n in range(lanes)
    ]  # fmt: skip


def _bitcast(b: Body, ins: Ins) -> None:
    source, target = ins.args[0].type, ins.dsts[0].type
    old, new = dtype_of(source), dtype_of(target)
    lanes = b.lanes(ins.args[0])
    if old == new:
        b.put_whole(ins.dsts[0], b.whole(ins.args[0]))
    elif {old, new} <= {"f32", "i32", "u32"} or {old, new} <= {"i64", "u64"}:
        b.put(ins.dsts[0], [f"__builtin_bit_cast({C_TYPES[new]}, {x})" for x in lanes])
    else:
        words = [f"({w})" for w in _words(b, old, lanes)]
        b.put(ins.dsts[0], _unpacked(b, new, lanes_of(target), words))


def _set(b: Body, ins: Ins) -> None:
    dst, value = ins.dsts[0], ins.args[0]
    b.put_whole(dst, b.whole(value))


def _undef(b: Body, ins: Ins) -> None:
    b.declare(ins.dsts[0])


def _vec(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [b.one(a) for a in ins.args])


def _number(ins: Ins, name: str) -> int:
    value = ins.attr(name)
    assert isinstance(value, int), ins
    return value


def _extract(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [b.lanes(ins.args[0])[_number(ins, "at")]])


def _insert(b: Body, ins: Ins) -> None:
    lanes = b.lanes(ins.args[0])
    lanes[_number(ins, "at")] = b.one(ins.args[1])
    b.put(ins.dsts[0], lanes)


def _lane(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], ["(int)threadIdx.x"])


def _on_axis(what: str) -> Row:
    def row(b: Body, ins: Ins) -> None:
        b.put(ins.dsts[0], [f"(int){what}.{'xyz'[_number(ins, 'axis')]}"])

    return row


def _imm(b: Body, ins: Ins) -> None:
    b.put(ins.dsts[0], [b.immediate(ins.attr("name"))])


def _barrier(b: Body, ins: Ins) -> None:
    scope = ins.attr("scope")
    if scope == "group":
        b.line("__syncthreads();")
    elif scope == "subgroup":
        b.use("wave_barrier")
        b.line("wave_barrier();")
    else:
        raise DtypeLowering(f"hip barriers are of a group or a subgroup: {scope}")


def _fence(b: Body, ins: Ins) -> None:
    calls = {"group": "__threadfence_block();", "device": "__threadfence();"}
    scope = str(ins.attr("scope"))
    if scope not in calls:
        raise DtypeLowering(f"hip fences are of a group or the device: {scope}")
    b.line(calls[scope])


def _each(text: str) -> Row:
    return spelled(float=text, int=text, uint=text)


def _floats(text: str, *calls: str) -> Row:
    return spelled(*calls, float=text)


# Why there are none of these: a kind of kir.refusals, or several alike.
_LACKS = {
    "copies": "its copies into workgroup memory are loads and stores",
    "phases": "it has no barriers with phases",
    "named": "its barriers are of a whole group or a wave",
    "maps": "it has no tensor maps",
    "moves": "its fragments keep the lane map of their role",
    "codes": "bytes become f32 by shifts there",
    "warpgroups": "no AMD matrix unit reads workgroup memory by itself",
    "order": "launches of a stream follow one another",
}

HIP: dict[str, Row] = {
    **refused("hip", _LACKS),
    "set": _set,
    "agree": _set,
    "undef": _undef,
    "add": _each("{0} + {1}"),
    "sub": _each("{0} - {1}"),
    "mul": _each("{0} * {1}"),
    "mulhi": spelled(uint="(unsigned)((unsigned long long){0} * {1} >> 32)"),
    "div": _each("{0} / {1}"),
    "rem": spelled(int="{0} % {1}", uint="{0} % {1}"),
    "fma": _floats("__builtin_fmaf({0}, {1}, {2})"),
    "neg": _negative,
    "abs": spelled(float="__builtin_fabsf({0})", int="{0} < 0 ? -({0}) : {0}", uint="{0}"),
    "min": spelled(float="__builtin_fminf({0}, {1})", int="{0} < {1} ? {0} : {1}",
                   uint="{0} < {1} ? {0} : {1}"),
    "max": spelled(float="__builtin_fmaxf({0}, {1})", int="{0} > {1} ? {0} : {1}",
                   uint="{0} > {1} ? {0} : {1}"),
    "nanmin": _floats("nan_min({0}, {1})", "nan_min"),
    "nanmax": _floats("nan_max({0}, {1})", "nan_max"),
    "floor": _floats("__builtin_floorf({0})"),
    "rint": _floats("__builtin_rintf({0})"),
    "sqrt": _floats("__builtin_sqrtf({0})"),
    "rsqrt": _floats("1.0f / __builtin_sqrtf({0})"),
    "rcp": _floats("1.0f / {0}"),
    "exp2": _floats("__builtin_exp2f({0})"),
    "log2": _floats("__builtin_log2f({0})"),
    "isnan": _isnan,
    "and": spelled(int="{0} & {1}", uint="{0} & {1}", bool="{0} && {1}"),
    "or": spelled(int="{0} | {1}", uint="{0} | {1}", bool="{0} || {1}"),
    "xor": spelled(int="{0} ^ {1}", uint="{0} ^ {1}", bool="{0} != {1}"),
    "not": spelled(int="~{0}", uint="~{0}", bool="!{0}"),
    "shl": _each("{0} << {1}"),
    "shr": _each("{0} >> {1}"),
    "eq": compared("=="),
    "ne": compared("!="),
    "lt": compared("<"),
    "le": compared("<="),
    "gt": compared(">"),
    "ge": compared(">="),
    "select": _select,
    "cast": cast,
    "bitcast": _bitcast,
    "vec": _vec,
    "extract": _extract,
    "insert": _insert,
    "lane": _lane,
    "group_id": _on_axis("blockIdx"),
    "num_groups": _on_axis("gridDim"),
    "subgroup_id": subgroup.subgroup_id,
    "subgroup_lane": subgroup.subgroup_lane,
    "imm": _imm,
    "load": memory.load,
    "prefetch": memory.prefetch,
    "store": memory.store,
    "atomic": memory.atomic,
    "barrier": _barrier,
    "fence": _fence,
    "shuffle": subgroup.shuffle,
    "shuffle_xor": subgroup.shuffle_xor,
    "subgroup_reduce": subgroup.reduce,
    "subgroup_broadcast": subgroup.broadcast,
    "vote_any": subgroup.vote("any"),
    "vote_all": subgroup.vote("all"),
    "ballot": subgroup.ballot,
    "frag_fill": matrix.fill,
    "frag_pack": matrix.pack,
    "frag_coord": matrix.coord,
    "frag_load": matrix.load,
    "frag_store": matrix.store,
    "frag_cast": matrix.cast(cast),
    "frag_slice": matrix.columns,
    "frag_reduce": matrix.reduce,
    "frag_apply": matrix.apply,
    "mma": matrix.product,
    "elect": subgroup.elect,
}  # fmt: skip
