"""Schedule "latent": a decode over one key head whose values are the first channels of its keys, on
Hopper's warpgroup products.

That is what multi-head latent attention comes to once its queries are multiplied by the matrix that
makes keys: many query heads (128 in DeepSeek) and one latent row a token (512 channels and 64
turned ones). A latent row is read once, as key and as value, for 64 query heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.ir.attrs import int_attr, ints_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.limits import DeviceLimits
from poot.planner.operands import keys_of, operands_of
from poot.planner.request import Choice, Layout, Schedule, Scratch

# Query heads of a group, keys of a tile, columns of a panel of 128 bytes.
HEADS, TILE, PANEL = 64, 64, 64
# Tiles of latent rows in workgroup memory: one is multiplied while the next is copied.
STAGES = 2
# Warpgroups, each with half of a tile's keys and half of the channels.
SIDES = 2
_LANES = 256  # of the launch that merges
_MOST_SPLITS = 64
# What a group costs besides its tiles, in tiles: its queries, and a partial state.
_START_TILES = 4
_CHUNK = 8  # elements of 16 bits in a copy of 16 bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Where [B, 1, Lk, W] comes from: row t of batch row b is channels `first` and on of row
    b * Lk + t of `source`, or, with `index`, of row index[b, t]; `source` is an input of the step,
    and has rows as wide as its last axis."""

    source: Var
    index: Var | None
    first: int


def rows_of(body: Graph, var: Var, read: Var | None) -> Rows | None:
    """The rows of an operand, looked for through eqns that move no element and through a gather of
    whole rows; None where they are made otherwise. `read` is the map of a paged operand."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    inputs = {i.var.id for i in body.inputs}
    first, index = 0, read
    while var.id not in inputs:
        eqn = makers[var.id]
        x = eqn.ins[0]
        if eqn.op == "slice" and _is_of_channels(eqn):
            first += ints_attr(eqn, "start")[-1]
        elif eqn.op == "gather" and index is None and _takes_rows(eqn):
            index = eqn.ins[1]
        elif not _keeps_rows(eqn):
            return None
        var = x
    return Rows(var, index, first)


def _is_of_channels(eqn: Eqn) -> bool:
    """Whether a slice leaves all axes but the last whole, and has no steps."""
    lead = eqn.ins[0].type.shape[:-1]
    is_whole = ints_attr(eqn, "start")[:-1] == (0,) * len(lead)
    is_whole = is_whole and ints_attr(eqn, "stop")[:-1] == lead
    return is_whole and all(n == 1 for n in ints_attr(eqn, "step"))


def _takes_rows(eqn: Eqn) -> bool:
    """Whether a gather takes whole rows [..., W] of one place each, by a map of two axes."""
    shape = eqn.ins[0].type.shape
    is_row = len(shape) >= 2 and math.prod(shape[1:-1]) == 1
    return is_row and int_attr(eqn, "axis") == 0 and len(eqn.ins[1].type.shape) == 2


def _keeps_rows(eqn: Eqn) -> bool:
    """Whether rows stay whole, and in their order."""
    if eqn.op not in ("reshape", "transpose"):
        return False
    x, out = eqn.ins[0].type.shape, eqn.outs[0].type.shape
    if not x or not out or x[-1] != out[-1]:
        return False
    if eqn.op == "reshape":
        return True
    moved = [p for p in ints_attr(eqn, "perm") if x[p] > 1]
    return moved == sorted(moved) and ints_attr(eqn, "perm")[-1] == len(x) - 1


def why_not(body: Graph, eqn: Eqn, limits: DeviceLimits) -> str:
    """What keeps an attention from this schedule, or ""."""
    at = operands_of(eqn)
    q, k, v = at["q"].type, at["k"].type, at["v"].type
    if limits.arch != "sm_90a":
        return f"{limits.name} has no warpgroup products, on which latent multiplies"
    if q.shape[2] != 1 or k.shape[1] != 1:
        return "latent is for one query row and one key head"
    if k.dtype not in ("f16", "bf16") or q.dtype != k.dtype or v.dtype != k.dtype:
        return f"latent has no rows of {k.dtype}"
    shared = at["k_shared"].type.shape[-1] if "k_shared" in at else 0
    width, value_width = q.shape[3], v.shape[-1]
    own = width - shared
    if own % PANEL or shared % PANEL or value_width % (SIDES * PANEL):
        return f"latent has no keys of {own} and {shared} with values of {value_width}"
    if value_width > SIDES * 256 or value_width > own:
        return f"values of {value_width} are no part of keys of {own}, or too wide"
    read = at.get("read")
    keys, values = rows_of(body, at["k"], read), rows_of(body, at["v"], read)
    if keys is None or keys != values:
        return "values are not the first channels of the keys"
    apart = rows_of(body, at["k_shared"], None) if shared else keys
    if apart is None:
        return "the shared part of keys is computed, not read"
    if any(r.index and r.index.type.shape != (q.shape[0], keys_of(at)) for r in (keys, apart)):
        return "rows are gathered by a map of another shape"
    for rows in (keys, apart):
        if rows.source.type.shape[-1] % _CHUNK or rows.first % _CHUNK:
            return "rows are not whole pieces of 16 bytes"
    if nbytes_of(width) > limits.workgroup_nbytes:
        return f"keys of {width} take {nbytes_of(width)} bytes of workgroup memory"
    return ""


def nbytes_of(width: int) -> int:
    """Workgroup memory of a group: queries, tiles, weights, and maxima of both sides."""
    return (HEADS * width + STAGES * TILE * width + HEADS * TILE) * 2 + SIDES * HEADS * 4


def splits_of(units: int, keys: int, limits: DeviceLimits) -> int:
    """Parts of a unit's keys, a group each: as many as end first, the fewest of those."""
    tiles = -(-keys // TILE)

    def cost(splits: int) -> int:
        rounds = -(-units * splits // max(limits.compute_units, 1))
        return rounds * (-(-tiles // splits) + _START_TILES)

    return min(range(1, max(1, min(_MOST_SPLITS, tiles)) + 1), key=lambda n: (cost(n), n))


def choose_latent(body: Graph, limits: DeviceLimits) -> Choice | str:
    """The schedule of a decode over latent rows, or why it is not taken."""
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    reason = why_not(body, eqn, limits)
    if reason:
        return reason
    at = operands_of(eqn)
    batch, heads = at["q"].type.shape[:2]
    keys = keys_of(at)
    sets = -(-heads // HEADS)
    splits = splits_of(batch * sets, keys, limits)
    elems = batch * heads * splits * (at["v"].type.shape[-1] + 2)
    if elems * 4 > min(limits.buffer_nbytes, limits.binding_nbytes):
        return f"partial states of {elems * 4} bytes pass the largest buffer"
    schedule = Schedule("latent", (("lanes", _LANES), ("sets", sets), ("splits", splits)))
    why = f"{batch * sets} units of up to {HEADS} query heads, {splits} parts of keys each"
    return Choice(schedule, (Layout(),) * len(body.inputs), (Scratch("f32", elems),), why)
