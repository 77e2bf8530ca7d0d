"""The typing rules of the ops that only some targets have: asynchronous copies and products,
fragments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from poot.codegen.kir.frags import OPAQUE, SWIZZLES, elems_per_lane, held, lane_map
from poot.codegen.kir.nodes import ELEMENT_BYTES, Blob, Frag, Ins, Param, Token, Ty, Type
from poot.codegen.kir.ops import KIR_OPS
from poot.codegen.kir.rules import BOOL, FLOATS, I32, Decls, index_problem, memory_access

TargetRule = Callable[[Ins, Decls], str]
SHORT = ("f16", "bf16")
# Bytes of one bulk copy's innermost row under a 128-byte swizzle.
_PANEL = 128
# Bytes after which that swizzle's pattern repeats.
SWIZZLE_NBYTES = 1024


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _shared(ins: Ins, decls: Decls, attr: str) -> str:
    """What is wrong with the workgroup array that an attribute names."""
    name = ins.attr(attr)
    found = decls.shared.get(name) if isinstance(name, str) else None
    return "" if found is not None and found.dtype != "mbar" else f"a workgroup array as {attr}"


def _swizzled(ins: Ins, decls: Decls, attr: str) -> str:
    """What is wrong with a workgroup array that holds tiles under a 128-byte swizzle."""
    wrong = _shared(ins, decls, attr)
    if wrong or decls.shared[str(ins.attr(attr))].align >= SWIZZLE_NBYTES:
        return wrong
    return f"{ins.attr(attr)} aligned to {SWIZZLE_NBYTES} bytes"


def _mbar(ins: Ins, decls: Decls) -> str:
    if not decls.is_mbar(ins.attr("mem")):
        return "an array of mbarriers"
    at = 1 if ins.op == "tma_load" else 0
    return index_problem(ins.args[at].type)


def _cp_async(ins: Ins, decls: Decls) -> str:
    if len(ins.args) not in (2, 3) or (len(ins.args) == 3 and ins.args[2].type != BOOL):
        return "two indices, and a bool or nothing"
    if ins.attr("nbytes") not in (4, 8, 16) or ins.attr("bypass") not in (None, True, False):
        return "nbytes of 4, 8 or 16, bypass true or false"
    dst, mem = str(ins.attr("dst")), ins.attr("mem")
    source = decls.params.get(mem) if isinstance(mem, str) else None
    wrong = _shared(ins, decls, "dst")
    if wrong or source is None or "r" not in source.access:
        return wrong or "a buffer that may be read as mem"
    if decls.shared[dst].dtype != source.dtype:
        return "one dtype on both sides"
    return index_problem(ins.args[0].type) or index_problem(ins.args[1].type)


def _unpack(ins: Ins, decls: Decls) -> str:
    if ins.attr("dtype") not in ("i8", "f8e4m3"):
        return "dtype i8 or f8e4m3"
    if ins.args[0].type != Ty("u32"):
        return "a word of u32"
    return "" if ins.dsts[0].type == Ty("f16", 4) else "a vector of four f16"


def _commit(kind: str) -> TargetRule:
    def rule(ins: Ins, decls: Decls) -> str:
        return "" if ins.dsts[0].type == Token(kind) else f"a token[{kind}]"

    return rule


def _wait(ins: Ins, decls: Decls) -> str:
    pending = ins.attr("pending")
    if not isinstance(ins.args[0].type, Token):
        return "a token"
    return "" if isinstance(pending, int) and pending >= 0 else "pending of 0 or more"


def _mbar_init(ins: Ins, decls: Decls) -> str:
    return _mbar(ins, decls) or ("" if _positive(ins.attr("count")) else "a count above 0")


def _mbar_arrive(ins: Ins, decls: Decls) -> str:
    expect = ins.attr("expect")
    return _mbar(ins, decls) or ("" if expect is None or _positive(expect) else "bytes above 0")


def _mbar_wait(ins: Ins, decls: Decls) -> str:
    return _mbar(ins, decls) or ("" if ins.args[1].type == I32 else "a parity of i32")


def _named(ins: Ins, decls: Decls) -> str:
    threads = ins.attr("threads")
    width = decls.subgroup or 1
    if not isinstance(threads, int) or not 0 < threads <= decls.threads or threads % width:
        return "threads: whole subgroups of the workgroup"
    return "" if ins.args[0].type == I32 else "a barrier number of i32"


def box_elems(blob: Blob) -> int:
    """Elements of a tensor map's box."""
    total = 1
    for edge in blob.box:
        total *= edge
    return total


