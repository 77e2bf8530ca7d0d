"""How each kernel IR op is spelled: one row an op, and a refusal with its reason is a row too.

A row writes into a Body, on scalars where the result is held as one and on vectors over the lanes
where it isn't.
"""

from __future__ import annotations

from collections.abc import Callable

from poot.codegen.kir.nodes import Frag, Ins
from poot.codegen.kir.refusals import refused
from poot.codegen.llvm import subgroup
from poot.codegen.llvm.body import HELD_IN, UNSIGNED, Body, overload, register_type
from poot.codegen.llvm.math import exp2, fma, log2
from poot.codegen.llvm.memory import atomic, load, prefetch, store
from poot.codegen.llvm.scene import Scene
from poot.codegen.llvm.types import convert, from_bits, from_words, rounded, to_bits, to_words
from poot.errors import DtypeLowering

Row = Callable[[Body, Ins, Scene], None]
# (body, dtype of the first operand, one value an operand, wide) -> value
Scalar = Callable[[Body, str, list[str], bool], str]


def elementwise(scalar: Scalar) -> Row:
    """A row that does each element alone; `scalar` gets the first operand's dtype."""

    def row(b: Body, ins: Ins, scene: Scene) -> None:
        wide = b.is_wide(ins.dsts[0])
        parts = [b.get(a, wide) for a in ins.args]
        count = register_type(ins.dsts[0]).lanes
        spread = [p * count if len(p) == 1 else p for p in parts]
        dtype = register_type(ins.args[0]).dtype
        made = [scalar(b, dtype, list(one), wide) for one in zip(*spread, strict=True)]
        b.put(ins.dsts[0], made, wide)

    return row


def kind_of(dtype: str) -> str:
    """ "float", "int", "uint" or "bool": which of LLVM's instructions a dtype takes."""
    held = HELD_IN[dtype]
    if held in ("float", "i1"):
        return "float" if held == "float" else "bool"
    return "uint" if dtype in UNSIGNED else "int"


