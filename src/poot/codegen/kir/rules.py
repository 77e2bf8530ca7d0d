"""The typing rules of the kernel IR: for each op what its operands and results may be.

A rule gets one instruction and the kernel's declarations and says what is wrong with it, or "".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.kir.frags import OPAQUE, elems_per_lane
from poot.codegen.kir.nodes import Blob, Frag, Imm, Ins, Kernel, Param, Shared, Token, Ty, Type
from poot.codegen.kir.ops import KIR_OPS

FLOATS = ("f32", "f16", "bf16")
INTS = ("i32", "u32", "i64", "u64")
INDEX = ("i32", "u32", "i64")
# Dtypes that are stored and converted, never computed in.
NARROW = ("f8e4m3", "i8", "u8")
BITS = {
    "f32": 32, "f16": 16, "bf16": 16, "f8e4m3": 8,
    "i32": 32, "u32": 32, "i64": 64, "u64": 64, "i8": 8, "u8": 8,
}  # fmt: skip
BOOL = Ty("bool")
I32 = Ty("i32")


@dataclass(frozen=True, slots=True)
class Decls:
    """What a kernel declares, by name, and its width."""

    params: dict[str, Param]
    shared: dict[str, Shared]
    imms: dict[str, Imm]
    blobs: dict[str, Blob]
    threads: int
    subgroup: int | None

    @staticmethod
    def of(kernel: Kernel) -> Decls:
        return Decls(
            {p.name: p for p in kernel.params},
            {s.name: s for s in kernel.shared},
            {i.name: i for i in kernel.imms},
            {b.name: b for b in kernel.blobs},
            kernel.threads,
            kernel.subgroup,
        )

    def memory(self, name: object) -> Param | Shared | None:
        """The buffer or workgroup array of that name; an array of mbarriers is neither."""
        if not isinstance(name, str):
            return None
        found = self.params.get(name) or self.shared.get(name)
        return None if found is None or found.dtype == "mbar" else found

    def is_mbar(self, name: object) -> bool:
        return isinstance(name, str) and name in self.shared and self.shared[name].dtype == "mbar"


Rule = Callable[[Ins, Decls], str]


def _dtype(t: Type) -> str:
    return t.dtype if isinstance(t, (Ty, Frag)) else ""


def _like(t: Type, dtype: str) -> Type:
    """The shape of t in another dtype."""
    if isinstance(t, Ty):
        return Ty(dtype, t.lanes)
    return Frag(t.family, t.role, t.m, t.n, dtype) if isinstance(t, Frag) else t


def _same(*dtypes: str) -> Rule:
    """Operands and result of one type, of one of these dtypes."""

    def rule(ins: Ins, decls: Decls) -> str:
        want = ins.dsts[0].type
        if _dtype(want) not in dtypes:
            return f"a result of {', '.join(dtypes)}"
        return "" if all(a.type == want for a in ins.args) else "operands of the result's type"

    return rule


def _compare(*dtypes: str) -> Rule:
    """Operands of one type, a bool of their shape."""

    def rule(ins: Ins, decls: Decls) -> str:
        first = ins.args[0].type
        if _dtype(first) not in dtypes:
            return f"operands of {', '.join(dtypes)}"
        if any(a.type != first for a in ins.args):
            return "operands of one type"
        return (
            ""
            if ins.dsts[0].type == _like(first, "bool")
            else "a bool result of the operands' shape"
        )

    return rule


def _fixed(*types: Type, args: tuple[Type, ...] = ()) -> Rule:
    """Exactly these results and operands."""

    def rule(ins: Ins, decls: Decls) -> str:
        if tuple(d.type for d in ins.dsts) != types:
            return f"a result of type {', '.join(map(str, types))}"
        if tuple(a.type for a in ins.args) != args:
            return f"operands of type {', '.join(map(str, args))}" if args else "no operands"
        return ""

    return rule


def _set(ins: Ins, decls: Decls) -> str:
    return "" if ins.args[0].type == ins.dsts[0].type else "an operand of the register's type"


def _undef(ins: Ins, decls: Decls) -> str:
    return "" if ins.dsts[0].mutable else "a mutable register"


def _select(ins: Ins, decls: Decls) -> str:
    want = ins.dsts[0].type
    if ins.args[0].type not in (BOOL, _like(want, "bool")):
        return "a bool to choose by"
    return "" if ins.args[1].type == want == ins.args[2].type else "two values of the result's type"


def _cast(ins: Ins, decls: Decls) -> str:
    a, d = ins.args[0].type, ins.dsts[0].type
    if not isinstance(a, Ty) or not isinstance(d, Ty):
        return "scalars or vectors"
    if a.lanes != d.lanes:
        return "as many lanes in the result as in the operand"
    return (
        ""
        if d.dtype != "bool" or a.dtype == "bool"
        else "a number dtype; compare with 0 to get a bool"
    )


def _bitcast(ins: Ins, decls: Decls) -> str:
    a, d = ins.args[0].type, ins.dsts[0].type
    if not isinstance(a, Ty) or not isinstance(d, Ty) or "bool" in (a.dtype, d.dtype):
        return "scalars or vectors of numbers"
    return "" if BITS[a.dtype] * a.lanes == BITS[d.dtype] * d.lanes else "as many bits in as out"


def _vec(ins: Ins, decls: Decls) -> str:
    d = ins.dsts[0].type
    if not isinstance(d, Ty) or d.lanes != len(ins.args):
        return "a vector of as many elements as there are operands"
    return "" if all(a.type == Ty(d.dtype) for a in ins.args) else "scalars of the vector's dtype"


def _element(t: Type, at: object) -> str:
    """What is wrong with element `at` of t."""
    if not isinstance(at, int) or at < 0 or isinstance(t, Token):
        return "an element number"
    if isinstance(t, Frag) and t.family in OPAQUE:
        return "a frag with a lane map"
    has = t.lanes if isinstance(t, Ty) else elems_per_lane(t)
    return "" if at < has else f"an element below {has}"


def _extract(ins: Ins, decls: Decls) -> str:
    a = ins.args[0].type
    wrong = _element(a, ins.attr("at"))
    return wrong or ("" if ins.dsts[0].type == Ty(_dtype(a)) else "a scalar of the operand's dtype")


def _insert(ins: Ins, decls: Decls) -> str:
    a, b = ins.args[0].type, ins.args[1].type
    wrong = _element(a, ins.attr("at"))
    return wrong or (
        "" if b == Ty(_dtype(a)) and ins.dsts[0].type == a else "a scalar of the operand's dtype"
    )


def _axis(ins: Ins, decls: Decls) -> str:
    return _fixed(I32)(ins, decls) if ins.attr("axis") in (0, 1, 2) else "axis 0, 1 or 2"


def _imm(ins: Ins, decls: Decls) -> str:
    found = decls.imms.get(str(ins.attr("name")))
    return "a declared immediate" if found is None else _fixed(Ty(found.dtype))(ins, decls)


def index_problem(t: Type) -> str:
    return (
        ""
        if isinstance(t, Ty) and t.lanes == 1 and t.dtype in INDEX
        else f"an index of {', '.join(INDEX)}"
    )


def memory_access(ins: Ins) -> str:
    """How an op touches its `mem`: "r", "w", "rw", or "" where it doesn't."""
    return {"load": "r", "store": "w", "atomic": "rw"}.get(KIR_OPS[ins.op].effect, "")


