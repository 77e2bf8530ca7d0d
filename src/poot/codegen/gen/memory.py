"""How elements lie in kernel parameters: whole elements where the target stores them, else u32
words of two or four.

A bool is a u32 word. An f8e4m3 is its byte. On SPIR-V without 16-bit storage (and for bf16 and
8 bits always) a parameter of narrow elements is an array of u32 words, so that a store is of a
whole word.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.index import Index, Indexer
from poot.codegen.gen.numbers import Numbers, held
from poot.codegen.kir.build import U32, KernelBuilder, Val
from poot.codegen.kir.nodes import Ty
from poot.ir.dtypes import DTYPES
from poot.ir.graph import TensorType
from poot.limits import DeviceLimits

LINE = 64  # bytes that a cache fetches at once


@dataclass(frozen=True, slots=True)
class Cell:
    """How a dtype lies in a parameter: the parameter's dtype, and how many elements one of its
    elements holds."""

    dtype: str
    param: str
    per: int


def cell_of(dtype: str, limits: DeviceLimits) -> Cell:
    """The cell of a dtype on a target."""
    row = DTYPES[dtype]
    if row.nbytes == 4:
        return Cell(dtype, "u32" if dtype == "bool" else dtype, 1)
    if limits.target == "spirv" and not (dtype == "f16" and limits.has_f16_storage):
        return Cell(dtype, "u32", 4 // row.nbytes)
    return Cell(dtype, "u8" if dtype == "f8e4m3" else dtype, 1)


def word_cell(type: TensorType) -> Cell | None:
    """The cell of a value's elements in u32 words, None where the last word isn't full of them."""
    per = 4 // DTYPES[type.dtype].nbytes
    return Cell(type.dtype, "u32", per) if per > 1 and type.elems % per == 0 else None


@dataclass(slots=True)
class Memory:
    """One parameter of a kernel: `elems` elements of a dtype, read and written one by one or a
    word at a time.

    `vector` is 4 where loads may be widened to four neighbours (the generator asks for it),
    else 1; `cache` is what loads say of caches (see the kernel IR's `load`).
    """

    k: KernelBuilder
    numbers: Numbers
    indexer: Indexer
    name: str
    cell: Cell
    elems: int
    vector: int = 1
    cache: str | None = None

    def load(self, at: Index) -> Val:
        """The element, as its register type."""
        if self.cell.per == 1:
            return self.decode(self._whole(at))
        word_at, place = self.indexer.divmod(at, self.cell.per)
        word = self._whole(word_at)
        width = 32 // self.cell.per
        shift = self.k.bitcast(self.indexer.value(place) * width, U32)
        return self.numbers.from_bits((word >> shift) & ((1 << width) - 1), self.cell.dtype)

    def fetch(self, at: Index, count: int) -> None:
        """Hints that `count` elements from one on will be read soon, line by line."""
        assert self.cell.per == 1, self.cell
        for first in range(0, count, max(1, LINE // DTYPES[self.cell.param].nbytes)):
            self.k.prefetch(self.name, self.indexer.value(at + first))

    def _whole(self, at: Index) -> Val:
        """One element of the parameter; a widened load and an extract where that is allowed."""
        wide = self.vector
        words = -(-self.elems // self.cell.per)
        if wide > 1 and words % wide == 0 and DTYPES[self.cell.param].nbytes == 4:
            place = at.const % wide
            base = at + -place
            if all(c % wide == 0 for _, c in base.terms):
                wide_load = self.k.load(self.name, self._address(base), wide, self.cache)
                return self.k.extract(wide_load, place)
        return self.k.load(self.name, self._address(at), cache=self.cache)

    def decode(self, got: Val) -> Val:
        """An element of the parameter, read, as its register type; the cell holds one."""
        dtype = self.cell.dtype
        if dtype == "bool":
            return got.ne(0)
        if dtype == "f8e4m3":
            return self.numbers.from_bits(self.k.cast(got, "u32"), dtype)
        return self.k.cast(got, held(dtype).dtype)

    def element(self, word: Val, place: int) -> Val:
        """Element `place` of one of the parameter's elements, read, as its register type."""
        dtype, k = self.cell.dtype, self.k
        if self.cell.per == 1:
            return self.decode(word)
        if dtype in self.numbers.native:
            halves = k.bitcast(word, Ty(dtype, 2))
            return k.cast(k.extract(halves, place), "f32")
        width = 32 // self.cell.per
        return self.numbers.from_bits((word >> (width * place)) & ((1 << width) - 1), dtype)

    def store(self, at: Index | Val, value: Val) -> None:
        """Writes one element; the cell holds one."""
        assert self.cell.per == 1, self.cell
        self.k.store(self.name, self._address(at), self._encode(value))

    def store_word(self, at: Index | Val, values: list[Val]) -> None:
        """Writes the parameter's element `at` from the cell's elements in it, in order."""
        if self.cell.per == 1:
            self.store(at, values[0])
            return
        width = 32 // self.cell.per
        word = self.k.lit(0, U32)
        for i, v in enumerate(values):
            word = word | (self.numbers.to_bits(v, self.cell.dtype) << (i * width))
        self.k.store(self.name, self._address(at), word)

    def _encode(self, value: Val) -> Val:
        dtype = self.cell.dtype
        if dtype == "bool":
            return self.k.cast(value, "u32")
        if dtype == "f8e4m3":
            return self.k.cast(self.numbers.to_bits(value, dtype), "u8")
        return self.k.cast(value, self.cell.param)

    def _address(self, at: Index | Val) -> Val:
        if not isinstance(at, Index):
            return at
        is_long = self.elems >= 1 << 31
        return self.indexer.word(at) if is_long else self.indexer.value(at)
