"""The CPU's attention schedule, "key_blocks": a group takes one key head's query rows, several at a
time, over blocks of keys that stay in its caches.

Rows of all query heads that share a key head stand together, so each key and value is read once for
them. A decode of few groups is cut into splits, which a second launch merges as `split_kv` does.
A group takes several key heads of a pool, whose rows hold all of them, so that a slot is read
whole, and of a split key, whose shared part is then read once for them; not where blocks are
selected, for each key head may have a list of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import int_attr
from poot.ir.graph import Eqn, Graph
from poot.ir.rules.selected import always_of
from poot.limits import DeviceLimits
from poot.planner.operands import keys_of, operands_of
from poot.planner.panels import GROUPS_A_THREAD, strip_rows
from poot.planner.request import Choice, Layout, Schedule, Scratch

# Vectors of keys in a block: its keys stay in a level-1 cache while strips go over them.
BLOCK_VECTORS = 4
# Query rows of a group at the most, and what is tried next where their arrays don't fit. 64 against
# 48 take 6 to 10 % off causal prompts of 1024, and nothing off ones of 512, at 64 to 256 channels
# on Zen 4: keys are turned less often, and a tile ends where a block does. 128 are no faster.
MOST_ROWS = (64, 48, 32, 16)
# Rows of all key heads of a group at the most, where it takes several.
MOST_TOGETHER = 48
# Rows of a strip at the most: a causal strip stops at its last row's key, and so much of the keys'
# and values' loads is shared (1.5 % off a prompt of 1024 on Zen 4, against 12 rows).
MOST_STRIP = 8
# So few rows of a key head are scored key by key, without turning the keys, which then are read in
# the order of memory: 1.4 to 2.2 times as fast as turned for up to 16 rows of 64 to 384 channels on
# Zen 4, 0.86 for 16 of 512. Half as many where a row has more vectors than the registers hold.
FEW_ROWS, WIDE = 16, 24
# A split has this many blocks at the least, or merging costs more than it gains.
LEAST_BLOCKS = 4
MOST_SPLITS = 16


@dataclass(frozen=True, slots=True)
class _Tile:
    """Query rows of a group, by strips, and the elements of workgroup memory that they leave for
    all key heads' states (`room`) and that one key head's take (`staying`)."""

    rows: int
    strip: int
    room: int
    staying: int

    @property
    def fits(self) -> bool:
        return self.staying <= self.room


@dataclass(frozen=True, slots=True)
class _Shape:
    """What decides about tiles: `total` query rows of a key head, channels of keys and values."""

    total: int
    width: int
    value_width: int
    is_paged: bool
    is_selected: bool
    limits: DeviceLimits

    @property
    def block(self) -> int:
        return BLOCK_VECTORS * self.limits.vector

    @property
    def is_few(self) -> bool:
        is_wide = max(self.width, self.value_width) > WIDE * self.limits.vector
        return self.total <= FEW_ROWS // (1 + is_wide)

    def under(self, most: int) -> _Tile:
        """The tile of up to `most` rows."""
        lanes, block, together = self.limits.vector, self.block, _evened(self.total, most)
        strip = together
        if not self.is_few:
            strip = min(strip_rows(together, self.limits), _evened(together, MOST_STRIP))
        together = -(-together // strip) * strip
        channels = -(-self.value_width // lanes) * lanes
        filled = -(-together // lanes) * lanes
        if self.is_few:  # of a head; pairs of all heads are filled up once
            passing = 3 * lanes * (lanes + block)
            staying = together * (self.width + channels + block) + together * lanes + 3 * filled
        else:
            passing = together * block + filled * (lanes + 1) + self.width * block
            staying = together * (self.width + channels) + filled * 2
        passing += (block if self.is_paged else 0) + (block + lanes if self.is_selected else 0)
        return _Tile(together, strip, self.limits.workgroup_nbytes // 4 - passing, staying)


def choose_key_blocks(body: Graph, limits: DeviceLimits) -> Choice | None:
    """The schedule of an attention step, or None where a block's arrays don't fit the workgroup
    memory."""
    (eqn,) = (e for e in body.eqns if e.op in ("attention", "selected_attention"))
    at = operands_of(eqn)
    batch, heads, rows, width = at["q"].type.shape
    value_width = eqn.outs[0].type.shape[-1]
    kv_heads = at["k"].type.shape[1]
    keys = keys_of(at)
    if "ids" in at:
        listed, ratio = at["ids"].type.shape[3], int_attr(eqn, "ratio")
        if rows != 1 or (at["ids"].type.shape[1] == heads != kv_heads):
            return None
        keys = min(keys, listed * ratio + always_of(eqn.attr("always")).reach(ratio))
    if not batch * heads * rows or not keys or not width or not value_width:
        return None
    shape = _Shape(heads // kv_heads * rows, width, value_width, "read" in at, "ids" in at, limits)
    found = next((x for x in map(shape.under, MOST_ROWS) if x.fits), None)
    if found is None:
        return None
    lanes, block, together = limits.vector, shape.block, found.rows
    tiles = -(-shape.total // together)
    most = 1
    if ("read" in at or "k_shared" in at) and "ids" not in at:
        most = min(MOST_TOGETHER // together, found.room // found.staying)
    head_sets, splits = _head_sets(batch * tiles, kv_heads, most, keys, block, limits)
    groups = batch * tiles * head_sets
    numbers = {
        "lanes": lanes, "block": block, "rows": together, "strip": found.strip, "splits": splits,
        "few": int(shape.is_few), "heads": kv_heads // head_sets,
    }  # fmt: skip
    scratch = (_partial_states(eqn, splits),) if splits > 1 else ()
    schedule = Schedule("key_blocks", tuple(sorted(numbers.items())))
    reason = f"{groups} groups of up to {together} rows, blocks of {block} keys, {splits} splits"
    if head_sets < kv_heads:
        reason += f", {kv_heads // head_sets} key heads together"
    return Choice(schedule, (Layout(),) * len(body.inputs), scratch, reason)


def _evened(count: int, most: int) -> int:
    """How many of `count` stand together where at most `most` may, evened out."""
    return -(-count // -(-count // most))


def _head_sets(
    groups: int, kv_heads: int, most: int, keys: int, block: int, limits: DeviceLimits
) -> tuple[int, int]:
    """(sets of key heads, splits): the fewest sets of at most `most` heads each whose groups, with
    splits, are as many as the threads want or as the heads alone would give."""
    alone = groups * kv_heads * _splits(groups * kv_heads, keys, block, limits)
    wanted = 1 if limits.cores == 1 else min(alone, limits.cores * GROUPS_A_THREAD // 2)
    for sets in range(1, kv_heads):
        splits = _splits(groups * sets, keys, block, limits)
        if kv_heads % sets == 0 and kv_heads // sets <= most and groups * sets * splits >= wanted:
            return sets, splits
    return kv_heads, _splits(groups * kv_heads, keys, block, limits)


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
