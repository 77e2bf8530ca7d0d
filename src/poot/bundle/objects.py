"""Whether an object file is one that poot's compiler writes: LLVM's linker ends the process on some
that are damaged, so a stranger's is looked at first.

An object file of a kernel has one function, constants, and the code's distances to them (ELF, gABI;
x86-64 psABI, 4.4; AArch64 ELF, 5.7).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from poot.errors import FormatError

_HEAD = struct.Struct("<HHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_MOST_SECTIONS, _MOST_SYMBOLS, _MOST_NBYTES = 256, 1 << 16, 1 << 26
_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELOCATIONS, _UNWIND = 0, 1, 2, 3, 4, 0x70000001
_WRITE, _ALLOC, _EXECUTE, _MERGE, _TLS = 1, 2, 4, 0x10, 0x400
_MOST_EACH = 64
_MAGIC_NBYTES = 16
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_LOCAL, _GLOBAL = 0, 1
_NOTYPE, _FUNC, _SECTION_SYMBOL, _FILE = 0, 2, 3, 4
# Machine -> relocation -> bytes that it fills.
_KINDS: dict[int, dict[int, int]] = {
    62: {1: 8, 2: 4, 4: 4, 24: 8},
    183: {257: 8, 260: 8, 261: 4, 275: 4, 277: 4, 278: 4, 282: 4, 283: 4, 284: 4, 285: 4, 286: 4,
          299: 4},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """A section header: the fields that are looked at."""

    name: int
    type: int
    flags: int
    offset: int
    nbytes: int
    link: int
    info: int
    align: int
    each: int


def check_object(data: bytes, symbol: str, who: str) -> None:
    """Raises FormatError where the bytes are no such object file with that function."""
    _Object(data, who).check(symbol)


class _Object:
    def __init__(self, data: bytes, who: str) -> None:
        self.data, self.who = data, who
        self.sections: list[Section] = []
        self.names: set[bytes] = set()
        self.kinds: dict[int, int] = {}

    def need(self, claim: bool, what: str) -> None:
        if not claim:
            raise FormatError(f"{self.who}: is no object file of a kernel: {what}")

    def check(self, symbol: str) -> None:
        names = self._read_sections()
        for s in self.sections:
            self._check_section(s, names)
        tables = [s for s in self.sections if s.type == _SYMTAB]
        self.need(len(tables) == 1, f"it has {len(tables)} tables of symbols")
        symbols = self._symbols(tables[0], symbol)
        for s in self.sections:
            if s.type == _RELOCATIONS:
                self._check_relocations(s, tables[0], symbols)

    def _read_sections(self) -> Section:
        """Fills `sections`; the one that holds their names."""
        nbytes = len(self.data)
        self.need(_MAGIC_NBYTES + _HEAD.size <= nbytes <= _MOST_NBYTES, f"{nbytes} bytes")
        head: tuple[int, ...] = _HEAD.unpack_from(self.data, _MAGIC_NBYTES)
        kind, machine, version, entry, programs, at, _, own, each, count, size, n, named = head
        magic = self.data[:_MAGIC_NBYTES]
        is_ours = magic == b"\x7fELF\2\1\1".ljust(_MAGIC_NBYTES, b"\0")
        self.need(is_ours and kind == 1 and version == 1, "its head")
        self.need(
            machine in _KINDS and own == _MAGIC_NBYTES + _HEAD.size, f"it is for machine {machine}"
        )
        self.need(not (entry or programs or count), "it is a program")
        self.need(each == 0 and size == _SECTION.size and 0 < n <= _MOST_SECTIONS, "its sections")
        self.need(at % 8 == 0 and at + n * size <= len(self.data), "its sections lie outside")
        self.kinds = _KINDS[machine]
        for row in range(n):
            fields: tuple[int, ...] = _SECTION.unpack_from(self.data, at + row * size)
            name, type, flags, address, *rest = fields
            self.need(address == 0, "a section has an address")
            self.sections.append(Section(name, type, flags, *rest))
        self.need(named < n and self.sections[named].type == _STRTAB, "its names")
        self.need(self.sections[0].type == _NULL, "its first section")
        return self.sections[named]

    def _check_section(self, s: Section, names: Section) -> None:
        known = (_NULL, _PROGBITS, _SYMTAB, _STRTAB, _RELOCATIONS, _UNWIND)
        self.need(s.type in known, f"a section is of type {s.type}")
        self.need(s.offset + s.nbytes <= len(self.data), "a section lies outside")
        if s.type == _NULL:
            self.need(s == Section(0, 0, 0, 0, 0, 0, 0, 0, 0), "its first section")
            return
        self.need(0 < s.align <= 4096 and s.align & (s.align - 1) == 0, "an alignment")
        self.need(s.offset % s.align == 0 and s.each <= _MOST_EACH, "an offset")
        name = self._name(names, s.name)
        self.need(name not in self.names, f"section {name[:40]!r} stands twice")
        self.names.add(name)
        if s.type == _PROGBITS and s.nbytes:
            # Code, and constants, which may be alike in several places (MERGE).
            wanted = {b".text": (_ALLOC | _EXECUTE,)}.get(name, (_ALLOC, _ALLOC | _MERGE))
            is_known = name == b".text" or name.startswith(b".rodata")
            self.need(is_known and s.flags in wanted, f"section {name[:40]!r}")
        else:
            self.need(not s.flags & (_WRITE | _TLS | _EXECUTE), "it has memory to write")

    def _name(self, table: Section, at: int) -> bytes:
        """The text at an offset of a table."""
        self.need(table.offset + table.nbytes <= len(self.data), "a table lies outside")
        self.need(at < table.nbytes, "a name lies outside its table")
        stop = self.data.find(b"\0", table.offset + at, table.offset + table.nbytes)
        self.need(stop >= 0, "a name has no end")
        return self.data[table.offset + at : stop]

    def _symbols(self, table: Section, wanted: str) -> list[int]:
        """The section of each symbol, 0 where it has none."""
        count = table.nbytes // _SYMBOL.size
        is_right = table.each == _SYMBOL.size and table.nbytes == count * _SYMBOL.size
        is_right = is_right and 0 < table.info <= count <= _MOST_SYMBOLS
        self.need(is_right and table.link < len(self.sections), "its table of symbols")
        names = self.sections[table.link]
        self.need(names.type == _STRTAB, "its symbols' names")
        found: list[int] = []
        functions: list[bytes] = []
        for n in range(count):
            row: tuple[int, ...] = _SYMBOL.unpack_from(self.data, table.offset + n * _SYMBOL.size)
            name, info, other, at, value, nbytes = row
            bind, kind, text = info >> 4, info & 15, self._name(names, name)
            self.need(bind == (_LOCAL if n < table.info else _GLOBAL), "a symbol's binding")
            self.need(other == 0, "a symbol's visibility")
            if (at == _ABSOLUTE and kind == _FILE) or n == 0:
                self.need(n > 0 or not (name or info or at or value or nbytes), "its first symbol")
                found.append(0)
                continue
            self.need(0 < at < len(self.sections), f"it needs {text[:40]!r} from elsewhere")
            home = self.sections[at]
            self.need(home.type == _PROGBITS and value + nbytes <= home.nbytes, "a symbol's place")
            is_whole = kind == _FUNC and bool(home.flags & _EXECUTE) and value == 0
            is_whole = is_whole and bind == _GLOBAL and nbytes == home.nbytes
            is_mark = kind in (_NOTYPE, _SECTION_SYMBOL) and bind == _LOCAL and nbytes == 0
            self.need(is_whole or is_mark, f"symbol {text[:40]!r} is odd")
            functions += [text] if is_whole else []
            found.append(at)
        self.need(functions == [wanted.encode()], f"its function isn't {wanted}")
        return found

    def _check_relocations(self, s: Section, table: Section, symbols: list[int]) -> None:
        count = s.nbytes // _RELA.size
        is_right = s.each == _RELA.size and s.nbytes == count * _RELA.size
        is_right = is_right and s.link < len(self.sections) and s.info < len(self.sections)
        self.need(is_right and self.sections[s.link] is table, "its relocations")
        target = self.sections[s.info]
        self.need(target.type in (_PROGBITS, _UNWIND), "its relocations")
        for n in range(count):
            row: tuple[int, int, int] = _RELA.unpack_from(self.data, s.offset + n * _RELA.size)
            at, info, addend = row
            kind, which = info & 0xFFFFFFFF, info >> 32
            self.need(kind in self.kinds, f"a relocation is of kind {kind}")
            self.need(which < len(symbols) and symbols[which] > 0, "a relocation leads elsewhere")
            self.need(at + self.kinds[kind] <= target.nbytes, "a relocation lies outside")
            self.need(abs(addend) <= self.sections[symbols[which]].nbytes + 8, "an addend")
