"""Device buffers and workgroup arrays: declarations, loads, stores and atomics.

A vector access is one struct of at most 16 bytes a part, where the memory's alignment allows; else
it is done element by element.
"""

from __future__ import annotations

from poot.codegen.hip.body import BLOCK, Body
from poot.codegen.hip.types import (
    C_TYPES,
    HELD_IN,
    IN_MEMORY,
    WIDEST,
    dtype_of,
    lanes_of,
    loaded,
    stored,
)
from poot.codegen.kir.nodes import ELEMENT_BYTES, Ins, Kernel, Lit, Operand, Param, Shared, Type
from poot.errors import DtypeLowering

_ATOMICS = {
    "add": "__hip_atomic_fetch_add",
    "max": "__hip_atomic_fetch_max",
    "min": "__hip_atomic_fetch_min",
    "and": "__hip_atomic_fetch_and",
    "or": "__hip_atomic_fetch_or",
    "exchange": "__hip_atomic_exchange",
}


def pointer_type(decl: Param) -> str:
    """The parameter's type: const where it is only read."""
    const = "const " if decl.access == "r" else ""
    return f"{const}{IN_MEMORY[decl.dtype]}*"


def workgroup_lines(b: Body, kernel: Kernel) -> list[str]:
    """The lines that declare workgroup memory: one block of `Kernel.shared_nbytes`, so that no
    compiler orders or drops arrays, and each array at its place in it."""
    lines: list[str] = []
    for shared in kernel.shared:
        if shared.dtype == "mbar":
            raise DtypeLowering(f"hip has no barriers with phases: workgroup array {shared.name}")
        name, _ = b.memory(shared.name)
        element, elems = IN_MEMORY[shared.dtype], shared.elems
        start = kernel.shared_offsets[shared.name]
        place = f"({BLOCK} + {start})" if start else BLOCK
        lines.append(f"{element} (&{name})[{elems}] = *({element} (*)[{elems}]){place};")
    if not lines:
        return []
    align = max(s.align for s in kernel.shared)
    nbytes = f"[{kernel.shared_nbytes}]"
    block = f"__shared__ unsigned char {BLOCK}{nbytes} __attribute__((aligned({align})));"
    return [block, *lines]


def _at(b: Body, index: Operand, more: int = 0) -> str:
    if isinstance(index, Lit):
        return str(int(index.value) + more)
    name = b.one(index)
    return f"{name} + {more}" if more else name


def _place(b: Body, name: str, index: Operand) -> str:
    at = _at(b, index)
    return name if at == "0" else f"{name} + {at}"


def _is_whole(decl: Param | Shared, lanes: int) -> bool:
    """Whether one access may take all the lanes: their alignment is promised."""
    nbytes = lanes * ELEMENT_BYTES[decl.dtype]
    return lanes > 1 and decl.align % min(WIDEST, nbytes & -nbytes) == 0


def _scope(decl: Param | Shared) -> str:
    kind = "AGENT" if isinstance(decl, Param) else "WORKGROUP"
    return f"__ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_{kind}"


def _read(decl: Param | Shared, place: str, cache: object) -> str:
    """One element at a pointer, as its memory type."""
    if cache == "stream":
        return f"__builtin_nontemporal_load({place})"
    if cache != "relaxed":
        raise AssertionError(cache)
    if ELEMENT_BYTES[decl.dtype] >= 4:
        return f"__hip_atomic_load({place}, {_scope(decl)})"
    return f"*(const volatile {IN_MEMORY[decl.dtype]}*)({place})"


def load(b: Body, ins: Ins) -> None:
    name, decl = b.memory(ins.attr("mem"))
    index, dst, cache = ins.args[0], ins.dsts[0], ins.attr("cache")
    lanes, dtype = lanes_of(dst.type), decl.dtype
    b.use_dtype(dtype)
    is_plain = cache in (None, "const")
    if _is_whole(decl, lanes) and cache != "relaxed":
        made = _vector_load(b, dst.type, "stream" if cache == "stream" else "")
        b.put_whole(dst, f"{made}({_place(b, name, index)})")
        return
    parts: list[str] = []
    for more in range(lanes):
        at = _at(b, index, more)
        element = f"{name}[{at}]" if is_plain else _read(decl, f"{name} + {at}", cache)
        parts.append(loaded(dtype, element))
    b.put(dst, parts)


