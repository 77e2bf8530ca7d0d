"""Whole-number index arithmetic that knows ranges: sums of registers times constants, divided and
split by shapes.

An `Index` is const + sum of coefficient * atom, where an atom is an i32 register with 0 <=
value < extent. Division and remainder by a constant fall away where the ranges allow it, and
splitting then merging an index gives it back, so a chain of reshapes and transposes costs few
divisions at run time, often none.

An Indexer also remembers which element number coordinates were split from. Coordinates that a
chain of reshapes made, each of another split, are so the coordinates of the first number again:
whatever the chain, equal elements of equal shapes have equal coordinates and equal numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate

from poot.codegen.kir.build import BOOL, I32, KernelBuilder, Val
from poot.errors import CapabilityError
from poot.ir.shapes import shape_groups


@dataclass(eq=False, slots=True)
class Atom:
    """A register with 0 <= value < extent. `split` is (base, divisor, "div" or "rem") where it was
    made by splitting."""

    value: Val
    extent: int
    order: int
    split: tuple[Index, int, str] | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """const + sum of coefficient * atom, terms in the order in which their atoms were made."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        if not other.terms:
            return Index(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Index(other.terms, self.const + other.const) if self.const else other
        sums = dict(self.terms)
        for atom, c in other.terms:
            sums[atom] = sums.get(atom, 0) + c
        return _normal(sums, self.const + other.const)

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        return Index(tuple([(a, c * factor) for a, c in self.terms]), self.const * factor)

    @property
    def low(self) -> int:
        return self.const + sum([min(0, c * (a.extent - 1)) for a, c in self.terms])

    @property
    def high(self) -> int:
        """The largest value, included."""
        return self.const + sum([max(0, c * (a.extent - 1)) for a, c in self.terms])

    @property
    def literal(self) -> int | None:
        return None if self.terms else self.const


Coords = tuple[Index, ...]
ZERO = Index()


def _normal(sums: dict[Atom, int], const: int) -> Index:
    """Terms without zeros, with quotient and remainder of one split merged back into what was
    split."""
    while True:
        pair = _find_pair(sums)
        if pair is None:
            break
        quotient, remainder, base = pair
        factor = sums.pop(remainder)
        del sums[quotient]
        for atom, c in base.terms:
            sums[atom] = sums.get(atom, 0) + c * factor
        const += base.const * factor
    terms = [(a, c) for a, c in sums.items() if c]
    if len(terms) > 1:
        terms.sort(key=_order_of)
    return Index(tuple(terms), const)


def _order_of(term: tuple[Atom, int]) -> int:
    return term[0].order


def _find_pair(sums: dict[Atom, int]) -> tuple[Atom, Atom, Index] | None:
    """(quotient, remainder, base) where base = quotient * divisor + remainder stands in the sum."""
    for atom, c in sums.items():
        if atom.split is None or atom.split[2] != "rem" or c == 0:
            continue
        base, divisor, _ = atom.split
        for other, d in sums.items():
            if other.split == (base, divisor, "div") and d == c * divisor:
                return other, atom, base
    return None


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def flat(coords: Coords, shape: tuple[int, ...]) -> Index:
    """The row-major element number of coordinates."""
    total = ZERO
    for i, (c, s) in enumerate(zip(coords, strides_of(shape), strict=True)):
        total = total + c * s if shape[i] != 1 else total
    return total


def _of_wide_axes(coords: Coords, shape: tuple[int, ...]) -> tuple[Coords, tuple[int, ...]]:
    """Coordinates and shape without the axes of one element."""
    if 1 not in shape:
        return coords, shape
    wide = [i for i, n in enumerate(shape) if n != 1]
    return tuple([coords[i] for i in wide]), tuple([shape[i] for i in wide])


def _shared_factor(index: Index, divisor: int) -> tuple[int, Index, Index] | None:
    """(factor, inner, tail) where index = factor * inner + tail, the factor divides the divisor and
    tail is below the factor: as many terms as can be are in inner."""
    terms = sorted(index.terms, key=_factor_of, reverse=True)
    factors = list(accumulate([c for _, c in terms], math.gcd, initial=divisor))
    for n in range(len(terms), 0, -1):
        factor = factors[n]
        tail = Index(tuple(sorted(terms[n:], key=_order_of)), index.const % factor)
        if factor > 1 and tail.low >= 0 and tail.high < factor:
            inner = sorted([(a, c // factor) for a, c in terms[:n]], key=_order_of)
            return factor, Index(tuple(inner), index.const // factor), tail
    return None


def _factor_of(term: tuple[Atom, int]) -> int:
    return abs(term[1])


@dataclass(slots=True)
class Indexer:
    """Makes atoms and the divisions that can't be avoided, in one kernel."""

    k: KernelBuilder
    _splits: dict[tuple[Index, int], tuple[Index, Index]] = field(
        default_factory=dict[tuple[Index, int], tuple[Index, Index]]
    )
    # Coordinates and shape, both without axes of one element -> the number that they were split
    # from.
    _numbers: dict[tuple[Coords, tuple[int, ...]], Index] = field(
        default_factory=dict[tuple[Coords, tuple[int, ...]], Index]
    )
    _made: int = 0

    def atom(self, value: Val, extent: int) -> Index:
        """A register known to lie in 0 .. extent - 1, as an index."""
        if value.literal is not None:
            return Index((), int(value.literal))
        return ZERO if extent == 1 else Index(((self._atom(value, extent), 1),))

    def _atom(self, value: Val, extent: int, split: tuple[Index, int, str] | None = None) -> Atom:
        self._made += 1
        return Atom(value, extent, self._made, split)

    def value(self, index: Index) -> Val:
        """The index in a register, or as a literal. Atoms made first are added first, so that what
        a loop does not change is summed outside it. Raises CapabilityError past 31 bits."""
        if index.high >= 1 << 31:
            raise CapabilityError(
                f"an index reaches {index.high}, and kernels count elements in 31 bits; split the "
                "value that it stands in"
            )
        return self.word(index)

    def word(self, index: Index) -> Val:
        """The low word of an index, for an address in a buffer that is read by one without a
        sign."""
        k = self.k
        const = (index.const + (1 << 31)) % (1 << 32) - (1 << 31)
        total: Val | None = None
        for atom, c in index.terms:
            term = atom.value * c
            total = term if total is None else total + term
        return k.lit(const, I32) if total is None else total + const

    def divmod(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Quotient and remainder of a non-negative index by a positive constant. Terms that the
        divisor divides leave first; then those that share a factor with it, where the others stay
        below that factor: (12 * row + col) / 24 is row / 2 for a col below 12."""
        assert divisor > 0, divisor
        if divisor == 1:
            return index, ZERO
        whole = [(a, c) for a, c in index.terms if c % divisor == 0]
        rest = Index(tuple((a, c) for a, c in index.terms if c % divisor), index.const % divisor)
        if rest.low < 0:
            whole, rest = [], index
        outside = Index(tuple((a, c // divisor) for a, c in whole))
        outside = outside + (0 if rest is index else index.const // divisor)
        if rest.high < divisor:
            return outside, rest
        quotient, remainder = self._split(rest, divisor)
        return outside + quotient, remainder

    def _split(self, index: Index, divisor: int) -> tuple[Index, Index]:
        shared = _shared_factor(index, divisor)
        if shared is not None:
            factor, inner, tail = shared
            quotient, remainder = self.divmod(inner, divisor // factor)
            return quotient, remainder * factor + tail
        key = (index, divisor)
        found = self._splits.get(key)
        if found is None or not all(self._is_open(i) for i in found):
            found = self._divide(index, divisor)
            self._splits[key] = found
        return found

    def _is_open(self, index: Index) -> bool:
        return all(self.k.is_open(a.value) for a, _ in index.terms)

    def _divide(self, index: Index, divisor: int) -> tuple[Index, Index]:
        value = self.value(index)
        if divisor & (divisor - 1) == 0:
            high, low = value >> (divisor.bit_length() - 1), value & (divisor - 1)
        else:
            high = value // divisor
            low = value - high * divisor
        quotient = self._atom(high, index.high // divisor + 1, (index, divisor, "div"))
        remainder = self._atom(low, divisor, (index, divisor, "rem"))
        return Index(((quotient, 1),)), Index(((remainder, 1),))

    def split(self, index: Index, shape: tuple[int, ...]) -> Coords:
        """Row-major coordinates of an element number below the shape's count."""
        coords: list[Index] = []
        left = index
        leading: list[Index] = [index]  # the number among all axes, all but the last, ...
        for axis in range(len(shape) - 1, 0, -1):
            low = ZERO
            if shape[axis] != 1:
                left, low = self.divmod(left, shape[axis])
            coords.append(low)
            leading.append(left)
        if shape:
            coords.append(left if shape[0] != 1 else ZERO)
        out = tuple(reversed(coords))
        for n, number in enumerate(leading):
            self._note(out[: len(out) - n], shape[: len(out) - n], number)
        return out

    def _note(self, coords: Coords, shape: tuple[int, ...], number: Index) -> None:
        """Remembers that these are the coordinates of that number, where their sum may not tell."""
        if any(a.split is not None for c in coords for a, _ in c.terms):
            self._numbers.setdefault(_of_wide_axes(coords, shape), number)

    def number(self, coords: Coords, shape: tuple[int, ...]) -> Index:
        """The row-major element number of coordinates: the one that they were split from, or their
        sum. Coordinates of one element that come from one number give one Index."""
        found = self._numbers.get(_of_wide_axes(coords, shape))
        return flat(coords, shape) if found is None else found

    def reshape(self, coords: Coords, old: tuple[int, ...], new: tuple[int, ...]) -> Coords:
        """The same element under another shape: the number's own coordinates where these were
        split from one, else axis group by axis group."""
        number = self._numbers.get(_of_wide_axes(coords, old))
        if number is not None:
            return self.split(number, new)
        out: list[Index] = []
        for before, after in shape_groups(old, new):
            mine = coords[before.start : before.stop]
            if len(before) == 1 and len(after) == 1:
                out.extend(mine)
            else:
                merged = flat(mine, old[before.start : before.stop])
                out.extend(self.split(merged, new[after.start : after.stop]))
        self._note(tuple(out), new, flat(coords, old))
        return tuple(out)

    def clamp(self, value: Val, extent: int) -> Index:
        """An i32 register held within 0 .. extent - 1."""
        if value.literal is not None:
            return Index((), min(max(int(value.literal), 0), extent - 1))
        if extent == 1:
            return ZERO
        return self.atom(self.k.op("min", self.k.op("max", value, 0), extent - 1), extent)

    def bounded(self, index: Index, extent: int) -> Index:
        """A non-negative index held below extent: itself where its range is."""
        if index.high < extent:
            return index
        return self.atom(self.k.op("min", self.value(index), extent - 1), extent)

    def within(self, value: Val, extent: int, reach: int) -> Index:
        """A register in 0 .. reach - 1 as an index below extent: itself, or clamped where reach is
        more."""
        return self.atom(value, extent) if reach <= extent else self.clamp(value, extent)

    def below(self, index: Index, bound: int) -> Val:
        """bool: index < bound, a literal where the ranges say."""
        if index.high < bound or index.low >= bound:
            return self.k.lit(index.high < bound, BOOL)
        return self.value(index) < bound
