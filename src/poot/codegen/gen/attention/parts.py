"""An attention eqn taken apart: its operands by name, its extents, its attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from poot.ir.graph import Eqn, Graph, Var
from poot.planner.begins import Begin, begin_of
from poot.planner.operands import keys_of, operands_of


@dataclass(frozen=True, slots=True)
class Parts:
    """q [B,Hq,Lq,Dk]; keys `keys` long of `kv_heads` heads; the last `shared` of Dk come from
    k_shared."""

    eqn: Eqn
    at: dict[str, Var]
    batch: int
    heads: int
    rows: int
    width: int
    kv_heads: int
    keys: int
    value_width: int
    shared: int
    scale: float
    softcap: float | None
    mask_fill: float | None
    causal: int | None
    window: int | None
    # The first keys' end, where a mask said that and no more: then it isn't in `at`.
    begin: Begin | None = None

    @property
    def repeat(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def out(self) -> Var:
        return self.eqn.outs[0]

    @property
    def lse(self) -> Var | None:
        return self.eqn.outs[1] if len(self.eqn.outs) > 1 else None


def attention_eqn(body: Graph) -> Eqn:
    """The body's only attention eqn, over all keys or over selected blocks."""
    (eqn,) = (e for e in body.eqns if e.op in ("attention", "selected_attention"))
    return eqn


def parts_of(eqn: Eqn) -> Parts:
    """The eqn's parts; its typing rule has proved that they fit."""
    at = operands_of(eqn)
    batch, heads, rows, width = at["q"].type.shape
    k, v = at["k"].type.shape, at["v"].type.shape
    keys = keys_of(at)
    shared = at["k_shared"].type.shape[-1] if "k_shared" in at else 0

    def number(name: str) -> float | None:
        value = eqn.attr(name)
        return float(value) if isinstance(value, (int, float)) else None

    def whole(name: str) -> int | None:
        value = eqn.attr(name)
        return value if isinstance(value, int) else None

    return Parts(
        eqn, at, batch, heads, rows, width, k[1], keys, v[-1], shared,
        number("scale") or 0.0, number("softcap"), number("mask_fill"), whole("causal"),
        whole("window"),
    )  # fmt: skip


def parts_in(body: Graph) -> Parts:
    """The parts of the body's attention. A mask that only says where a decode's keys begin is
    `begin`, no operand."""
    parts = parts_of(attention_eqn(body))
    begin = begin_of(body, parts.eqn)
    if begin is None:
        return parts
    at = {name: var for name, var in parts.at.items() if name != "mask"}
    return replace(parts, at=at, mask_fill=None, begin=begin)
