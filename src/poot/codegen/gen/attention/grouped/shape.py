"""The numbers of a grouped decode: its tiles, its rings, its workgroup memory, its merge."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.parts import Parts, parts_in
from poot.ir.attrs import int_attr
from poot.ir.dtypes import DTYPES
from poot.ir.graph import Var
from poot.ir.rules.selected import always_of
from poot.planner.codes import Coded, coded_pair
from poot.planner.grouped import HEADS_FIRST, ROWS_FIRST
from poot.planner.request import Request

WARP = 32
# Bytes of keys and values that take as long as starting and ending a unit (measured on an H200).
START_NBYTES = 48 << 10
COPY_NBYTES = 16
CODES_A_WORD = 4


@dataclass(frozen=True, slots=True)
class Form:
    """A unit is the keys of one batch row and key head, for a set of its query heads: all, or one
    of `cuts` sets. A tile is `tile` keys of a unit. `groups`
    workgroups of `warps` subgroups share the units. `spread` groups share each unit where all rows
    are equally long, and 0 says that shares of equal cost are cut from all of them.

    `lengths` is "fixed" (no length operand), "one" (one batch row, spread over the groups) or
    "many". With `mergers`, so many groups a unit beyond those `groups` do nothing but add up parts.
    Of selected blocks a unit's keys are the slots of its list (`listed.py`): shares are cut
    for as many as there may be, "fixed", and each unit ends where its list does.

    Where keys and values are kept in codes with a scale a row, `codes` says where both lie; they
    are copied as words of four codes.
    """

    parts: Parts
    warps: int
    stages: int
    tile: int
    groups: int
    spread: int
    residents: int
    cuts: int
    is_matrix: bool
    read: Var | None
    lengths: str
    mergers: int = 0
    codes: tuple[Coded, Coded] | None = None
    order: int = ROWS_FIRST

    @staticmethod
    def of(request: Request) -> Form:
        """The form that a request's schedule names."""
        parts, get = parts_in(request.body), request.schedule.get
        lengths = "fixed" if "len" not in parts.at else "many"
        if "ids" in parts.at:
            lengths = "fixed"
        elif parts.begin is not None:
            lengths = "many"
        elif lengths == "many" and parts.batch == 1 and get("spread"):
            lengths = "one"
        codes = coded_pair(request.body, parts.at)
        return Form(
            parts, get("warps"), get("stages"), get("tile"), get("groups"), get("spread"),
            get("residents"), get("cuts"), bool(get("matrix")),
            parts.at.get("read") if codes is None else codes[0].index, lengths, get("mergers"),
            codes, dict(request.schedule.params).get("order", ROWS_FIRST),
        )  # fmt: skip

    @property
    def keys_from(self) -> Var:
        """The input whose rows are keys."""
        return self.parts.at["k"] if self.codes is None else self.codes[0].codes

    @property
    def values_from(self) -> Var:
        return self.parts.at["v"] if self.codes is None else self.codes[1].codes

    @property
    def dtype(self) -> str:
        """What the ring holds: elements, or words of codes."""
        return self.parts.at["k"].type.dtype if self.codes is None else "u32"

    @property
    def fragments(self) -> str:
        """What matrix units multiply."""
        return self.dtype if self.codes is None else "f16"

    @property
    def line(self) -> int:
        """What a row of keys takes of the ring."""
        return self.width if self.codes is None else self.width // CODES_A_WORD

    @property
    def is_paged(self) -> bool:
        return self.read is not None

    @property
    def width(self) -> int:
        return self.parts.width

    @property
    def repeat(self) -> int:
        """Query heads of a unit."""
        return self.parts.repeat // self.cuts

    @property
    def sets(self) -> int:
        """Units of a batch row."""
        return self.parts.kv_heads * self.cuts

    @property
    def is_listed(self) -> bool:
        """Whether a unit's keys are those of listed blocks."""
        return "ids" in self.parts.at

    @property
    def is_mapped(self) -> bool:
        """Whether rows of keys are found one by one: through a list, a map of a paged cache, or
        both."""
        return self.is_paged or self.is_listed

    @property
    def begins_late(self) -> bool:
        """Whether rows may not see their first keys."""
        return self.parts.begin is not None or self.skipped > 0

    @property
    def skipped(self) -> int:
        """The first keys that no row sees: a window bounds the one query row there is."""
        window = self.parts.window
        return 0 if window is None else max(0, (self.parts.causal or 0) + 1 - window)

    @property
    def end(self) -> int:
        """The key that every row ends before: causal bounds the one query row there is."""
        causal = self.parts.causal
        return self.parts.keys if causal is None else max(0, min(self.parts.keys, causal + 1))

    @property
    def most(self) -> int:
        """The most keys that a row sees."""
        if self.is_listed:
            ratio, listed = int_attr(self.parts.eqn, "ratio"), self.parts.at["ids"].type.shape[3]
            slots = listed * ratio + always_of(self.parts.eqn.attr("always")).reach(ratio)
            return min(slots, -(-self.parts.keys // ratio) * ratio)
        return max(0, self.end - self.skipped)

    @property
    def is_even(self) -> bool:
        """Whether no tile ever passes the end of a unit."""
        is_fixed = self.lengths == "fixed" and not self.is_listed
        return is_fixed and self.most > 0 and self.most % self.tile == 0

    @property
    def chunk(self) -> int:
        """What one copy of a lane moves of the ring."""
        return COPY_NBYTES // DTYPES[self.dtype].nbytes

    @property
    def chunks(self) -> int:
        """Copies in a row of keys."""
        return self.line // self.chunk

    @property
    def copies(self) -> int:
        """Copies of a lane in a tile of keys, or of values."""
        return self.tile * self.chunks // WARP

    @property
    def tile_elems(self) -> int:
        return self.tile * self.line

    @property
    def stage_elems(self) -> int:
        """A tile of keys and a tile of values."""
        return 2 * self.tile_elems

    @property
    def ring_elems(self) -> int:
        """One subgroup's ring."""
        return self.stages * self.stage_elems

    @property
    def start_cost(self) -> int:
        """What starting and ending a unit costs, in tiles."""
        return max(1, START_NBYTES // (self.stage_elems * DTYPES[self.dtype].nbytes))

    @property
    def is_single(self) -> bool:
        """Every group works on one part of one unit, known before anything is read."""
        return self.spread > 0 and self.lengths != "many"

    @property
    def lets_next_begin(self) -> bool:
        """Whether the next launch's groups may take their places beside these: where several
        groups share a unit, time is latency; else they would only be in the way (measured on an
        H200)."""
        return self.spread > 1

    @property
    def is_by_heads(self) -> bool:
        """Whether shares run over the rows of a key head, then over those of the next."""
        return self.order == HEADS_FIRST

    @property
    def is_split(self) -> bool:
        """Whether groups may have to merge."""
        units = self.parts.batch * self.sets
        if self.lengths == "fixed" and self.spread == 1:
            return False
        return not (self.lengths == "fixed" and not self.spread and units % self.groups == 0)

    # The end of a unit: a lane owns two neighbouring channels of a query head.

    @property
    def pairs(self) -> int:
        """Pairs of output channels of a unit."""
        return self.repeat * self.width // 2

    @property
    def rounds(self) -> int:
        """Pairs that a lane owns."""
        return -(-self.pairs // (self.warps * WARP))

    @property
    def sums_at(self) -> int:
        """Where, in the words between groups, maxima and sums start: after all partial values."""
        return self.groups * self.pairs * 2

    @property
    def word_count(self) -> int:
        """Words between groups: each group's partial values, and a copy of its maxima and sums for
        each subgroup that reads them."""
        return self.sums_at + self.groups * self.rounds * self.warps * 2
