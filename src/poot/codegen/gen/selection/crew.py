"""A workgroup of whole subgroups of 32 that works on one row: sums over it, counts by bins.

Every call here has control that is uniform in the group. Arrays of workgroup memory are named by
what they hold; two uses of one stand with a barrier between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.job import Job
from poot.codegen.kir.build import BOOL, I32, U32, KernelBuilder, Val

WARP = 32
_BINS, _RUNS, _FOUND = "bins", "runs", "found"
Each = Callable[[Callable[[Val], None]], None]


@dataclass(frozen=True, slots=True)
class Scanned:
    """Of a number a lane: the sum over the lanes before it, and over all."""

    before: Val
    all: Val


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The n-th largest of some words, or the low end of the bin that holds it: the word, how many
    of those in it are among the n, how many there are in it."""

    word: Val
    left: Val
    same: Val


@dataclass(frozen=True, slots=True)
class Crew:
    """`lanes` lanes, a power of two."""

    job: Job
    lanes: int

    @property
    def k(self) -> KernelBuilder:
        return self.job.k

    @property
    def warps(self) -> int:
        return self.lanes // WARP

    @property
    def warp(self) -> Val:
        return self.k.op("subgroup_id", type=I32)

    @property
    def lane(self) -> Val:
        """The lane's place in its subgroup."""
        return self.k.op("subgroup_lane", type=I32)

    def number(self, value: int) -> Val:
        return self.k.lit(value, I32)

    def folded(self, value: Val, kind: str) -> Val:
        """Over the subgroup."""
        return self.k.op("subgroup_reduce", value, kind=kind, width=WARP)

    def theirs(self, name: str, first: Val | int = 0, missing: int = 0) -> Val:
        """The subgroups' numbers in an array, a lane each."""
        k = self.k
        if self.warps == WARP:
            return k.load(name, self.lane + first)
        got = k.load(name, k.op("min", self.lane, self.warps - 1) + first)
        return k.select(self.lane < self.warps, got, self.number(missing))

    def ends(self, low: Val, high: Val) -> tuple[Val, Val]:
        """(the least `low`, the largest `high`) over the group, i32. One barrier."""
        k = self.k
        k.need_shared("ends", "i32", 2 * self.warps)
        least, largest = self.folded(low, "min"), self.folded(high, "max")
        with k.if_(self.lane.eq(0)):
            k.store("ends", self.warp, least)
            k.store("ends", self.warp + self.warps, largest)
        k.barrier()
        lows = self.theirs("ends", 0, (1 << 31) - 1)
        highs = self.theirs("ends", self.warps, -(1 << 31))
        return (
            k.op("agree", self.folded(lows, "min")),
            k.op("agree", self.folded(highs, "max")),
        )

    def before(self, mine: Val) -> Val:
        """The sum over the lanes of the subgroup before this one."""
        k, total = self.k, mine
        for d in (1, 2, 4, 8, 16):
            below = k.op("shuffle", total, k.op("max", self.lane - d, 0))
            total = total + k.select(self.lane >= d, below, k.lit(0, mine.ty))
        return total - mine

    def scanned(self, mine: Val) -> Scanned:
        """The sums of an i32 a lane, of at most 65535 in all. One barrier."""
        k = self.k
        k.need_shared(_RUNS, "i32", self.warps)
        before = self.before(mine)
        with k.if_(self.lane.eq(WARP - 1)):
            k.store(_RUNS, self.warp, before + mine)
        k.barrier()
        own = self.theirs(_RUNS)
        both = own + k.select(self.lane < self.warp, own << 16, self.number(0))
        both = self.folded(both, "add")
        return Scanned((both >> 16) + before, k.op("agree", both & 0xFFFF))

    def clear(self) -> None:
        """Empty bins, for lanes that meet at a barrier before the first are counted."""
        self.k.need_shared(_BINS, "i32", self.lanes)
        self.k.need_shared(_FOUND, "i32", 3)
        self.k.store(_BINS, self.k.lane(), 0)

    def binned(self, each: Each, low: Val, reach: Val, wanted: Val) -> tuple[Narrowed, Val]:
        """(the bin that holds the `wanted`-th largest of the words in low .. low + reach, of which
        there are as many; the width of a bin, as a power of two). `each` hands every word of a lane
        over. Three barriers, whatever the words are; words that lie apart have bins apart."""
        k, size = self.k, self.lanes.bit_length() - 1
        shift = k.op("max", _bits(self, reach) - size, 0)
        by = k.bitcast(shift, U32)

        def count(word: Val) -> None:
            beyond = word - low
            with k.if_(beyond <= reach):
                at = k.bitcast(beyond >> by, I32)
                k.op("atomic", at, 1, type=I32, mem=_BINS, kind="add")

        each(count)
        k.barrier()
        bin_ = self.number(self.lanes - 1) - k.lane()
        mine = k.load(_BINS, bin_)
        k.store(_BINS, bin_, 0)
        above = self.scanned(mine).before
        with k.if_((above < wanted) & (wanted <= above + mine)):
            for n, value in enumerate((bin_, wanted - above, mine)):
                k.store(_FOUND, n, value)
        k.barrier()
        found = [k.op("agree", k.load(_FOUND, n)) for n in range(3)]
        return Narrowed(low + (k.bitcast(found[0], U32) << by), found[1], found[2]), shift

    def narrowed(self, each: Each, low: Val, high: Val, wanted: Val) -> Narrowed:
        """The `wanted`-th largest of the words in low .. high: the bin that holds it is cut into
        bins again, until a bin is a word."""
        k = self.k
        base, reach = k.var(low, name="base"), k.var(high - low, name="reach")
        left, same = k.var(wanted, name="left"), k.var(self.number(0), name="same")
        more = k.var(k.lit(True, BOOL), BOOL, "more")
        with k.block_() as head:
            goes_on = k.op("agree", k.copy(more))
        with k.while_(head, goes_on):
            found, shift = self.binned(each, k.copy(base), k.copy(reach), k.copy(left))
            k.set(base, found.word)
            k.set(reach, (k.lit(1, U32) << k.bitcast(shift, U32)) - 1)
            k.set(left, found.left)
            k.set(same, found.same)
            k.set(more, shift > 0)
        return Narrowed(k.copy(base), k.copy(left), k.copy(same))


def _bits(crew: Crew, word: Val) -> Val:
    """How many bits a u32 has, or one more; 0 or less of 0."""
    k = crew.k
    exponent = k.bitcast(k.cast(word, "f32"), U32) >> 23
    return k.bitcast(exponent, I32) - 126
