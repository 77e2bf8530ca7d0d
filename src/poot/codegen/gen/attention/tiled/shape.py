"""The numbers of a tiled attention: its tiles and its rings."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.blocks import Tiling
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.planner.request import Request

WARP, WARPGROUP = 32, 128
# Rows of queries of one consumer, and columns of a panel of 128 bytes.
ROWS, PANEL = 64, 64
STAGES = 2


@dataclass(frozen=True, slots=True)
class Form:
    """`consumers` warpgroups of 64 query rows each share tiles of `tile` keys. `section` query
    heads run side by side, so that their keys and values stay in the cache. `launched` groups take
    the blocks in turn."""

    parts: Parts
    consumers: int
    tile: int
    section: int
    registers: tuple[int, int]
    launched: int

    @staticmethod
    def of(request: Request) -> Form:
        """The form that a request's schedule names."""
        parts, get = parts_of(attention_eqn(request.body)), request.schedule.get
        budget = (get("producer_registers"), get("consumer_registers"))
        return Form(parts, get("consumers"), get("tile"), get("section"), budget, get("groups"))

    @property
    def width(self) -> int:
        return self.parts.width

    @property
    def value_width(self) -> int:
        return self.parts.value_width

    @property
    def own_width(self) -> int:
        """Channels of a key that its head alone has."""
        return self.parts.width - self.parts.shared

    @property
    def dtype(self) -> str:
        return self.parts.at["k"].type.dtype

    @property
    def panels(self) -> int:
        """Panels of a query, and of a key."""
        return self.width // PANEL

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.consumers + 1)

    @property
    def rows(self) -> int:
        """Query rows of a group."""
        return ROWS * self.consumers

    @property
    def buffers(self) -> int:
        """Blocks whose queries have a place at once."""
        return 1 if self.width > 128 else 2

    @property
    def tiling(self) -> Tiling:
        return Tiling(self.parts, self.rows, self.tile, self.section)

    @property
    def groups(self) -> int:
        """Blocks of query rows in all."""
        return self.tiling.groups

    @property
    def key_elems(self) -> int:
        """A tile of keys."""
        return self.tile * self.width

    @property
    def value_elems(self) -> int:
        """A tile of values."""
        return self.tile * self.value_width

    @property
    def query_elems(self) -> int:
        """One consumer's queries."""
        return ROWS * self.width

    @property
    def is_paged(self) -> bool:
        return "read" in self.parts.at

    @property
    def is_even(self) -> bool:
        """Whether every row sees every key, in whole tiles."""
        return self.tiling.is_even
