"""Schedule "held_topk": the k best candidate blocks of a row, its scores in the lanes' registers.

Scores become words that order as the op does. A group of whole subgroups holds a row: vector n of a
lane is neighbouring blocks, the vectors of all lanes stand in a row, and then the next n. The k-th
best is found in three steps, each a search bit by bit with one count of the group a bit:

1. of the largest word of each lane (of each of `parts` parts of it), the k-th largest, upper half
   alone: k words at the least are as large, so the k-th best of all is too;
2. of the words as large as that, which go to workgroup memory and are few, the k-th largest;
3. only where more words equal it than are taken: the block up to which they are.

Then every lane finds the place of its first taken block from the counts of the lanes before it, and
writes its blocks. Ids ascend, the lower block is first on ties, and no order of lanes matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.attributes import Attributes
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Coords
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.rank import order_key
from poot.codegen.gen.selection.visits import candidates
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import I32, U32, Val
from poot.errors import CapabilityError
from poot.ir.graph import Eqn
from poot.limits import DeviceLimits
from poot.planner.request import Request

WARP = 32
# Counts that are scanned together: bytes of a word. A subgroup's vectors hold 128 blocks each.
_PACKED = 4
# Bits of the largest words that the first search looks at.
_UPPER = 16
_KEPT, _COUNTS, _TOTALS, _FILL = "kept", "counts", "totals", "fill"


@dataclass(frozen=True, slots=True)
class Held:
    """A row in registers. `words` are a lane's, vector by vector; `count` how many candidates there
    are, `wanted` how many of them are taken. `vector` blocks stand together in a lane."""

    job: Job
    lanes: int
    vector: int
    words: tuple[Val, ...]
    wanted: Val

    @property
    def warps(self) -> int:
        return self.lanes // WARP

    def block(self, n: int) -> Val:
        """The block of the lane's n-th word."""
        step, beyond = divmod(n, self.vector)
        return self.job.k.lane() * self.vector + (step * self.lanes * self.vector + beyond)

    def over_group(self, name: str, mine: Val, kind: str) -> Val:
        """An i32 of every lane folded over the group, the same in all lanes. Control is uniform;
        a later call of the same name stands behind another barrier."""
        job, k = self.job, self.job.k
        own = k.op("subgroup_reduce", mine, kind=kind, width=WARP)
        warp, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
        k.need_shared(name, "i32", self.warps)
        with k.if_(lane.eq(0)):
            k.store(name, warp, own)
        k.barrier()
        if self.warps == WARP:
            theirs = k.load(name, lane)
        else:
            theirs = k.load(name, k.op("min", lane, self.warps - 1))
            if kind == "add":
                theirs = k.select(lane < self.warps, theirs, job.k.lit(0, I32))
        return k.op("agree", k.op("subgroup_reduce", theirs, kind=kind, width=WARP))

    def counted(self, turn: Val, mine: Val) -> Val:
        """The sum of a count of each lane. Calls take turns between two places, so that one barrier
        a call is enough: `turn` is 0 or 1."""
        k = self.job.k
        own = k.op("subgroup_reduce", mine, kind="add", width=WARP)
        warp, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
        k.need_shared(_COUNTS, "i32", 2 * self.warps)
        with k.if_(lane.eq(0)):
            k.store(_COUNTS, turn * self.warps + warp, own)
        k.barrier()
        there = k.op("min", lane, self.warps - 1) if self.warps < WARP else lane
        theirs = k.load(_COUNTS, turn * self.warps + there)
        if self.warps < WARP:
            theirs = k.select(lane < self.warps, theirs, k.lit(0, I32))
        return k.op("agree", k.op("subgroup_reduce", theirs, kind="add", width=WARP))