def _tensor_map(ins: Ins, decls: Decls, indices: int) -> str:
    blob = decls.blobs.get(str(ins.attr("blob")))
    if blob is None or not blob.box or blob.dtype not in ELEMENT_BYTES:
        return "a blob that declares dtype and box"
    if blob.swizzle not in (None, "128B"):
        return "a blob whose swizzle is none or 128B"
    if blob.swizzle == "128B" and blob.box[0] * ELEMENT_BYTES[blob.dtype] != _PANEL:
        return f"a box whose innermost edge is {_PANEL} bytes, as its swizzle"
    if len(ins.args) != indices + len(blob.box):
        return f"{len(blob.box)} coordinates, as its box has edges"
    return "" if all(a.type == I32 for a in ins.args[indices:]) else "coordinates of i32"


def _tma_load(ins: Ins, decls: Decls) -> str:
    wrong = _shared(ins, decls, "dst") or _mbar(ins, decls) or _tensor_map(ins, decls, 2)
    if not wrong and decls.blobs[str(ins.attr("blob"))].swizzle:
        wrong = _swizzled(ins, decls, "dst")
    if wrong:
        return wrong
    same = decls.shared[str(ins.attr("dst"))].dtype == decls.blobs[str(ins.attr("blob"))].dtype
    return index_problem(ins.args[0].type) if same else "one dtype on both sides"


def _tma_store(ins: Ins, decls: Decls) -> str:
    wrong = _shared(ins, decls, "mem") or _tensor_map(ins, decls, 1)
    if not wrong and decls.blobs[str(ins.attr("blob"))].swizzle:
        wrong = _swizzled(ins, decls, "mem")
    if wrong:
        return wrong
    same = decls.shared[str(ins.attr("mem"))].dtype == decls.blobs[str(ins.attr("blob"))].dtype
    if not same or ins.dsts[0].type != Token("bulk"):
        return "one dtype on both sides, and a token[bulk]"
    return index_problem(ins.args[0].type)


def _is_mapped(type: Type) -> bool:
    """A frag whose elements can be named."""
    return isinstance(type, Frag) and type.family not in OPAQUE


def _fill(ins: Ins, decls: Decls) -> str:
    d = ins.dsts[0].type
    right = isinstance(d, Frag) and ins.args[0].type == Ty(d.dtype)
    return "" if right else "a frag and a scalar of its dtype"


def _pack(ins: Ins, decls: Decls) -> str:
    d = ins.dsts[0].type
    if not isinstance(d, Frag) or not _is_mapped(d):
        return "a frag with a lane map"
    if len(ins.args) != elems_per_lane(d) or any(a.type != Ty(d.dtype) for a in ins.args):
        return f"{elems_per_lane(d)} scalars of {d.dtype}"
    return ""


def _coord(ins: Ins, decls: Decls) -> str:
    d = ins.dsts[0].type
    right = isinstance(d, Frag) and _is_mapped(d) and d.dtype == "i32"
    is_axis = ins.attr("axis") in (0, 1)
    return "" if right and is_axis else "an i32 frag with a lane map, and axis 0 or 1"


def holds_in_words(ins: Ins, frag: Frag, dtype: str) -> bool:
    """Whether a frag_load takes its elements from words of two each."""
    is_load = ins.op == "frag_load" and ins.attr("swizzle") is None
    return is_load and dtype == "u32" and frag.dtype in SHORT


