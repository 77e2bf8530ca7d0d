"""The numbers of an attention in subgroup tiles."""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.blocks import Tiling
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.planner.request import Request
from poot.planner.subgroup_tiles import FAMILIES, PAD, SIDE


@dataclass(frozen=True, slots=True)
class Form:
    """A group has `warps` subgroups of `lanes`, each with `deep` times 16 query rows, and takes
    `tile` keys at a time. `family` is the matrix unit's; `is_async` says that tiles are copied
    behind the lanes' backs, else by way of registers; `keeps_queries` that queries stay in
    workgroup memory, else in fragments."""

    parts: Parts
    family: str
    lanes: int
    warps: int
    deep: int
    tile: int
    section: int
    is_async: bool
    keeps_queries: bool

    @staticmethod
    def of(request: Request) -> Form:
        """The form that a request's schedule names."""
        parts, get = parts_of(attention_eqn(request.body)), request.schedule.get
        return Form(
            parts, FAMILIES[get("family")], get("subgroup"), get("warps"), get("deep"), get("tile"),
            get("section"), bool(get("async")), bool(get("keeps")),
        )  # fmt: skip

    @property
    def dtype(self) -> str:
        return self.parts.at["k"].type.dtype

    @property
    def threads(self) -> int:
        return self.warps * self.lanes

    @property
    def own_rows(self) -> int:
        """Query rows of a subgroup."""
        return SIDE * self.deep

    @property
    def rows(self) -> int:
        """Query rows of a group."""
        return self.own_rows * self.warps

    @property
    def key_pitch(self) -> int:
        """Elements from a staged query or key to the next."""
        return self.parts.width + PAD

    @property
    def value_pitch(self) -> int:
        return self.parts.value_width + PAD

    @property
    def own_width(self) -> int:
        """Channels of a key that its head alone has."""
        return self.parts.width - self.parts.shared

    @property
    def tiling(self) -> Tiling:
        return Tiling(self.parts, self.rows, self.tile, self.section)

    @property
    def score_pitch(self) -> int:
        """Floats from a row of scores in workgroup memory to the next."""
        return self.tile + PAD // 2

    @property
    def weight_pitch(self) -> int:
        """Elements from a row of weights in workgroup memory to the next."""
        return self.tile + PAD

    @property
    def is_paged(self) -> bool:
        return "read" in self.parts.at
