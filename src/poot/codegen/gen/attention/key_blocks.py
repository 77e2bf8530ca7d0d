"""Schedule "key_blocks": the CPU's attention. Lanes are keys in the scores, channels in the values.

A group holds `rows` query rows of one key head (row i: query i // repeat, head i % repeat), staged
once. For each block of keys it turns the keys to [d, key] in workgroup memory, makes the rows'
scores, takes one softmax step a row over the whole block, and adds the weighted values to the
rows' states, strip by strip in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import Folded
from poot.codegen.gen.attention.keys import Keys, key_range
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_of
from poot.codegen.gen.attention.split_kv import combine, state_type
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lanes import once, part, turned
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import I32, Val
from poot.limits import DeviceLimits
from poot.planner.request import Request

# Vectors of keys or channels whose sums a strip holds together.
PAIR = 2


@dataclass(frozen=True, slots=True)
class Group:
    """One group's kernel in the making: its place, and how many of its rows there are."""

    job: Job
    parts: Parts
    lanes: int
    block: int
    rows: int
    strip: int
    row: Index
    head: Index
    tile: Index
    count: Val
    keys: Keys

    @property
    def total(self) -> int:
        """Query rows of one key head."""
        return self.parts.repeat * self.parts.rows

    @property
    def channels(self) -> int:
        """Value channels, filled up to whole vectors."""
        return -(-self.parts.value_width // self.lanes) * self.lanes

    def where(self, within: Index) -> tuple[Index, Index, Index]:
        """(batch row, query head, query row) of a row of the tile."""
        ix = self.job.indexer
        flat = self.tile * self.rows + within
        if flat.high >= self.total:
            flat = ix.atom(ix.value(flat), self.total)
        query, member = ix.divmod(flat, self.parts.repeat)
        return self.row, self.head * self.parts.repeat + member, query


def lower_key_blocks(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch; with splits, one that leaves partial states and one that merges them."""
    parts = parts_of(attention_eqn(request.body))
    if request.schedule.get("splits") == 1:
        return Lowered((_call(request, limits, parts),))
    return Lowered((_call(request, limits, parts), combine(request, limits, parts)))


def _call(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    get = request.schedule.get
    lanes, rows, splits = get("lanes"), get("rows"), get("splits")
    job = open_job(request, limits, "attention_blocks", lanes)
    job.k.subgroup = lanes
    job.bind_inputs(skip=(i for _, i in request.updates))
    sinks: list[Sink] = []
    states: Memory | None = None
    if splits == 1:
        sinks = open_sinks(job)
    else:
        number, type = state_type(request)
        states = job.memory("states", type, "w", ("scratch", number))
    total = parts.repeat * parts.rows
    tiles = -(-total // rows)
    shape = (parts.batch, parts.kv_heads, tiles, splits)
    count = parts.batch * parts.kv_heads * tiles * splits
    k, ix = job.k, job.indexer
    with each_group(k, count, limits) as number:
        b, head, tile, split = ix.split(ix.atom(number, count), shape)
        there = k.op("min", ix.value(tile * -rows + total), rows)
        keys = Keys(job, parts, b, head)
        group = Group(
            job, parts, lanes, get("block"), rows, get("strip"), b, head, tile, there, keys
        )
        _declare(group)
        _stage_queries(group)
        _run(group, split, splits)
        if states is None:
            _store_rows(group, sinks)
        else:
            _store_states(group, states, split, splits)
    return job.call(count)


def _declare(g: Group) -> None:
    k = g.job.k
    k.shared("queries", "f32", g.parts.width * g.rows)
    k.shared("turned", "f32", g.parts.width * g.block)
    k.shared("scores", "f32", g.rows * g.block)
    k.shared("acc", "f32", g.rows * g.channels)
    for name in ("peaks", "sums", "shrinks"):
        k.shared(name, "f32", g.rows)


def _stage_queries(g: Group) -> None:
    """queries[d, row], and empty states. Rows past the last are zeros."""
    k, ix, lanes = g.job.k, g.job.indexer, g.lanes
    q = g.parts.at["q"]
    lane = ix.atom(k.lane(), lanes)
    with k.for_(0, g.rows, name="r") as r:
        within = ix.atom(r, g.rows)
        is_there = r < g.count
        for first in range(0, g.parts.width, lanes):
            width = min(lanes, g.parts.width - first)
            value = k.var(k.lit(0.0), name="q")
            with k.if_(is_there & (k.lane() < width)) if width < lanes else k.if_(is_there):
                d = ix.atom(k.lane(), width) + first
                k.set(value, g.job.pull.value(q, (*g.where(within), d)))
            place = ix.value((lane + first) * g.rows + within)
            if width < lanes:
                with k.if_(k.lane() < width):
                    k.store("queries", place, value)
            else:
                k.store("queries", place, value)
        for first in range(0, g.channels, lanes):
            k.store("acc", ix.value(within * g.channels + lane + first), 0.0)
        with once(k):
            k.store("peaks", r, NEG_INF)
            k.store("sums", r, 0.0)
    k.barrier()


def _bounds(g: Group) -> tuple[Val, Val]:
    """(first, end) of the keys that some row of the tile sees."""
    k, ix = g.job.k, g.job.indexer
    low = ix.atom(k.lit(0, I32), g.rows)
    high = ix.atom(g.count - 1, g.rows)
    first, end = key_range(g.job, g.parts, g.row, g.where(low)[2])
    last_first, last_end = key_range(g.job, g.parts, g.row, g.where(high)[2])
    return k.op("min", first, last_first), k.op("max", end, last_end)


def _run(g: Group, split: Index, splits: int) -> None:
    """Every block of keys between the bounds, or of the split's part of them."""
    k = g.job.k
    first, end = _bounds(g)
    if splits > 1:
        seen = k.op("max", end - first, 0)
        blocks = (seen + (g.block - 1)) // g.block
        size = ((blocks + (splits - 1)) // splits) * g.block
        first = first + size * g.job.indexer.value(split)
        end = k.op("min", first + size, end)
    with k.for_(first, end, g.block, name="t") as start:
        count = k.op("min", end - start, g.block)
        _turn_keys(g, start, end)
        k.barrier()
        _scores(g)
        k.barrier()
        _softmax(g, start, end)
        k.barrier()
        _values(g, start, count)
        k.barrier()


def _turn_keys(g: Group, start: Val, end: Val) -> None:
    """turned[d, key] of the block, square tile by square tile. Keys past the end repeat the last
    one; their scores are hidden."""
    k, ix, lanes = g.job.k, g.job.indexer, g.lanes
    own = g.parts.width - g.parts.shared
    tiles = g.block // lanes
    with k.for_(0, tiles, name="g") as tile:
        keys: list[Index] = []
        for j in range(lanes):
            at = start + tile * lanes + j
            keys.append(ix.atom(k.op("min", at, end - 1), g.parts.keys))
        for base, extent, element in (
            (0, own, g.keys.key),
            (own, g.parts.shared, g.keys.shared),
        ):
            for first in range(0, extent, lanes):
                width = min(lanes, extent - first)
                d = ix.atom(k.lane(), width) + first
                read = [
                    part(k, width, lanes, lambda key=key, d=d, of=element: of(key, d))
                    for key in keys
                ]
                for i, column in enumerate(turned(k, read)[:width]):
                    place = tile * lanes + k.lane() + (base + first + i) * g.block
                    k.store("turned", place, column)


def _strips(g: Group) -> int:
    return g.rows // g.strip


def _pairs(vectors: int) -> list[tuple[int, ...]]:
    return [tuple(range(v, min(v + PAIR, vectors))) for v in range(0, vectors, PAIR)]


def _scores(g: Group) -> None:
    """scores[row, key]: plain products."""
    k = g.job.k
    with k.for_(0, _strips(g), name="s") as s:
        base = s * g.strip
        for pair in _pairs(g.block // g.lanes):
            sums = [[k.var(k.lit(0.0), name="s") for _ in pair] for _ in range(g.strip)]
            with k.for_(0, g.parts.width, name="d") as d:
                row = d * g.block + k.lane()
                keys = [k.load("turned", row + v * g.lanes) for v in pair]
                place = d * g.rows + base
                for i, mine in enumerate(sums):
                    query = k.load("queries", place + i)
                    for total, key in zip(mine, keys, strict=True):
                        k.set(total, k.fma(query, key, total))
            for i, mine in enumerate(sums):
                for v, total in zip(pair, mine, strict=True):
                    place = (base + i) * g.block + k.lane() + v * g.lanes
                    k.store("scores", place, total)


def _softmax(g: Group, start: Val, end: Val) -> None:
    """One step a row: scores become weights, in place; peaks, sums and shrinks follow."""
    k, ix, lanes = g.job.k, g.job.indexer, g.lanes
    with k.for_(0, g.count, name="r") as r:
        within = ix.atom(r, g.rows)
        where = g.where(within)
        low, high = key_range(g.job, g.parts, g.row, where[2])
        high = k.op("min", high, end)
        made: list[Val] = []
        places: list[Val] = []
        for v in range(g.block // lanes):
            at = start + v * lanes + k.lane()
            place = r * g.block + v * lanes + k.lane()
            is_seen = at < high
            if g.parts.window is not None:
                is_seen = is_seen & (at >= low)
            value = k.var(k.lit(NEG_INF), name="s")
            with k.if_(is_seen):
                key = ix.atom(at, g.parts.keys)
                k.set(value, score(g.job, g.parts, k.load("scores", place), where, key))
            made.append(k.copy(value))
            places.append(place)
        most = made[0]
        for value in made[1:]:
            most = k.op("nanmax", most, value)
        most = k.op("subgroup_reduce", most, kind="max", width=lanes)
        got = step(k, k.load("peaks", r), most)
        weights = [weight_of(k, value, got.peak) for value in made]
        sum_ = weights[0]
        for w in weights[1:]:
            sum_ = sum_ + w
        sum_ = k.op("subgroup_reduce", sum_, kind="add", width=lanes)
        for place, w in zip(places, weights, strict=True):
            k.store("scores", place, w)
        total = k.fma(k.load("sums", r), got.shrink, sum_)
        k.barrier()
        with once(k):
            k.store("sums", r, total)
            k.store("peaks", r, got.peak)
            k.store("shrinks", r, got.shrink)
    with k.for_(g.count, g.rows, name="r") as r:
        for v in range(g.block // lanes):
            k.store("scores", r * g.block + v * lanes + k.lane(), 0.0)
        with once(k):
            k.store("shrinks", r, 1.0)


def _values(g: Group, start: Val, count: Val) -> None:
    """acc[row, channel] = acc * shrink + weights . values, a strip and a pair of vectors at a
    time."""
    k, ix, lanes = g.job.k, g.job.indexer, g.lanes
    with k.for_(0, _strips(g), name="s") as s:
        base = s * g.strip
        for pair in _pairs(g.channels // lanes):
            places = [
                [(base + i) * g.channels + k.lane() + v * lanes for v in pair]
                for i in range(g.strip)
            ]
            sums: list[list[Val]] = []
            for i in range(g.strip):
                shrink = k.load("shrinks", base + i)
                sums.append([k.var(k.load("acc", p) * shrink, name="o") for p in places[i]])
            with k.for_(0, count, name="j") as j:
                key = ix.atom(start + j, g.parts.keys)
                values: list[Val] = []
                for v in pair:
                    width = min(lanes, g.parts.value_width - v * lanes)
                    c = ix.atom(k.lane(), width) + v * lanes
                    values.append(part(k, width, lanes, lambda key=key, c=c: g.keys.value(key, c)))
                for i, mine in enumerate(sums):
                    weight = k.load("scores", (base + i) * g.block + j)
                    for total, value in zip(mine, values, strict=True):
                        k.set(total, k.fma(weight, value, total))
            for i, mine in enumerate(sums):
                for place, total in zip(places[i], mine, strict=True):
                    k.store("acc", place, total)


def _store_rows(g: Group, sinks: list[Sink]) -> None:
    k, ix = g.job.k, g.job.indexer
    with k.for_(0, g.count, name="r") as r:
        within = ix.atom(r, g.rows)

        def channel(c: Index) -> Val:
            return k.load("acc", ix.value(within * g.channels + c))

        state = Folded(k.load("peaks", r), k.load("sums", r), channel)
        finish(g.job, g.parts, g.where(within), state, g.lanes, sinks)


def _store_states(g: Group, states: Memory, split: Index, splits: int) -> None:
    """Partial states as `split_kv` lays them: dv values, the maximum, the sum."""
    k, ix, width = g.job.k, g.job.indexer, g.parts.value_width
    with k.for_(0, g.count, name="r") as r:
        within = ix.atom(r, g.rows)
        b, h, query = g.where(within)
        row = (b * g.parts.heads + h) * g.parts.rows + query
        base = (row * splits + split) * (width + 2)
        with k.for_(k.lane(), width, g.lanes, name="c") as c:
            channel = ix.atom(c, width)
            states.store(base + channel, k.load("acc", ix.value(within * g.channels + channel)))
        with once(k):
            states.store(base + width, k.load("peaks", r))
            states.store(base + (width + 1), k.load("sums", r))
