"""Device buffers and workgroup memory: addresses, loads, stores, atomics.

Workgroup arrays lie one behind the other in one block, `smem`; past 48 KiB the block is sized at
the launch (CUDA C++ Programming Guide, compute capability 7.x and later). An address is a base, 64
bits wide on the device and 32 in the workgroup, and an index in 32 bits where it is one; constant
parts of an index go into the instruction. Of a buffer of 2^31 elements or more the index is read
unsigned, whole: then no part of it may be taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.kir.nodes import ELEMENT_BYTES, Ins, Kernel, Lit, Operand, Param, Shared, Ty
from poot.codegen.ptx.body import Body, dtype_of
from poot.codegen.ptx.text import KIND, as_bits
from poot.codegen.ptx.types import from_words, to_words
from poot.errors import DtypeLowering

STATIC_NBYTES = 48 << 10
MBAR_NBYTES = 8
_LINE = 128  # a swizzle stays inside a line, so the block starts on one
# Offsets that an instruction holds: 32 bits, signed.
_REACH = (1 << 31) - 1


def dynamic_nbytes(kernel: Kernel) -> int:
    """Workgroup memory that the launch has to ask for: all of it where it passes 48 KiB, else 0."""
    return kernel.shared_nbytes if kernel.shared_nbytes > STATIC_NBYTES else 0


def shared_declaration(kernel: Kernel) -> str:
    """The module-level line that declares `smem`, or ""."""
    if not kernel.shared_nbytes:
        return ""
    align = max(_LINE, *(s.align for s in kernel.shared))
    if dynamic_nbytes(kernel):
        return f".extern .shared .align {align} .b8 smem[];"
    return f".shared .align {align} .b8 smem[{kernel.shared_nbytes}];"


def element_nbytes(decl: Param | Shared) -> int:
    return MBAR_NBYTES if decl.dtype == "mbar" else ELEMENT_BYTES[decl.dtype]


@dataclass(frozen=True, slots=True)
class Place:
    """An address: a register and bytes beyond it, as `[base+offset]`."""

    base: str
    offset: int

    def plus(self, nbytes: int) -> Place:
        return Place(self.base, self.offset + nbytes)

    def __str__(self) -> str:
        return f"[{self.base}+{self.offset}]" if self.offset else f"[{self.base}]"


class Memory:
    """Every buffer and workgroup array of a kernel, by name."""

    def __init__(self, kernel: Kernel) -> None:
        self.params = {p.name: p for p in kernel.params}
        self.arrays = {s.name: s for s in kernel.shared}
        self._layout = kernel.shared_offsets

    def decl(self, name: object) -> Param | Shared:
        found = self.params.get(str(name)) or self.arrays.get(str(name))
        assert found is not None, name
        return found

    def is_long(self, name: str) -> bool:
        """Whether a buffer has elements that a signed index doesn't count."""
        return name in self.params and self.params[name].is_long

    def is_buffer(self, name: object) -> bool:
        return str(name) in self.params

    # Addresses

    def base(self, b: Body, name: str) -> str:
        """The register that holds where a memory starts; for workgroup arrays, where all do."""
        if name in self.arrays:
            return b.once("smem", "r", "mov.u32", "smem")
        loaded = b.once(f"{name}_ptr", "d", "ld.param.u64", f"[param_{name}]")
        return b.once(f"{name}_base", "d", "cvta.to.global.u64", loaded)

    def place(self, b: Body, name: object, index: Operand) -> Place:
        """Where element `index` lies."""
        mem = str(name)
        nbytes = element_nbytes(self.decl(mem))
        is_long = self.is_long(mem)
        root, extra = (b.resolve(index), 0) if is_long else b.rooted(index)
        start = self._layout.get(mem, 0)
        base = self.base(b, mem)
        if abs(extra * nbytes) + start > _REACH:
            root, extra = b.resolve(index), 0
        if isinstance(root, Lit):
            at = int(root.value) + extra
            at += 1 << 32 if is_long and at < 0 else 0
            return self._fixed(b, base, at, nbytes, start, mem)
        spell = b.one(root)
        key = ("place", base, spell, nbytes)
        is_fixed = not root.mutable
        make = self._maker(b, base, root, spell, nbytes, mem)
        return Place(b.shared(key, make) if is_fixed else make(), start + extra * nbytes)

    def _fixed(self, b: Body, base: str, at: int, nbytes: int, start: int, mem: str) -> Place:
        offset = start + at * nbytes
        if offset <= _REACH:
            return Place(base, offset)
        return Place(b.ins("add.s64", "d", base, str(offset)), 0)

    def _maker(
        self, b: Body, base: str, root: Operand, spell: str, nbytes: int, mem: str
    ) -> Callable[[], str]:
        dtype, wide = dtype_of(root), mem in self.params

        def make() -> str:
            if not wide:
                index = b.ins("cvt.u32.u64", "r", spell) if KIND[dtype] == "d" else spell
                if nbytes == 1:
                    return b.ins("add.s32", "r", index, base)
                return b.ins("mad.lo.s32", "r", index, str(nbytes), base)
            if KIND[dtype] == "d":
                return b.ins("mad.lo.s64", "d", spell, str(nbytes), base)
            sign = "u" if dtype == "u32" or self.is_long(mem) else "s"
            return b.ins(f"mad.wide.{sign}32", "d", spell, str(nbytes), base)

        return make

    def start(self, name: str) -> int:
        """Bytes from `base` to where a memory starts."""
        return self._layout.get(name, 0)

    def at(self, b: Body, name: str, index: str) -> str:
        """The address of an element less `start`; the index is a 32-bit register."""
        nbytes, base = str(element_nbytes(self.decl(name))), self.base(b, name)
        if name in self.arrays:
            return b.ins("mad.lo.s32", "r", index, nbytes, base)
        return b.ins(f"mad.wide.{'u' if self.is_long(name) else 's'}32", "d", index, nbytes, base)

    def window(self, b: Body, name: object, index: Operand) -> str:
        """The 32-bit address in workgroup memory of an element, as one register."""
        at = self.place(b, name, index)
        return b.ins("add.s32", "r", at.base, str(at.offset)) if at.offset else at.base

    # Loads and stores

    def load(self, b: Body, ins: Ins) -> None:
        decl, dst = self.decl(ins.attr("mem")), ins.dsts[0]
        assert isinstance(dst.type, Ty), ins
        at = self.place(b, decl.name, ins.args[0])
        op = self._load_op(decl, ins.attr("cache"))
        b.put(dst, read(b, op, at, decl, dst.type.lanes))

    def _load_op(self, decl: Param | Shared, cache: object) -> str:
        if isinstance(decl, Shared):
            return "ld.relaxed.cta.shared" if cache == "relaxed" else "ld.shared"
        if cache == "early":  # the assembler moves what is marked nc behind a wait for the grid
            return "ld.global.L1::no_allocate"
        if cache == "stream":
            fixed = ".nc" if decl.access == "r" else ""
            return f"ld.global{fixed}.L1::no_allocate"
        return {"const": "ld.global.nc", "relaxed": "ld.relaxed.gpu.global"}.get(
            str(cache), "ld.global"
        )

    def store(self, b: Body, ins: Ins) -> None:
        decl, value = self.decl(ins.attr("mem")), ins.args[1]
        at = self.place(b, decl.name, ins.args[0])
        write(b, self._store_op(decl, ins.attr("cache")), at, decl, b.get(value))

    def _store_op(self, decl: Param | Shared, cache: object) -> str:
        if isinstance(decl, Shared):
            return "st.relaxed.cta.shared" if cache == "relaxed" else "st.shared"
        return {"stream": "st.global.cs", "relaxed": "st.relaxed.gpu.global"}.get(
            str(cache), "st.global"
        )

    def atomic(self, b: Body, ins: Ins) -> None:
        decl, kind = self.decl(ins.attr("mem")), str(ins.attr("kind"))
        if decl.dtype not in ("i32", "u32"):
            raise DtypeLowering(f"atomics are on i32 and u32: {decl.name} is {decl.dtype}")
        number = {"i32": "s32", "u32": "u32"}[decl.dtype]
        if kind in ("and", "or", "exchange"):
            number = "b32"
        elif kind == "add":
            number = "u32"
        name = {"exchange": "exch"}.get(kind, kind)
        where = "gpu.global" if isinstance(decl, Param) else "cta.shared"
        at = self.place(b, decl.name, ins.args[0])
        value = b.one(ins.args[1])
        b.put(ins.dsts[0], [b.ins(f"atom.relaxed.{where}.{name}.{number}", "r", str(at), value)])


