"""Schedule "tiled": attention of several query rows on Hopper's warpgroup products.

Numbers are those that were fastest on an H200: consumers of 64 query rows each, keys a tile,
registers of the role that copies and of those that multiply.
"""

from __future__ import annotations

from dataclasses import replace

from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.grouped import choose_grouped
from poot.planner.latent import choose_latent
from poot.planner.operands import keys_of, operands_of
from poot.planner.request import Choice, Layout, Schedule, Scratch
from poot.planner.subgroup_tiles import choose_subgroup_tiles

# Widths of keys and values -> consumers, keys a tile, registers of the producer and of a consumer.
_NUMBERS = {
    (64, 64): (3, 128, 32, 160), (128, 128): (2, 128, 40, 232), (256, 256): (2, 64, 40, 232),
    (192, 128): (2, 128, 40, 232), (128, 64): (2, 128, 40, 232), (64, 128): (2, 128, 40, 232),
}  # fmt: skip
_PANEL = 64
_ROWS = 64
# Keys and values of the heads that run side by side: about half of the level-2 cache.
_SECTION_NBYTES = 17_000_000


def why_not(body: Graph, eqn: Eqn, limits: DeviceLimits) -> str:
    """What keeps an attention from this schedule, or ""."""
    at = operands_of(eqn)
    if limits.arch != "sm_90a":
        return f"{limits.name} has no warpgroup products"
    if not limits.has_tensor_maps:
        return f"{limits.name} as it is driven has no tensor maps, by which tiled copies"
    q, k, v = at["q"].type, at["k"].type, at["v"].type
    widths = (q.shape[3], v.shape[-1])
    if "read" in at and ("k_shared" in at or widths[0] != widths[1]):
        return "tiled takes keys of a pool whole, and as wide as values"
    if "k_shared" in at and k.shape[-1] % _PANEL:
        return f"tiled has split keys in panels of {_PANEL} channels"
    inputs = {i.var.id for i in body.inputs}
    if any(at[n].id not in inputs for n in ("q", "k", "v", "k_shared") if n in at):
        return "queries, keys or values are computed, not read"
    if k.dtype not in ("f16", "bf16") or q.dtype != k.dtype or v.dtype != k.dtype:
        return f"tiled has no operands of {q.dtype} and {k.dtype}"
    if widths not in _NUMBERS:
        named = ", ".join(f"{a} to {b}" for a, b in _NUMBERS)
        return f"tiled has widths of keys and values {named}"
    return ""


def _section(heads: int, repeat: int, keys: int, width: int) -> int:
    """Query heads that run side by side: a divisor of all of them whose keys and values, `width`
    channels together, fit."""
    most = max(1, _SECTION_NBYTES // (2 * keys * width)) * repeat
    return next(n for n in range(min(most, heads), 0, -1) if heads % n == 0)


def choose_tiled(body: Graph, limits: DeviceLimits) -> Choice | str:
    """The schedule of an attention of several query rows, or why it is not taken."""
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    reason = why_not(body, eqn, limits)
    if reason:
        return reason
    batch, heads, rows, width = eqn.ins[0].type.shape
    at = operands_of(eqn)
    kv_heads, keys = at["k"].type.shape[1], keys_of(at)
    value_width = eqn.outs[0].type.shape[3]
    consumers, tile, least, most = _NUMBERS[width, value_width]
    consumers = min(consumers, -(-rows // _ROWS))
    params = {
        "consumers": consumers, "tile": tile, "producer_registers": least,
        "consumer_registers": most,
        "groups": min(limits.compute_units, batch * heads * -(-rows // (_ROWS * consumers))),
        "section": _section(batch * heads, heads // kv_heads, keys, width + value_width),
    }  # fmt: skip
    why = f"{rows} query rows, {consumers} x {_ROWS} a group, {tile} keys a tile"
    counters = (Scratch("u32", 2, True),)
    schedule = Schedule("tiled", tuple(sorted(params.items())))
    return Choice(schedule, (Layout(),) * len(body.inputs), counters, why)


def choose_on_card(body: Graph, limits: DeviceLimits) -> Choice | str:
    """A decode is grouped, or latent where its values are part of its keys; other attention is
    tiled, or in subgroup tiles where it can't be."""
    (eqn,) = (e for e in body.eqns if e.op == "attention")
    if eqn.ins[0].type.shape[2] != 1:
        tiled = choose_tiled(body, limits)
        if isinstance(tiled, Choice):
            return tiled
        portable = choose_subgroup_tiles(body, limits)
        if isinstance(portable, Choice):
            return replace(portable, reason=f"{portable.reason}; {tiled}")
        return f"{tiled}; {portable}"
    found = choose_grouped(body, limits)
    if isinstance(found, Choice):
        return found
    latent = choose_latent(body, limits)
    return latent if isinstance(latent, Choice) else f"{found}; {latent}"