def lower_held_topk(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch, a group a row."""
    (eqn,) = (e for e in request.body.eqns if e.op == "block_topk")
    if [v.id for v in request.body.outputs] != [eqn.out.id]:
        raise CapabilityError("a step of block_topk gives its ids alone")
    lanes = request.schedule.get("lanes")
    job = open_job(request, limits, "held_topk", lanes)
    job.k.subgroup = WARP
    job.bind_inputs(vector=4)
    k = job.k
    k.do("grid_trigger")
    k.do("grid_wait")
    (sink,) = open_sinks(job)
    batch, heads, rows, most = eqn.out.type.shape
    groups = batch * heads * rows
    with each_group(k, groups, limits) as group:
        b, h, r = job.indexer.split(job.indexer.atom(group, groups), (batch, heads, rows))
        count = k.op("min", candidates(job, eqn, eqn.ins[1], (b, r)), eqn.ins[0].type.shape[3])
        held = _load(job, eqn, (b, h, r), count)
        last, place = _threshold(held, request.schedule.get("parts"))
        _write(held, sink, (b, h, r), most, last, place)
        with k.for_(k.lane(), most, lanes, name="i") as i, k.if_(i >= held.wanted):
            sink.store(job, (b, h, r, job.indexer.atom(i, most)), k.lit(-1, I32))
    call = job.call(groups)
    asked = Attributes(overlap=True)
    return Lowered((KernelCall(call.kernel, call.grid, call.args, attributes=asked),))


def _load(job: Job, eqn: Eqn, lead: Coords, count: Val) -> Held:
    """The row's words; 0, which no candidate but NaN has, where there is none. Candidates come
    before all others, so that of equal words they are taken first."""
    k, get = job.k, job.request.schedule.get
    scores, lanes, vector = eqn.ins[0], get("lanes"), get("vector")
    blocks = scores.type.shape[3]
    words: list[Val] = []
    for step in range(get("vectors")):
        # No branch: all loads are on their way together.
        first = k.lane() + step * lanes
        base = job.indexer.within(first, blocks // vector, (step + 1) * lanes) * vector
        for n in range(vector):
            value = job.pull.value(scores, (*lead, base + n))
            word = k.bitcast(order_key(job, value, scores.type.dtype), U32) ^ 0x80000000
            is_there = first * vector + n < count
            words.append(k.select(is_there, word, k.lit(0, U32)))
    wanted = k.op("min", count, eqn.out.type.shape[3])
    return Held(job, lanes, vector, tuple(words), wanted)


def _searched(
    held: Held, wanted: Val, low: Val, high: Val, bits: int, count: Callable[[Val], Val]
) -> Val:
    """The largest word of which `count` (a lane's, of words at least so large) gives `wanted` over
    the group: between low and high, its lowest 32 - bits bits zero, or low."""
    k = held.job.k
    found = k.var(k.lit(0, U32), name="found")
    turn = k.var(k.lit(0, I32), name="turn")
    with k.for_(0, bits, unroll=1, name="bit") as bit:
        trial = k.copy(found | (k.lit(0x80000000, U32) >> k.bitcast(bit, U32)))
        is_known = trial <= low
        with k.if_(is_known):
            k.set(found, trial)
        with k.if_(k.op("agree", ~is_known & (trial <= high))):
            total = held.counted(k.copy(turn), count(trial))
            k.set(turn, k.lit(1, I32) - turn)
            k.set(found, k.select(total >= wanted, trial, found))
    return k.copy(found)


def _ones(held: Held, flags: list[Val]) -> Val:
    """How many of a lane's flags hold."""
    total = held.job.k.cast(flags[0], "i32")
    for flag in flags[1:]:
        total = total + held.job.k.cast(flag, "i32")
    return total


def _largest(held: Held, values: tuple[Val, ...]) -> Val:
    top = values[0]
    for v in values[1:]:
        top = held.job.k.op("max", top, v)
    return top


def _threshold(held: Held, parts: int) -> tuple[Val, Val]:
    """(the word of the last block taken, the block before which words equal to it are taken)."""
    k, words = held.job.k, held.words
    size = len(words) // max(parts, 1)
    tops = [_largest(held, words[n * size : (n + 1) * size]) for n in range(parts)]
    own = k.bitcast(_largest(held, tuple(tops) if tops else words) ^ 0x80000000, I32)
    high = k.bitcast(held.over_group("tops", own, "max"), U32) ^ 0x80000000
    low = k.lit(0, U32)
    if parts:
        low = _searched(
            held, held.wanted, low, high, _UPPER, lambda t: _ones(held, [x >= t for x in tops])
        )
        k.barrier()
    many = _keep(held, low)

    def kept(trial: Val) -> Val:
        total = k.var(k.lit(0, I32), name="n")
        with k.for_(k.lane(), many, held.lanes, unroll=1, name="i") as i:
            k.set(total, total + k.cast(k.load(_KEPT, i) >= trial, "i32"))
        return k.copy(total)

    last = _searched(held, held.wanted, low, high, 32, kept)
    k.barrier()
    above = _ones(held, [w > last for w in words])
    equal = _ones(held, [w.eq(last) for w in words])
    both = held.counted(k.lit(0, I32), above + (equal << 16))
    over, same = both & 0xFFFF, (both >> 16) & 0xFFFF
    left = held.wanted - over
    place = k.var(k.lit((1 << 31) - 1, I32), name="place")
    with k.if_(k.op("agree", same > left)):
        k.barrier()
        k.set(place, _cut(held, last, left))
    return last, k.copy(place)


def _keep(held: Held, low: Val) -> Val:
    """The words that are `low` at least go to workgroup memory, in any order; how many they are."""
    k = held.job.k
    mine = _ones(held, [w >= low for w in held.words])
    k.need_shared(_KEPT, "u32", len(held.words) * held.lanes)
    k.need_shared(_FILL, "i32", 1)
    with k.if_(k.lane().eq(0)):
        k.store(_FILL, 0, 0)
    k.barrier()
    lane = k.op("subgroup_lane", type=I32)
    before = _before(held, mine)
    base = k.var(k.lit(0, I32), name="base")
    with k.if_(lane.eq(WARP - 1)):
        k.set(base, k.op("atomic", 0, before + mine, type=I32, mem=_FILL, kind="add"))
    at = k.var(k.op("subgroup_broadcast", k.copy(base), lane=WARP - 1) + before, name="at")
    with k.if_(mine > 0):
        for word in held.words:
            with k.if_(word >= low):
                k.store(_KEPT, k.copy(at), word)
                k.set(at, at + 1)
    k.barrier()
    return k.op("agree", k.load(_FILL, 0))


def _before(held: Held, mine: Val) -> Val:
    """The sum over the lanes of the subgroup before this one."""
    k, lane = held.job.k, held.job.k.op("subgroup_lane", type=I32)
    total = mine
    for d in (1, 2, 4, 8, 16):
        below = k.op("shuffle", total, k.op("max", lane - d, 0))
        total = total + k.select(lane >= d, below, k.lit(0, mine.ty))
    return total - mine


def _cut(held: Held, last: Val, left: Val) -> Val:
    """The block before which `left` words equal `last`, where there are more than that."""
    k = held.job.k
    place = k.var(k.lit(0, I32), name="cut")
    turn = k.var(k.lit(0, I32), name="turn")
    blocks = len(held.words) * held.lanes
    with k.for_(0, blocks.bit_length(), unroll=1, name="bit") as bit:
        trial = k.copy(place | (k.lit(1 << (blocks.bit_length() - 1), I32) >> bit))
        flags = [w.eq(last) & (held.block(n) < trial) for n, w in enumerate(held.words)]
        total = held.counted(k.copy(turn), _ones(held, flags))
        k.set(turn, k.lit(1, I32) - turn)
        k.set(place, k.select(total <= left, trial, place))
    return k.copy(place)


def _write(held: Held, sink: Sink, lead: Coords, most: int, last: Val, place: Val) -> None:
    """Every lane's taken blocks, at their places."""
    job, k, vector = held.job, held.job.k, held.vector
    taken = [(w > last) | (w.eq(last) & (held.block(n) < place)) for n, w in enumerate(held.words)]
    vectors = len(taken) // vector
    own = [_ones(held, taken[n * vector : (n + 1) * vector]) for n in range(vectors)]
    before, totals = _scanned(held, own)
    starts = _starts(held, totals)
    for n in range(vectors):
        with k.if_(own[n] > 0):
            at = k.var(starts[n] + before[n], name="at")
            for e in range(vector):
                flag = taken[n * vector + e]
                with k.if_(flag):
                    where = (*lead, job.indexer.atom(k.copy(at), most))
                    sink.store(job, where, held.block(n * vector + e))
                k.set(at, at + k.cast(flag, "i32"))


def _scanned(held: Held, own: list[Val]) -> tuple[list[Val], list[Val]]:
    """Of each vector's counts: the sum over the subgroup's lanes before, and over all of them.
    Several vectors share a word, a byte each: a subgroup's sum is at most 128."""
    k = held.job.k
    before: list[Val] = []
    totals: list[Val] = []
    for first in range(0, len(own), _PACKED):
        part = own[first : first + _PACKED]
        packed = part[0]
        for n, x in enumerate(part[1:], 1):
            packed = packed | (x << (8 * n))
        word = k.bitcast(packed, U32)
        sums = _before(held, word)
        all_ = k.op("subgroup_broadcast", sums + word, lane=WARP - 1)
        for n in range(len(part)):
            before.append(k.bitcast((sums >> (8 * n)) & 0xFF, I32))
            totals.append(k.bitcast((all_ >> (8 * n)) & 0xFF, I32))
    return before, totals


def _starts(held: Held, totals: list[Val]) -> list[Val]:
    """Where each vector's blocks of this subgroup start among all that are taken."""
    k, warps = held.job.k, held.warps
    warp, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
    k.need_shared(_TOTALS, "i32", len(totals) * warps)
    with k.if_(lane.eq(0)):
        for n, total in enumerate(totals):
            k.store(_TOTALS, n * warps + warp, total)
    k.barrier()
    starts: list[Val] = []
    carry = k.lit(0, I32)
    there = k.op("min", lane, warps - 1) if warps < WARP else lane
    for n in range(len(totals)):
        theirs = k.load(_TOTALS, n * warps + there)
        if warps < WARP:
            theirs = k.select(lane < warps, theirs, k.lit(0, I32))
        both = theirs + k.select(lane < warp, theirs << 16, k.lit(0, I32))
        both = k.op("subgroup_reduce", both, kind="add", width=WARP)
        starts.append(carry + (both >> 16))
        carry = carry + (both & 0xFFFF)
    return starts