def _pieces(decl: Param | Shared, nbytes: int, word: int) -> list[tuple[int, int]]:
    """(first word, words) of each access: at most 16 bytes, within the declared alignment."""
    most = max(1, min(16, decl.align) // word)
    total = nbytes // word
    out: list[tuple[int, int]] = []
    at = 0
    while at < total:
        step = min(most, total - at)
        step = 1 << (step.bit_length() - 1)
        out.append((at, step))
        at += step
    return out


def _suffix(count: int, bits: int) -> str:
    return f".v{count}.b{bits}" if count > 1 else f".b{bits}"


def read(b: Body, op: str, at: Place, decl: Param | Shared, lanes: int) -> list[str]:
    """`lanes` elements from a place on, as registers of the memory's dtype."""
    size = ELEMENT_BYTES[decl.dtype]
    nbytes = size * lanes
    if size < 4 and (nbytes < 4 or decl.align < 4):
        return [_read_one(b, op, at.plus(size * n), decl.dtype) for n in range(lanes)]
    word = 8 if size == 8 else 4
    words: list[str] = []
    for first, count in _pieces(decl, nbytes, word):
        got = [b.temp("d" if word == 8 else "r") for _ in range(count)]
        target = got[0] if count == 1 else f"{{{', '.join(got)}}}"
        b.do(f"{op}{_suffix(count, 8 * word)} {target}, {at.plus(first * word)}")
        words += got
    return words if size == 8 else from_words(b, decl.dtype, lanes, words)


def _read_one(b: Body, op: str, at: Place, dtype: str) -> str:
    if ELEMENT_BYTES[dtype] == 2:
        return b.ins(f"{op}.b16", "h", str(at))
    return b.ins(f"{op}.{'s8' if dtype == 'i8' else 'u8'}", "r", str(at))


def write(b: Body, op: str, at: Place, decl: Param | Shared, values: tuple[str, ...]) -> None:
    """Elements from a place on."""
    size = ELEMENT_BYTES[decl.dtype]
    nbytes = size * len(values)
    if size < 4 and (nbytes < 4 or decl.align < 4):
        for n, value in enumerate(values):
            b.do(f"{op}.b{8 * size} {at.plus(size * n)}, {value}")
        return
    word = 8 if size == 8 else 4
    words = list(values) if size == 8 else to_words(b, decl.dtype, values)
    for first, count in _pieces(decl, nbytes, word):
        part = [as_bits(w) for w in words[first : first + count]]
        source = part[0] if count == 1 else f"{{{', '.join(part)}}}"
        b.do(f"{op}{_suffix(count, 8 * word)} {at.plus(first * word)}, {source}")