def _frag_memory(ins: Ins, decls: Decls) -> str:
    value = ins.args[2].type if ins.op == "frag_store" else ins.dsts[0].type
    mem = decls.memory(ins.attr("mem"))
    if not isinstance(value, Frag) or mem is None:
        return "a frag, and memory"
    if mem.dtype != value.dtype and not holds_in_words(ins, value, mem.dtype):
        return "memory of the frag's dtype; a load of 16 bits, u32 words without a swizzle too"
    access = memory_access(ins)
    if isinstance(mem, Param) and not set(access) <= set(mem.access):
        return f"access {access} of {mem.name}, declared {mem.access}"
    if ins.attr("trans") not in (None, True, False):
        return "trans true or false"
    swizzle = ins.attr("swizzle")
    if swizzle is not None and (swizzle not in SWIZZLES or isinstance(mem, Param)):
        return f"workgroup memory and a swizzle of {', '.join(SWIZZLES)}"
    if swizzle == "128B" and _swizzled(ins, decls, "mem"):
        return _swizzled(ins, decls, "mem")
    return index_problem(ins.args[0].type) or index_problem(ins.args[1].type)


def _frag_cast(ins: Ins, decls: Decls) -> str:
    a, d = ins.args[0].type, ins.dsts[0].type
    if not isinstance(a, Frag) or not isinstance(d, Frag):
        return "two frags"
    if (a.family, a.m, a.n) != (d.family, d.m, d.n):
        return "two frags of one family and shape"
    if a.role != d.role and (a.role, d.role) != ("acc", "a"):
        return "one role, or acc to a"
    old, new = lane_map(a), lane_map(d)
    agree = old is not None and new is not None and old.lane_steps == new.lane_steps
    if a.role != d.role and not agree:
        return "lane maps that agree up to register order"
    return "" if d.dtype in (*FLOATS, "i32", "bool") else "a dtype of a frag"


def _frag_move(ins: Ins, decls: Decls) -> str:
    a, d = ins.args[0].type, ins.dsts[0].type
    if not isinstance(a, Frag) or not isinstance(d, Frag):
        return "two frags"
    if (a.family, a.role) != ("mma", "acc") or d != Frag("mma", "b", a.m, a.n, a.dtype):
        return "mma frags of one shape and dtype, acc to b"
    return "" if d.dtype in SHORT else "a 16-bit dtype"


def _frag_slice(ins: Ins, decls: Decls) -> str:
    a, d, at = ins.args[0].type, ins.dsts[0].type, ins.attr("at")
    if not isinstance(a, Frag) or not isinstance(d, Frag) or not isinstance(at, int):
        return "two frags and a column"
    row = lane_map(a)
    if row is None or replace(a, n=d.n) != d:
        return "frags with a lane map that differ in columns alone"
    inside = 0 <= at <= a.n - d.n and at % row.tile[1] == 0
    return "" if inside else f"a column inside, at a multiple of {row.tile[1]}"


def _line(ins: Ins, frag: Type) -> Ty | None:
    """The type of one value for each row or column that a lane holds."""
    axis = ins.attr("axis")
    if not isinstance(frag, Frag) or not _is_mapped(frag) or axis not in (0, 1):
        return None
    count = held(frag, 1 if axis == 1 else 0)
    return Ty(frag.dtype, count) if count in (1, 2, 4, 8, 16) else None


def _frag_reduce(ins: Ins, decls: Decls) -> str:
    line = _line(ins, ins.args[0].type)
    if line is None or ins.attr("kind") not in ("add", "max", "min"):
        return "a frag with a lane map, axis 0 or 1, kind add, max or min"
    return "" if ins.dsts[0].type == line else f"a result of {line}"


