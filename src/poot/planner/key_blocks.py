"""The CPU's attention schedule, "key_blocks": a group takes one key head's query rows, several at a
time, over blocks of keys that stay in its caches.

Rows of all query heads that share a key head stand together, so each key and value is read once for
them. A decode of few groups is cut into splits, which a second launch merges as `split_kv` does.
"""

from __future__ import annotations

from typing import cast

from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.planner.panels import GROUPS_A_THREAD, strip_rows
from poot.planner.request import Choice, Layout, Schedule, Scratch

# Vectors of keys in a block, and query rows of a group at the most: both keep a block's arrays near
# a level-1 cache.
BLOCK_VECTORS = 4
MOST_ROWS = 48
# So few rows of a group are scored key by key, without turning the keys: turning 16 keys takes four
# times what adding up their products takes.
FEW_ROWS = 3
# A split has this many blocks at the least, or merging costs more than it gains.
LEAST_BLOCKS = 4
MOST_SPLITS = 16


def choose_key_blocks(body: Graph, limits: DeviceLimits) -> Choice | None:
    """The schedule of an attention step, or None where a block's arrays don't fit the workgroup
    memory."""
    (eqn,) = (e for e in body.eqns if e.op in ("attention", "selected_attention"))
    names = cast("tuple[str, ...]", eqn.attr("operands"))  # the typing rule says so
    at = dict(zip(names, eqn.ins, strict=True))
    batch, heads, rows, width = at["q"].type.shape
    value_width = eqn.outs[0].type.shape[-1]
    kv_heads = at["k"].type.shape[1]
    keys = at["read"].type.shape[1] if "read" in at else at["k"].type.shape[2]
    if "ids" in at:
        listed, ratio = at["ids"].type.shape[3], int_attr(eqn, "ratio")
        if rows != 1 or (at["ids"].type.shape[1] == heads != kv_heads):
            return None
        keys = min(keys, (listed + 1) * ratio)
    if not batch * heads * rows or not keys or not width or not value_width:
        return None
    lanes = limits.vector
    block = BLOCK_VECTORS * lanes
    together = min(heads // kv_heads * rows, MOST_ROWS)
    is_few = together <= FEW_ROWS
    strip = strip_rows(together, limits)
    together = -(-together // strip) * strip
    channels = -(-value_width // lanes) * lanes
    filled = -(-together // lanes) * lanes
    floats = width * together + together * (block + channels) + filled * (lanes + 3)
    floats += 0 if is_few else width * block
    floats += block + lanes if "ids" in at else 0
    if floats * 4 > limits.workgroup_nbytes:
        return None
    tiles = -(-(heads // kv_heads * rows) // together)
    groups = batch * kv_heads * tiles
    splits = _splits(groups, keys, block, limits)
    numbers = {
        "lanes": lanes, "block": block, "rows": together, "strip": strip, "splits": splits,
        "few": int(is_few),
    }  # fmt: skip
    scratch = (_partial_states(eqn, splits),) if splits > 1 else ()
    schedule = Schedule("key_blocks", tuple(sorted(numbers.items())))
    reason = f"{groups} groups of up to {together} rows, blocks of {block} keys, {splits} splits"
    return Choice(schedule, (Layout(),) * len(body.inputs), scratch, reason)


def _splits(groups: int, keys: int, block: int, limits: DeviceLimits) -> int:
    """Splits of the keys that give every thread its groups; 1 where there are groups enough."""
    wanted = limits.cores * GROUPS_A_THREAD // 2
    if limits.cores == 1 or groups >= wanted:
        return 1
    most = keys // (block * LEAST_BLOCKS)
    return max(1, min(-(-wanted // groups), most, MOST_SPLITS))


def _partial_states(eqn: Eqn, splits: int) -> Scratch:
    batch, heads, rows, width = eqn.outs[0].type.shape
    return Scratch("f32", batch * heads * rows * splits * (width + 2))