def by_kind(op: str, **names: str) -> Scalar:
    """The instruction for the dtype's kind, or the intrinsic where its name has a dot."""

    def scalar(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
        name = names.get(kind_of(dtype))
        if name is None:
            raise DtypeLowering(f"llvm has {op} for {', '.join(names)}: not for {dtype}")
        type = b.type(dtype, wide)
        if "." in name:
            given = [(type, x) for x in ids]
            made = b.call(f"{name}.{overload(type)}", type, given)
        else:
            made = b.ins(f"{name} {type} {', '.join(ids)}")
        return rounded(b, dtype, made, wide)

    return scalar


def compares(op: str, **names: str) -> Scalar:
    def scalar(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
        name = names.get(kind_of(dtype))
        if name is None:
            raise DtypeLowering(f"llvm has {op} for {', '.join(names)}: not for {dtype}")
        return b.ins(f"{name} {b.type(dtype, wide)} {ids[0]}, {ids[1]}")

    return scalar


def _less(dtype: str) -> str:
    return {"float": "fcmp olt", "int": "icmp slt"}.get(kind_of(dtype), "icmp ult")


def _extreme(b: Body, dtype: str, ids: list[str], wide: bool, most: bool) -> str:
    type = b.type(dtype, wide)
    x, y = ids[::-1] if most else ids
    return b.select(type, b.ins(f"{_less(dtype)} {type} {x}, {y}"), ids[0], ids[1], wide)


def _min(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    return _extreme(b, dtype, ids, wide, False)


def _max(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    return _extreme(b, dtype, ids, wide, True)


def _nan_extreme(most: bool) -> Scalar:
    """A NaN second operand comes out of the comparison; a NaN first one is put back."""

    def scalar(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
        type = b.type(dtype, wide)
        best = _extreme(b, dtype, ids, wide, most)
        is_nan = b.ins(f"fcmp uno {type} {ids[0]}, {ids[0]}")
        return b.select(type, is_nan, ids[0], best, wide)

    return scalar


def _is_nan(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    return b.ins(f"fcmp uno {b.type(dtype, wide)} {ids[0]}, {ids[0]}")


def _negate(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    type = b.type(dtype, wide)
    if kind_of(dtype) == "float":
        return b.ins(f"fneg {type} {ids[0]}")
    return b.ins(f"sub {type} {b.const(dtype, 0, wide)}, {ids[0]}")


def _absolute(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    type = b.type(dtype, wide)
    if kind_of(dtype) == "uint":
        return ids[0]
    if kind_of(dtype) == "float":
        return b.call(f"llvm.fabs.{overload(type)}", type, [(type, ids[0])])
    is_negative = b.ins(f"icmp slt {type} {ids[0]}, {b.const(dtype, 0, wide)}")
    return b.select(type, is_negative, _negate(b, dtype, ids, wide), ids[0], wide)


def _not(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    ones = b.const(dtype, True if HELD_IN[dtype] == "i1" else -1, wide)
    return rounded(b, dtype, b.ins(f"xor {b.type(dtype, wide)} {ids[0]}, {ones}"), wide)


def _over(root: bool) -> Scalar:
    """1 / a, or 1 / sqrt(a)."""

    def scalar(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
        type = b.type(dtype, wide)
        below = ids[0]
        if root:
            below = b.call(f"llvm.sqrt.{overload(type)}", type, [(type, below)])
        one = b.const("f32", 1.0, wide)
        return rounded(b, dtype, b.ins(f"fdiv {type} {one}, {below}"), wide)

    return scalar


def _fma(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    return rounded(b, dtype, fma(b, ids[0], ids[1], ids[2], wide), wide)


def _narrowed(make: Scalar) -> Scalar:
    def scalar(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
        return rounded(b, dtype, make(b, dtype, ids, wide), wide)

    return scalar


def _high_word(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    if dtype != "u32":
        raise DtypeLowering(f"mulhi is on u32: not on {dtype}")
    long = b.shaped("i64", wide)
    x, y = (convert(b, "zext", v, "i32", "i64", wide) for v in ids)
    high = b.ins(f"lshr {long} {b.ins(f'mul {long} {x}, {y}')}, {b.integer(32, wide, 'i64')}")
    return convert(b, "trunc", high, "i64", "i32", wide)


def _quotient(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    """Lanes divide through f64, which holds every 32-bit quotient: no lane can trap. i64 lanes
    that would trap divide by 1; the op gives them no meaning."""
    sign, type = ("u" if dtype in UNSIGNED else "s"), b.type(dtype, wide)
    x, y = ids
    if not wide or y.startswith("splat"):
        return b.ins(f"{sign}div {type} {x}, {y}")
    if HELD_IN[dtype] == "i64":
        bad = b.ins(f"icmp eq {type} {y}, {b.const('i64', 0, True)}")
        least = b.ins(f"icmp eq {type} {y}, {b.const('i64', -1, True)}")
        bad = b.ins(f"or {b.wide('i1')} {bad}, {least}") if sign == "s" else bad
        safe = b.select(type, bad, b.const("i64", 1, True), y)
        got = b.ins(f"{sign}div {type} {x}, {b.ins(f'freeze {type} {safe}')}")
        if sign == "u":
            return got
        return b.select(type, least, b.ins(f"sub {type} {b.const('i64', 0, True)}, {x}"), got)
    a, c = (convert(b, f"{sign}itofp", v, "i32", "double", True) for v in ids)
    ratio = b.ins(f"fdiv {b.wide('double')} {a}, {c}")
    return convert(b, f"fpto{sign}i", ratio, "double", "i32", True)


def _div(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    if kind_of(dtype) == "float":
        return rounded(b, dtype, b.ins(f"fdiv {b.type(dtype, wide)} {ids[0]}, {ids[1]}"), wide)
    return _quotient(b, dtype, ids, wide)


def _rem(b: Body, dtype: str, ids: list[str], wide: bool) -> str:
    type = b.type(dtype, wide)
    quotient = _quotient(b, dtype, ids, wide)
    whole = b.ins(f"mul {type} {quotient}, {ids[1]}")
    return b.ins(f"sub {type} {ids[0]}, {whole}")


def _select(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    cond_wide = wide and b.is_wide(ins.args[0])
    conds = b.get(ins.args[0], cond_wide)
    if isinstance(ins.dsts[0].type, Frag):
        raise DtypeLowering("llvm has no matrix fragments")
    ty = register_type(ins.dsts[0])
    conds = conds * ty.lanes if len(conds) == 1 else conds
    pairs = zip(conds, b.get(ins.args[1], wide), b.get(ins.args[2], wide), strict=True)
    type = b.type(ty.dtype, wide)
    b.put(ins.dsts[0], [b.select(type, c, x, y, cond_wide) for c, x, y in pairs], wide)


def _cast(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    was, now = register_type(ins.args[0]).dtype, register_type(ins.dsts[0]).dtype
    b.put(ins.dsts[0], [converted(b, was, now, x, wide) for x in b.get(ins.args[0], wide)], wide)


def converted(b: Body, was: str, now: str, x: str, wide: bool) -> str:
    """One value in another dtype."""
    held, target = HELD_IN[was], HELD_IN[now]
    if now == "bool":
        how = {"float": "fcmp une", "i1": "icmp ne"}.get(held, "icmp ne")
        return b.ins(f"{how} {b.shaped(held, wide)} {x}, {b.const(was, 0, wide)}")
    if was == "bool":
        if target == "float":
            return convert(b, "uitofp", x, "i1", "float", wide)
        return convert(b, "zext", x, "i1", target, wide)
    if held == "float":
        if target == "float":
            return x if now in (was, "f32") else rounded(b, now, x, wide)
        sign = "u" if now in UNSIGNED else "s"
        return rounded(b, now, convert(b, f"fpto{sign}i", x, "float", target, wide), wide)
    sign = "u" if was in UNSIGNED else "s"
    if target == "float":
        return rounded(b, now, convert(b, f"{sign}itofp", x, held, "float", wide), wide)
    if held != target:
        op = "trunc" if held == "i64" else ("zext" if sign == "u" else "sext")
        x = convert(b, op, x, held, target, wide)
    return rounded(b, now, x, wide)


def _bitcast(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    was, now = register_type(ins.args[0]), register_type(ins.dsts[0])
    parts = b.get(ins.args[0], wide)
    if HELD_IN[was.dtype] == HELD_IN[now.dtype] == "i64" or was == now:
        b.put(ins.dsts[0], parts, wide)
    elif was.lanes == now.lanes and "i64" not in (HELD_IN[was.dtype], HELD_IN[now.dtype]):
        made = [from_bits(b, now.dtype, to_bits(b, was.dtype, x, wide), wide) for x in parts]
        b.put(ins.dsts[0], made, wide)
    else:
        words = to_words(b, was.dtype, parts, wide)
        b.put(ins.dsts[0], from_words(b, now.dtype, now.lanes, words, wide), wide)


def _set(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    b.put(ins.dsts[0], b.get(ins.args[0], wide), wide)


def _undef(b: Body, ins: Ins, scene: Scene) -> None:
    b.slots_of(ins.dsts[0])


def _vec(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    b.put(ins.dsts[0], [b.one(a, wide) for a in ins.args], wide)


def _extract(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    b.put(ins.dsts[0], [b.get(ins.args[0], wide)[int(str(ins.attr("at")))]], wide)


def _insert(b: Body, ins: Ins, scene: Scene) -> None:
    wide = b.is_wide(ins.dsts[0])
    parts = list(b.get(ins.args[0], wide))
    parts[int(str(ins.attr("at")))] = b.one(ins.args[1], wide)
    b.put(ins.dsts[0], parts, wide)


def _lane(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [scene.base], False)


def _subgroup_id(b: Body, ins: Ins, scene: Scene) -> None:
    wide, size = b.is_wide(ins.dsts[0]), scene.subgroup
    lane = b.spread("i32", scene.base, 1) if wide else scene.base
    b.put(ins.dsts[0], [_over_subgroup(b, "udiv", lane, size, wide)], wide)


def _subgroup_lane(b: Body, ins: Ins, scene: Scene) -> None:
    wide, size = b.is_wide(ins.dsts[0]), scene.subgroup
    lane = b.spread("i32", scene.base, 1) if wide else scene.base
    b.put(ins.dsts[0], [_over_subgroup(b, "urem", lane, size, wide)], wide)


def _over_subgroup(b: Body, op: str, lane: str, size: int, wide: bool) -> str:
    return b.ins(f"{op} {b.shaped('i32', wide)} {lane}, {b.integer(size, wide)}")


def _group(names: str) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        table = scene.group if names == "group" else scene.grid
        b.put(ins.dsts[0], [table[int(str(ins.attr("axis")))]], False)

    return row


def _imm(b: Body, ins: Ins, scene: Scene) -> None:
    b.put(ins.dsts[0], [scene.imms[str(ins.attr("name"))]], False)


def _of_memory(fn: Callable[..., None]) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        fn(b, ins, scene.arrays[str(ins.attr("mem"))])

    return row


def _of_subgroup(fn: Callable[..., None]) -> Row:
    def row(b: Body, ins: Ins, scene: Scene) -> None:
        fn(b, ins, scene.subgroup)

    return row


def _barrier(b: Body, ins: Ins, scene: Scene) -> None:
    """Nothing: all lanes of a workgroup run together, one instruction after the other."""
    if isinstance(ins.attr("scope"), tuple):
        raise DtypeLowering("llvm has no named barriers: schedules with roles are for GPUs")


def _fence(b: Body, ins: Ins, scene: Scene) -> None:
    if ins.attr("scope") == "async":
        raise DtypeLowering("llvm has no async fence: nothing is copied behind a lane's back")
    if ins.attr("scope") == "device":
        b.do("fence seq_cst")


def _fold(b: Body, kind: str, dtype: str, ids: list[str], wide: bool) -> str:
    """One step of a subgroup's reduction."""
    return {"add": _ADD, "min": _narrowed(_min), "max": _narrowed(_max)}[kind](b, dtype, ids, wide)


_ADD = by_kind("add", float="fadd", int="add", uint="add")


def _bits_of(op: str, name: str) -> Row:
    return elementwise(by_kind(op, int=name, uint=name, bool=name))


def _order(op: str, how: str) -> Row:
    return elementwise(compares(op, float=f"fcmp o{how}", int=f"icmp s{how}", uint=f"icmp u{how}"))


def _float(op: str, name: str) -> Row:
    return elementwise(by_kind(op, float=name))


_MATRIX = "matrix units are asked for by GPU schedules alone"
# Why there are none of these: a kind of kir.refusals, or several alike.
_LACKS = {
    "copies": "nothing is copied behind a lane's back",
    "phases": "barriers with phases come with asynchronous copies",
    "named": "named barriers come with roles",
    "maps": "tensor maps are CUDA's",
    "fragments": _MATRIX,
    "moves": _MATRIX,
    "codes": "bytes become f32 by shifts there",
    "warpgroups": _MATRIX,
    "election": "only asynchronous schedules ask for one lane",
    "order": "launches are ordered by the backend",
}

LLVM: dict[str, Row] = {
    **refused("llvm", _LACKS),
    "set": _set,
    "undef": _undef,
    "add": elementwise(_ADD),
    "sub": elementwise(by_kind("sub", float="fsub", int="sub", uint="sub")),
    "mul": elementwise(by_kind("mul", float="fmul", int="mul", uint="mul")),
    "mulhi": elementwise(_high_word),
    "div": elementwise(_div),
    "rem": elementwise(_rem),
    "fma": elementwise(_fma),
    "neg": elementwise(_negate),
    "abs": elementwise(_absolute),
    "min": elementwise(_min),
    "max": elementwise(_max),
    "nanmin": elementwise(_nan_extreme(False)),
    "nanmax": elementwise(_nan_extreme(True)),
    "floor": _float("floor", "llvm.floor"),
    "rint": _float("rint", "llvm.rint"),
    "sqrt": _float("sqrt", "llvm.sqrt"),
    "rsqrt": elementwise(_over(True)),
    "rcp": elementwise(_over(False)),
    "exp2": elementwise(_narrowed(exp2)),
    "log2": elementwise(_narrowed(log2)),
    "isnan": elementwise(_is_nan),
    "and": _bits_of("and", "and"),
    "or": _bits_of("or", "or"),
    "xor": _bits_of("xor", "xor"),
    "not": elementwise(_not),
    "shl": elementwise(by_kind("shl", int="shl", uint="shl")),
    "shr": elementwise(by_kind("shr", int="ashr", uint="lshr")),
    "eq": elementwise(compares("eq", float="fcmp oeq", int="icmp eq", uint="icmp eq",
                               bool="icmp eq")),
    "ne": elementwise(compares("ne", float="fcmp une", int="icmp ne", uint="icmp ne",
                               bool="icmp ne")),
    "lt": _order("lt", "lt"),
    "le": _order("le", "le"),
    "gt": _order("gt", "gt"),
    "ge": _order("ge", "ge"),
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "vec": _vec,
    "extract": _extract,
    "insert": _insert,
    "lane": _lane,
    "group_id": _group("group"),
    "num_groups": _group("grid"),
    "subgroup_id": _subgroup_id,
    "subgroup_lane": _subgroup_lane,
    "imm": _imm,
    "load": _of_memory(load),
    "prefetch": _of_memory(prefetch),
    "store": _of_memory(store),
    "atomic": _of_memory(atomic),
    "barrier": _barrier,
    "fence": _fence,
    "shuffle": _of_subgroup(subgroup.shuffle),
    "shuffle_xor": _of_subgroup(subgroup.shuffle_xor),
    "subgroup_reduce": _of_subgroup(subgroup.reduce(_fold)),
    "subgroup_broadcast": _of_subgroup(subgroup.broadcast),
    "vote_any": _of_subgroup(subgroup.vote(True)),
    "vote_all": _of_subgroup(subgroup.vote(False)),
    "ballot": _of_subgroup(subgroup.ballot),
    "agree": _of_subgroup(subgroup.agree),
}  # fmt: skip