def _memory(ins: Ins, decls: Decls, value: Type) -> str:
    """A typed access of `mem` at operand 0."""
    mem = decls.memory(ins.attr("mem"))
    if mem is None:
        return "a declared buffer or workgroup array"
    access = memory_access(ins)
    if isinstance(mem, Param) and not set(access) <= set(mem.access):
        return f"access {access} of {mem.name}, declared {mem.access}"
    if _dtype(value) != mem.dtype:
        return f"{mem.dtype}, as {mem.name} is declared"
    return index_problem(ins.args[0].type)


_CACHES = (None, "stream", "early", "const", "relaxed")


def _load(ins: Ins, decls: Decls) -> str:
    if ins.attr("cache") not in _CACHES:
        return "a cache of stream, const, relaxed or none"
    d = ins.dsts[0].type
    return _memory(ins, decls, d) if isinstance(d, Ty) else "a scalar or vector"


def _prefetch(ins: Ins, decls: Decls) -> str:
    mem = decls.memory(ins.attr("mem"))
    if not isinstance(mem, Param) or "r" not in mem.access:
        return "a declared buffer that is read"
    return index_problem(ins.args[0].type)


def _store(ins: Ins, decls: Decls) -> str:
    if ins.attr("cache") not in (None, "stream", "relaxed"):
        return "a cache of stream, relaxed or none"
    value = ins.args[1].type
    return _memory(ins, decls, value) if isinstance(value, Ty) else "a scalar or vector"