def prefetch(b: Body, ins: Ins) -> None:
    name, _ = b.memory(ins.attr("mem"))
    b.line(f"__builtin_prefetch({_place(b, name, ins.args[0])});")


def _vector_load(b: Body, type: Type, cache: str) -> str:
    """The name of a function that loads a vector of registers from a pointer."""
    dtype, lanes = dtype_of(type), lanes_of(type)
    result, element = b.c_type(type), IN_MEMORY[dtype]
    name = "_".join(w for w in ("load", cache, f"{dtype}x{lanes}") if w)
    args = f"const {element}* p"
    if cache:
        each = [loaded(dtype, f"__builtin_nontemporal_load(p + {n})") for n in range(lanes)]
        b.function(name, result, args, _filled(result, each))
    elif HELD_IN[dtype] == dtype and dtype != "bool":
        b.function(name, result, args, [f"return *(const {result}*)p;"])
    else:
        words = b.struct(dtype, lanes) if dtype != "bool" else b.struct("u32", lanes)
        lines = [f"const {words} w = *(const {words}*)p;"]
        lines += _filled(result, [loaded(dtype, f"w.s[{n}]") for n in range(lanes)])
        b.function(name, result, args, lines)
    return name


def _filled(struct: str, parts: list[str]) -> list[str]:
    """The lines of a function that returns these scalars."""
    return [f"{struct} v;", *(f"v.s[{n}] = {part};" for n, part in enumerate(parts)), "return v;"]


def store(b: Body, ins: Ins) -> None:
    name, decl = b.memory(ins.attr("mem"))
    index, value = ins.args
    cache, dtype = ins.attr("cache"), decl.dtype
    lanes = lanes_of(value.type)
    b.use_dtype(dtype)
    if _is_whole(decl, lanes) and cache != "relaxed":
        made = _vector_store(b, value.type, "stream" if cache == "stream" else "")
        b.line(f"{made}({_place(b, name, index)}, {b.whole(value)});")
        return
    for more, lane in enumerate(b.lanes(value)):
        at, element = _at(b, index, more), stored(dtype, lane)
        if cache is None:
            b.line(f"{name}[{at}] = {element};")
        elif cache == "stream":
            element = f"({IN_MEMORY[dtype]})({element})"
            b.line(f"__builtin_nontemporal_store({element}, {name} + {at});")
        elif ELEMENT_BYTES[dtype] >= 4:
            b.line(f"__hip_atomic_store({name} + {at}, {element}, {_scope(decl)});")
        else:
            b.line(f"*(volatile {IN_MEMORY[dtype]}*)({name} + {at}) = {element};")


def _vector_store(b: Body, type: Type, cache: str) -> str:
    """The name of a function that stores a vector of registers at a pointer."""
    dtype, lanes = dtype_of(type), lanes_of(type)
    value, element = b.c_type(type), IN_MEMORY[dtype]
    name = "_".join(w for w in ("store", cache, f"{dtype}x{lanes}") if w)
    args = f"{element}* p, const {value}& v"
    parts = [stored(dtype, f"v.s[{n}]") for n in range(lanes)]
    if cache:
        each = [f"__builtin_nontemporal_store(({element})({p}), p + {n});"
                for n, p in enumerate(parts)]  # fmt: skip
        b.function(name, "void", args, each)
    elif HELD_IN[dtype] == dtype and dtype != "bool":
        b.function(name, "void", args, [f"*({value}*)p = v;"])
    else:
        words = b.struct(dtype, lanes) if dtype != "bool" else b.struct("u32", lanes)
        lines = [f"{words} w;", *(f"w.s[{n}] = {part};" for n, part in enumerate(parts))]
        b.function(name, "void", args, [*lines, f"*({words}*)p = w;"])
    return name


def atomic(b: Body, ins: Ins) -> None:
    name, decl = b.memory(ins.attr("mem"))
    index, value = ins.args
    if decl.dtype not in ("i32", "u32"):
        raise DtypeLowering(f"atomics are on i32 and u32: {decl.name} is {decl.dtype}")
    call = _ATOMICS[str(ins.attr("kind"))]
    place = _place(b, name, index)
    b.put(ins.dsts[0], [f"{call}({place}, {b.one(value)}, {_scope(decl)})"])


def c_type_of(dtype: str) -> str:
    """The register type of a dtype's scalar."""
    return C_TYPES[HELD_IN[dtype]]
