"""The schedules of block-selected attention: how many rows share a tile, how many splits share a
row's slots, and the scratch that they need.

Several query rows share a tile only where each has work enough of its own, a prefill's: then a
block that they all visit is read once. Splits are for steps of few tiles, and for devices that cut
long loops short.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.errors import AttentionLds, CapabilityError
from poot.ir.attrs import int_attr, strs_attr
from poot.ir.graph import Eqn, Graph
from poot.ir.rules.selected import Always, always_of
from poot.limits import DeviceLimits
from poot.planner.operands import keys_of, operands_of
from poot.planner.powers import power_of_two_below
from poot.planner.request import Schedule, Scratch

# Blocks that the union of lists goes over at a time.
WINDOW = 2048
# Query rows that share a tile at the most: bits of a word. And rows of a tile in all.
MOST_ROWS = 16
MOST_MEMBERS = 32
# Slots of a block, where several heads share a tile.
_BLOCKS = (64, 32, 16)
MOST_LANES = 256
# Registers of weighted values that a lane holds.
MOST_SUMS = 48
STRIP = 16
MOST_SPLITS = 16
# Slots of a split at the least: merging costs more than it gains below.
LEAST_SLOTS = 128
LONG_ROW = 8192
# Subgroups of the largest group.
WARPS = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """What the choice depends on."""

    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    width: int
    value_width: int
    lists: int
    listed: int
    ratio: int
    always: Always

    @property
    def sharing(self) -> int:
        """Query heads of a key head that share a list."""
        repeat = self.heads // max(self.kv_heads, 1)
        return 1 if self.lists == self.heads != self.kv_heads else repeat

    @property
    def slots(self) -> int:
        """Keys that one row visits at the most."""
        slots = self.listed * self.ratio + self.always.reach(self.ratio)
        return min(slots, -(-self.keys // self.ratio) * self.ratio)


def shape_of(eqn: Eqn) -> Shape:
    """The extents of a selected_attention eqn."""
    at = operands_of(eqn)
    batch, heads, rows, width = at["q"].type.shape
    kv_heads, ids = at["k"].type.shape[1], at["ids"].type.shape
    return Shape(
        batch, heads, kv_heads, rows, keys_of(at), width, at["v"].type.shape[-1], ids[1], ids[3],
         int_attr(eqn, "ratio"), always_of(eqn.attr("always")),
    )  # fmt: skip


def tile_nbytes(s: Shape, lanes: int, heads: int, rows: int, block: int) -> int:
    """The workgroup memory of a tile."""
    members = heads * rows
    stride = -(-s.width // 4) * 4
    floats = members * (stride + block + 3) + min(STRIP, members) * lanes + s.value_width
    return (floats + 2 * block + rows + lanes) * 4 + 128


def choose_selected(
    body: Graph, eqn: Eqn, limits: DeviceLimits
) -> tuple[Schedule, tuple[Scratch, ...], str]:
    """(schedule, scratch, reason) of a step around a selected_attention. Raises AttentionLds where
    not even one row fits the workgroup memory."""
    s = shape_of(eqn)
    lanes, heads, rows, block = _tile(s, limits, _may_share(body, eqn, limits))
    tiles = s.batch * (s.heads // heads) * -(-s.rows // rows)
    slots = s.slots if rows == 1 else union_room(eqn, rows) * s.ratio
    splits = _splits(s, tiles, slots, (lanes, heads * rows, block), limits)
    numbers = {
        "lanes": lanes, "threads": lanes, "heads": heads, "rows": rows, "block": block,
        "splits": splits,
    }  # fmt: skip
    scratch: list[Scratch] = []
    if rows > 1:
        unions = s.batch * s.lists * -(-s.rows // rows)
        room = union_room(eqn, rows)
        scratch = [Scratch("i32", unions * (1 + 2 * room))]
    if splits > 1:
        states = s.batch * s.heads * s.rows * splits * (s.value_width + 2)
        scratch.append(Scratch("f32", states))
    reason = (
        f"{tiles} tiles of {heads} heads and {rows} rows, blocks of {block} slots of {slots}, "
        f"{splits} splits"
    )
    return Schedule("selected", tuple(sorted(numbers.items()))), tuple(scratch), reason


def _may_share(body: Graph, eqn: Eqn, limits: DeviceLimits) -> bool:
    """Whether a launch can bind the union of lists besides what the step reads and makes; a list
    that is an input alone is not read then."""
    ids = eqn.ins[strs_attr(eqn, "operands").index("ids")]
    own = any(i.var.id == ids.id for i in body.inputs)
    return len(body.inputs) + len(body.outputs) + 1 - own <= limits.storage_buffers


def union_room(eqn: Eqn, rows: int) -> int:
    """How many blocks the lists of so many rows name at the most, their own blocks among them."""
    s = shape_of(eqn)
    return min(rows * (s.listed + s.always.blocks(s.ratio)), -(-s.keys // s.ratio))


def _tile(s: Shape, limits: DeviceLimits, may_share: bool) -> tuple[int, int, int, int]:
    """(lanes, heads, rows, slots of a block): the largest tile that fits, heads before rows."""
    least = 128 if limits.target == "ptx" else 64
    lanes = power_of_two_below(min(MOST_LANES, limits.threads, max(least, s.value_width)))
    sums = -(-s.value_width // lanes)
    for heads in _divisors(s.sharing):
        if heads > MOST_MEMBERS or heads * sums > max(MOST_SUMS, sums):
            continue
        for block in _BLOCKS if heads > 1 else (*_BLOCKS, 8, 4, 2, 1):
            few = block > 16 and block >= 2 * s.slots
            if block > lanes or few:
                continue
            if tile_nbytes(s, lanes, heads, 1, block) <= limits.workgroup_nbytes:
                rows = _rows(s, lanes, heads, block, limits) if may_share else 1
                return lanes, heads, rows, block
    raise AttentionLds(
        f"selected attention over keys {s.width} and values {s.value_width} wide needs "
        f"{tile_nbytes(s, lanes, 1, 1, 1)} bytes of workgroup memory for one row, and "
        f"{limits.name} has {limits.workgroup_nbytes}; split the value's width"
    )


def _divisors(n: int) -> list[int]:
    return [d for d in range(n, 0, -1) if n % d == 0]


def _rows(s: Shape, lanes: int, heads: int, block: int, limits: DeviceLimits) -> int:
    """Query rows of a tile: 1 for a decode; else as many as fit, and as leave tiles enough."""
    sums = -(-s.value_width // lanes)
    rows = min(MOST_ROWS, power_of_two_below(max(s.rows, 1)))
    while rows > 1:
        members = heads * rows
        fits = members <= MOST_MEMBERS and members * sums <= MOST_SUMS
        if fits and tile_nbytes(s, lanes, heads, rows, block) <= limits.workgroup_nbytes:
            return rows
        rows //= 2
    return 1


def _splits(
    s: Shape, tiles: int, slots: int, tile: tuple[int, int, int], limits: DeviceLimits
) -> int:
    lanes, members, block = tile
    wanted = 1
    if limits.loop_trips:
        inner = 8 + block + -(-s.width // 4) + 4 * -(-members * block // lanes) + 3 * block
        trips = -(-slots // block) * inner + s.listed + members * s.width // lanes
        wanted = -(-trips // (limits.loop_trips // 2))
    if s.rows == 1 and tiles < 2 * limits.compute_units:
        wanted = max(wanted, -(-2 * limits.compute_units // max(tiles, 1)))
        wanted = min(wanted, max(1, slots // LEAST_SLOTS)) if wanted > 1 else 1
    nbytes = s.batch * s.heads * s.rows * (s.value_width + 2) * 4
    while wanted > 1 and wanted * nbytes > min(limits.buffer_nbytes, limits.binding_nbytes):
        wanted -= 1
    return max(1, min(MOST_SPLITS, wanted))


# Blocks that one product takes, words of keys that a lane holds at a time, query heads of a
# product, and subgroups of a group.
SCORED = 16
_KEY_WORDS = 64
_SCORE_WARPS, _SCORE_RESIDENTS = 8, 2


def choose_block_scores(eqn: Eqn, limits: DeviceLimits) -> tuple[Schedule, str]:
    """How many tiles of 16 blocks a subgroup loads together, and how many groups share all of
    them. Raises CapabilityError where there is no kernel."""
    keys = eqn.ins[1].type
    batch, blocks, width = keys.shape
    known = limits.target == "ptx" and limits.has_matrix_units and limits.subgroup == 32
    if not known or keys.dtype not in ("f16", "bf16") or width % 32 or width > 256:
        raise CapabilityError(
            f"block_scores over keys {keys} has no kernel on {limits.name}; it is formed only "
            "where there is one"
        )
    turns = max(1, _KEY_WORDS // (width // 4))
    if batch * blocks <= SCORED * _SCORE_WARPS * _SCORE_RESIDENTS * limits.compute_units:
        turns = 1  # every subgroup has one tile, and fewer have two
    steps = batch * -(-blocks // (SCORED * turns))
    most = limits.compute_units * _SCORE_RESIDENTS
    groups = max(1, min(most, -(-steps // _SCORE_WARPS)))
    params = {
        "threads": 32 * _SCORE_WARPS, "turns": turns, "groups": groups,
        "residents": _SCORE_RESIDENTS,
    }  # fmt: skip
    reason = f"{batch} x {blocks} blocks of {width}, {turns} x {SCORED} at a time"
    return Schedule("block_scores", tuple(sorted(params.items()))), reason


# Words of a row that a lane holds in registers at the most, and lanes of such a group.
MOST_HELD = 32
HELD_LANES = (128, 256, 512, 1024)
# Lanes that hold a part of a row are to be few against its words, or looking at parts is in vain.
_WORDS_A_PART = 8


def _held(blocks: int, most: int, limits: DeviceLimits) -> Schedule | None:
    """The schedule that holds a row in registers, where subgroups are of 32 lanes and it fits."""
    if limits.target != "ptx" or limits.subgroup != 32:
        return None
    vector = 4 if blocks % 4 == 0 else 1
    lanes = next((n for n in HELD_LANES if blocks <= 8 * n), HELD_LANES[-1])
    vectors = -(-blocks // (lanes * vector))
    words = vectors * vector
    if words > MOST_HELD or lanes > limits.threads:
        return None
    if 4 * (words * lanes + 2 * lanes + 4 * WARPS) > limits.workgroup_nbytes:
        return None
    parts = next((n for n in (1, 2, 4) if n * lanes >= 2 * most), 0)
    if parts and (words % parts or words // parts < _WORDS_A_PART):
        parts = 0
    params = {
        "lanes": lanes, "threads": lanes, "vector": vector, "vectors": vectors, "parts": parts,
    }  # fmt: skip
    return Schedule("held_topk", tuple(sorted(params.items())))


def choose_best_blocks(eqn: Eqn, limits: DeviceLimits) -> tuple[Schedule, str]:
    """Lanes for a row of a block_topk, and whether its numbers are held in registers, or staged in
    workgroup memory."""
    blocks, most = eqn.ins[0].type.shape[3], eqn.out.type.shape[3]
    held = _held(blocks, most, limits)
    if held is not None:
        return held, f"{held.get('lanes')} lanes hold a row of {blocks} blocks, {most} taken"
    wide = 1024 if blocks >= LONG_ROW and limits.target == "ptx" else 256
    lanes = power_of_two_below(max(1, min(wide, limits.threads, max(blocks // 4, 16))))
    need = (256 + 32 + 3 * lanes + 4 * 64) * 4
    stage = int(need + 4 * blocks <= limits.workgroup_nbytes)
    reason = f"{lanes} lanes a row of {blocks} blocks, {most} taken" + ", staged" * stage
    return Schedule("block_topk", (("lanes", lanes), ("stage", stage), ("threads", lanes))), reason