def _atomic(ins: Ins, decls: Decls) -> str:
    if ins.attr("kind") not in ("add", "max", "min", "and", "or", "exchange"):
        return "kind add, max, min, and, or, exchange"
    d = ins.dsts[0].type
    if d not in (I32, Ty("u32")) or ins.args[1].type != d:
        return "an i32 or u32 operand of the result's type"
    return _memory(ins, decls, d)


def named_scope(scope: object) -> tuple[int, int] | None:
    """(id, threads) of a named barrier's scope."""
    match scope:
        case ("named", int(number), int(threads)):
            return number, threads
        case _:
            return None


def _barrier(ins: Ins, decls: Decls) -> str:
    scope = ins.attr("scope")
    if scope in ("group", "subgroup", "role") or named_scope(scope) is not None:
        return ""
    return "scope group, subgroup, role or (named, id, threads)"


def _fence(ins: Ins, decls: Decls) -> str:
    return (
        "" if ins.attr("scope") in ("group", "device", "async") else "scope group, device or async"
    )


def _width(ins: Ins, decls: Decls) -> str:
    width = ins.attr("width")
    whole = decls.subgroup or 0
    if not isinstance(width, int) or width < 1 or width & (width - 1) or width > whole:
        return f"a width of 1, 2, 4 .. {whole}"
    if ins.attr("kind") not in ("add", "max", "min"):
        return "kind add, max or min"
    return _same(*FLOATS, "i32", "u32")(ins, decls)


def _shuffle(ins: Ins, decls: Decls) -> str:
    d = ins.dsts[0].type
    if not isinstance(d, Ty) or d.lanes != 1 or ins.args[0].type != d:
        return "a scalar and a result of its type"
    if ins.op == "shuffle":
        return "" if ins.args[1].type == I32 else "a lane number of i32"
    number = ins.attr("mask" if ins.op == "shuffle_xor" else "lane")
    inside = isinstance(number, int) and 0 <= number < (decls.subgroup or 0)
    return "" if inside else "a lane of the subgroup"


def _ballot(ins: Ins, decls: Decls) -> str:
    wide = (decls.subgroup or 0) > 32
    return "a subgroup of at most 32 lanes" if wide else _fixed(Ty("u32"), args=(BOOL,))(ins, decls)


def _agree(ins: Ins, decls: Decls) -> str:
    a, d = ins.args[0].type, ins.dsts[0].type
    is_scalar = isinstance(a, Ty) and a.lanes == 1
    return "" if is_scalar and a == d else "a scalar, and a result of its type"


NUMBERS = (*FLOATS, *INTS)
RULES: dict[str, Rule] = {
    "set": _set,
    "undef": _undef,
    **dict.fromkeys(("add", "sub", "mul", "div", "min", "max"), _same(*NUMBERS)),
    "mulhi": _same("u32"),
    "rem": _same(*INTS),
    **dict.fromkeys(("fma", "nanmin", "nanmax"), _same(*FLOATS)),
    **dict.fromkeys(("floor", "rint", "sqrt", "rsqrt", "rcp", "exp2", "log2"), _same(*FLOATS)),
    "neg": _same(*FLOATS, "i32", "i64"),
    "abs": _same(*FLOATS, "i32"),
    "isnan": _compare(*FLOATS),
    **dict.fromkeys(("and", "or", "xor", "not"), _same(*INTS, "bool")),
    **dict.fromkeys(("shl", "shr"), _same(*INTS)),
    **dict.fromkeys(("eq", "ne"), _compare(*NUMBERS, *NARROW, "bool")),
    **dict.fromkeys(("lt", "le", "gt", "ge"), _compare(*NUMBERS, "i8", "u8")),
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "vec": _vec,
    "extract": _extract,
    "insert": _insert,
    **dict.fromkeys(("lane", "subgroup_id", "subgroup_lane"), _fixed(I32)),
    **dict.fromkeys(("group_id", "num_groups"), _axis),
    "imm": _imm,
    "load": _load,
    "prefetch": _prefetch,
    "store": _store,
    "atomic": _atomic,
    "barrier": _barrier,
    "fence": _fence,
    **dict.fromkeys(("shuffle", "shuffle_xor", "subgroup_broadcast"), _shuffle),
    "subgroup_reduce": _width,
    **dict.fromkeys(("vote_any", "vote_all"), _fixed(BOOL, args=(BOOL,))),
    "ballot": _ballot,
    "agree": _agree,
}