def _frag_apply(ins: Ins, decls: Decls) -> str:
    line = _line(ins, ins.args[0].type)
    if line is None or ins.attr("kind") not in ("add", "sub", "mul"):
        return "a frag with a lane map, axis 0 or 1, kind add, sub or mul"
    right = ins.args[1].type == line and ins.dsts[0].type == ins.args[0].type
    return "" if right else f"an operand of {line} and a result of the frag's type"


def _mma(ins: Ins, decls: Decls) -> str:
    a, b, c = (x.type for x in ins.args)
    if not isinstance(a, Frag) or not isinstance(b, Frag) or not isinstance(c, Frag):
        return "three frags"
    if ins.dsts[0].type != c or (a.role, b.role, c.role) != ("a", "b", "acc"):
        return "roles a, b and acc, and a result like the third"
    if len({a.family, b.family, c.family}) != 1 or a.family == "wgmma":
        return "frags of one family that multiplies within a subgroup"
    return "" if (a.m, a.n, b.n) == (c.m, b.m, c.n) else "shapes [m,k] x [k,n] + [m,n]"


def _wgmma(ins: Ins, decls: Decls) -> str:
    d, a = ins.dsts[0].type, ins.args[0].type
    if not isinstance(d, Frag) or (d.family, d.role, d.dtype) != ("wgmma", "acc", "f32"):
        return "a wgmma acc frag of f32"
    k = ins.attr("k")
    if not isinstance(k, int) or k < 1 or k % 16 or d.m != 64 or d.n > 256:
        return "k a multiple of 16, and an acc of 64 rows and at most 256 columns"
    wrong = _swizzled(ins, decls, "b") or index_problem(ins.args[1].type)
    if wrong:
        return wrong
    dtype = decls.shared[str(ins.attr("b"))].dtype
    if isinstance(a, Frag):
        if a != Frag("wgmma", "a", 64, k, dtype) or ins.attr("a") is not None:
            return f"a frag[wgmma,a,64,{k},{dtype}], and no array a"
    else:
        wrong = _swizzled(ins, decls, "a") or index_problem(a)
        if wrong or decls.shared[str(ins.attr("a"))].dtype != dtype:
            return wrong or "one dtype in both arrays"
    if dtype not in SHORT:
        return "a 16-bit dtype"
    for flag in ("zero", "trans_b"):
        if ins.attr(flag) not in (None, True, False):
            return f"{flag} true or false"
    wide_a = 0 if isinstance(a, Frag) else k
    wide_b = d.n if ins.attr("trans_b") else k
    for name, columns in (("stride_a", wide_a), ("stride_b", wide_b)):
        if columns > 64 and not _positive(ins.attr(name)):
            return f"{name}, the elements from a panel to the next"
    return ""


def _elect(ins: Ins, decls: Decls) -> str:
    return "" if ins.dsts[0].type == BOOL else "a bool"


def _nothing(ins: Ins, decls: Decls) -> str:
    return ""


TARGET_RULES: dict[str, TargetRule] = {
    "cp_async": _cp_async,
    "unpack": _unpack,
    "async_commit": _commit("copy"),
    "wait": _wait,
    "mbar_init": _mbar_init,
    "mbar_arrive": _mbar_arrive,
    "mbar_wait": _mbar_wait,
    "barrier_sync": _named,
    "barrier_arrive": _named,
    "tma_load": _tma_load,
    "tma_store": _tma_store,
    "frag_fill": _fill,
    "frag_pack": _pack,
    "frag_coord": _coord,
    "frag_load": _frag_memory,
    "frag_store": _frag_memory,
    "frag_cast": _frag_cast,
    "frag_move": _frag_move,
    "frag_slice": _frag_slice,
    "frag_reduce": _frag_reduce,
    "frag_apply": _frag_apply,
    "mma": _mma,
    "wgmma": _wgmma,
    "wgmma_commit": _commit("wgmma"),
    "elect": _elect,
    "grid_wait": _nothing,
    "grid_trigger": _nothing,
}
assert TARGET_RULES.keys() == {name for name, row in KIR_OPS.items() if not row.portable}
