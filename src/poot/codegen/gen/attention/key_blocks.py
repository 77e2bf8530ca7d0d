"""Schedule "key_blocks": the CPU's attention. Lanes are keys in the scores, channels in the values.

A group holds `rows` query rows of one key head (row i: query i // repeat, head i % repeat), staged
once. For each block of keys it turns the keys to [d, key] in workgroup memory, makes the rows'
scores, takes one softmax step a row over the whole block, and adds the weighted values to the
rows' states, strip by strip in registers. A few rows are scored with lanes along d instead, a
vector of keys at a time, whose partial sums are added across lanes.

Of a paged key, a block's pool slots are read and clamped once, into workgroup memory. Of a paged
or split key, a group takes `heads` key heads where they fit, one after another over each block: a
pool row holds all of them, so that its bytes are read together, and a shared part is turned once
for them (with a few rows a key head it is read again for each, from the caches).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from functools import partial

from poot.codegen.gen.attention import few_rows
from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import Folded
from poot.codegen.gen.attention.key_group import (
    Group,
    each_head,
    placed,
    stage_slots,
    turn_keys,
    visited,
)
from poot.codegen.gen.attention.keys import Keys, key_range
from poot.codegen.gen.attention.parts import Parts, parts_in
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_under
from poot.codegen.gen.attention.split_kv import combine, state_type
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import open_job
from poot.codegen.gen.lanes import across, once, part
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.selection.visits import Slots, list_head, slots_of
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import I32, Val
from poot.limits import DeviceLimits
from poot.planner.request import Request

# Vectors of keys or channels whose sums a strip holds together.
PAIR = 2


def lower_key_blocks(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch; with splits, one that leaves partial states and one that merges them."""
    parts = parts_in(request.body)
    if request.schedule.get("splits") == 1:
        return Lowered((_call(request, limits, parts),))
    return Lowered((_call(request, limits, parts), combine(request, limits, parts)))


def _call(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    get = request.schedule.get
    lanes, rows, splits, heads = get("lanes"), get("rows"), get("splits"), get("heads")
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
    shape = (parts.batch, parts.kv_heads // heads, tiles, splits)
    count = math.prod(shape)
    k, ix = job.k, job.indexer
    with each_group(k, count, limits) as number:
        b, set_, tile, split = ix.split(ix.atom(number, count), shape)
        head = set_ * heads
        there = k.op("min", ix.value(tile * -rows + total), rows)
        keys = Keys(job, parts, b, head)
        slots: Slots | None = None
        if "ids" in parts.at:  # of a decode: its query heads share a list
            which = list_head(parts, head, head * parts.repeat)
            slots = slots_of(job, parts, b, which, Index(), lanes)
        group = Group(
            job,
            parts,
            lanes,
            get("block"),
            rows,
            get("strip"),
            bool(get("few")),
            heads,
            b,
            head,
            tile,
            there,
            keys,
            slots,
        )
        _declare(group)
        with each_head(group) as one:
            _stage_queries(one)
        if group.is_few:
            few_rows.empty_states(group)
        k.barrier()
        _run(group, split, splits)
        with each_head(group) as one:
            if states is None:
                _store_rows(one, sinks)
            else:
                _store_states(one, states, split, splits)
    return job.call(count)


def _declare(g: Group) -> None:
    k = g.job.k
    if g.is_few:
        few_rows.declare(g)
    else:
        k.shared("queries", "f32", g.parts.width * g.rows * g.heads)
        k.shared("turned", "f32", g.parts.width * g.block)
        k.shared("scores", "f32", g.rows * g.block)
        k.shared("acc", "f32", g.rows * g.channels * g.heads)
        for name in ("peaks", "sums"):
            k.shared(name, "f32", g.filled * g.heads)
        k.shared("shrinks", "f32", g.filled)
        k.shared("lanes", "f32", g.filled * g.lanes)
    if g.slots is not None:
        k.shared("slot_keys", "i32", g.block)
    if "read" in g.parts.at:
        k.shared("pool_slots", "i32", g.block * (2 if g.has_streams else 1))


def _stage_queries(g: Group) -> None:
    """Queries and empty states. Rows past the last are zeros."""
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
            place = ix.value(g.query(within, lane + first))
            if width < lanes:
                with k.if_(k.lane() < width):
                    k.store("queries", place, value)
            else:
                k.store("queries", place, value)
        for first in range(0, g.channels, lanes):
            k.store("acc", ix.value(g.channel(within, lane + first)), 0.0)
    if g.is_few:
        return
    for first in range(0, g.filled, lanes):
        k.store("peaks", g.state(k.lane() + first), NEG_INF)
        k.store("sums", g.state(k.lane() + first), 0.0)
    with k.for_(k.lane(), g.rows * g.block, lanes, name="s") as place:
        k.store("scores", place, 0.0)  # those that no row of a strip sees stay so
    for r in range(g.rows, g.filled):
        k.store("lanes", k.lane() + r * lanes, 0.0)


def _bounds(g: Group) -> tuple[Val, Val]:
    """(first, end) of the keys that some row of the tile sees."""
    k, ix = g.job.k, g.job.indexer
    if g.slots is not None:
        return k.lit(0, I32), g.slots.count
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
        stage_slots(g, start, end)
        if g.is_few:
            few_rows.visit(g, start, end, count)
        else:
            _visit(g, start, end, count)
    if g.is_few:
        few_rows.join_sums(g)


def _visit(g: Group, start: Val, end: Val, count: Val) -> None:
    """One block of keys."""
    k, own = g.job.k, g.parts.width - g.parts.shared
    is_shared_once = bool(g.parts.shared) and g.heads > 1
    together = PAIR * g.lanes
    turned = k.op("min", (count + (together - 1)) // together * PAIR, g.block // g.lanes)
    if is_shared_once:
        turn_keys(g, start, end, range(own, g.parts.width), turned)
    with each_head(g) as one:
        turn_keys(one, start, end, range(own if is_shared_once else g.parts.width), turned)
        k.barrier()
        _scores(one, start, count)
        k.barrier()
        _softmax(one, start, end)
        k.barrier()
        _values(one, start, count)
        k.barrier()


def _strips(g: Group) -> int:
    return g.rows // g.strip


def _pairs(vectors: int) -> list[tuple[int, ...]]:
    return [tuple(range(v, min(v + PAIR, vectors))) for v in range(0, vectors, PAIR)]


def _seen_by(g: Group, base: Val, start: Val, count: Val) -> Val:
    """How many of the block's keys some row of a strip sees, at the most."""
    k = g.job.k
    if g.parts.causal is None:
        return count
    last = g.job.indexer.atom(k.op("min", base + (g.strip - 1), g.count - 1), g.rows)
    return k.op("min", count, key_range(g.job, g.parts, g.row, g.where(last)[2])[1] - start)


def _scores(g: Group, start: Val, count: Val) -> None:
    """scores[row, key]: plain products, but of vectors of keys that no row of the strip sees."""
    k = g.job.k
    with k.for_(0, _strips(g), name="s") as s:
        seen = _seen_by(g, s * g.strip, start, count)
        for pair in _pairs(g.block // g.lanes):
            with k.if_(seen > pair[0] * g.lanes):
                _strip_scores(g, s * g.strip, pair)


def _strip_scores(g: Group, base: Val, vectors: tuple[int, ...]) -> None:
    k = g.job.k
    queries = g.job.indexer.value(g.query(ZERO, ZERO))
    sums = [[k.var(k.lit(0.0), name="s") for _ in vectors] for _ in range(g.strip)]
    with k.for_(0, g.parts.width, name="d") as d:
        row = d * g.block + k.lane()
        keys = [k.load("turned", row + v * g.lanes) for v in vectors]
        place = d * g.rows + base + queries
        for i, mine in enumerate(sums):
            query = k.load("queries", place + i)
            for total, key in zip(mine, keys, strict=True):
                k.set(total, k.fma(query, key, total))
    for i, mine in enumerate(sums):
        for v, total in zip(vectors, mine, strict=True):
            k.store("scores", (base + i) * g.block + k.lane() + v * g.lanes, total)


def _softmax(g: Group, start: Val, end: Val) -> None:
    """One step a row: scores become weights, in place; peaks, sums and shrinks follow. A row's
    lanes are joined with those of a vector of rows."""
    k, lanes = g.job.k, g.lanes
    with k.for_(0, g.rows, name="r") as r:
        most: Val | None = None
        for v, value in enumerate(_seen_scores(g, start, end, r)):
            k.store("scores", _score_place(g, r, v), value)
            most = value if most is None else k.op("nanmax", most, value)
        assert most is not None
        k.store("lanes", r * lanes + k.lane(), most)
    k.barrier()
    with k.for_(0, g.filled, lanes, name="r") as r:
        most = across(k, _lane_rows(g, r), lambda x, y: k.op("nanmax", x, y))
        got = step(k, k.load("peaks", g.state(r + k.lane())), most)
        k.store("peaks", g.state(r + k.lane()), got.peak)
        k.store("shrinks", r + k.lane(), got.shrink)
    k.barrier()
    with k.for_(0, g.rows, name="r") as r:
        peak, total = k.load("peaks", g.state(r)), None
        for v in range(g.block // lanes):
            weight = weight_under(k, k.load("scores", _score_place(g, r, v)), peak)
            k.store("scores", _score_place(g, r, v), weight)
            total = weight if total is None else total + weight
        assert total is not None
        k.store("lanes", r * lanes + k.lane(), total)
    k.barrier()
    with k.for_(0, g.filled, lanes, name="r") as r:
        total = across(k, _lane_rows(g, r), operator.add)
        at = g.state(r + k.lane())
        shrink = k.load("shrinks", r + k.lane())
        k.store("sums", at, k.fma(k.load("sums", at), shrink, total))


def _score_place(g: Group, row: Val, vector: int) -> Val:
    return row * g.block + g.job.k.lane() + vector * g.lanes


def _lane_rows(g: Group, first: Val) -> list[Val]:
    """What a vector of rows left in `lanes`."""
    k = g.job.k
    return [k.load("lanes", (first + j) * g.lanes + k.lane()) for j in range(g.lanes)]


def _seen_scores(g: Group, start: Val, end: Val, r: Val) -> Iterator[Val]:
    """A row's scores of the block with scale and mask, -inf where it doesn't see the key, or isn't
    there."""
    k, ix = g.job.k, g.job.indexer
    where = g.where(ix.atom(r, g.rows))
    if g.slots is not None:
        for v in range(g.block // g.lanes):
            is_seen = (k.load("slot_keys", k.lane() + v * g.lanes) >= 0) & (r < g.count)
            made = score(g.job, g.parts, k.load("scores", _score_place(g, r, v)), where, Index())
            yield k.select(is_seen, made, k.lit(NEG_INF))
        return
    low, high = key_range(g.job, g.parts, g.row, where[2])
    high = k.select(r < g.count, k.op("min", high, end), k.lit(0, I32))
    for v in range(g.block // g.lanes):
        at = start + v * g.lanes + k.lane()
        is_seen = at < high
        if g.parts.window is not None:
            is_seen = is_seen & (at >= low)
        product = k.load("scores", _score_place(g, r, v))
        key = ix.atom(at, g.parts.keys)
        if "bias" in g.parts.at or "mask" in g.parts.at:
            value = k.var(k.lit(NEG_INF), name="s")
            with k.if_(is_seen):
                k.set(value, score(g.job, g.parts, product, where, key))
            yield k.copy(value)
        else:
            made = score(g.job, g.parts, product, where, key)
            yield k.select(is_seen, made, k.lit(NEG_INF))


def _values(g: Group, start: Val, count: Val) -> None:
    """acc[row, channel] = acc * shrink + weights . values, a strip and a pair of vectors at a
    time."""
    k, ix, lanes = g.job.k, g.job.indexer, g.lanes
    acc = ix.value(g.channel(ZERO, ZERO))
    with k.for_(0, _strips(g), name="s") as s:
        base = s * g.strip
        seen = _seen_by(g, base, start, count)
        for pair in _pairs(g.channels // lanes):
            places = [
                [(base + i) * g.channels + k.lane() + v * lanes + acc for v in pair]
                for i in range(g.strip)
            ]
            sums: list[list[Val]] = []
            for i in range(g.strip):
                shrink = k.load("shrinks", base + i)
                sums.append([k.var(k.load("acc", p) * shrink, name="o") for p in places[i]])
            with k.for_(0, seen, name="j") as j, visited(g, start, j, count) as key:
                value_of, values = placed(g, [key], [j]).keys.value, list[Val]()
                for v in pair:
                    width = min(lanes, g.parts.value_width - v * lanes)
                    c = ix.atom(k.lane(), width) + v * lanes
                    values.append(part(k, width, lanes, partial(value_of, key, c)))
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
            return k.load("acc", ix.value(g.channel(within, c)))

        state = Folded(k.load("peaks", g.state(r)), k.load("sums", g.state(r)), channel)
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
            states.store(base + channel, k.load("acc", ix.value(g.channel(within, channel))))
        with once(k):
            states.store(base + width, k.load("peaks", g.state(r)))
            states.store(base + (width + 1), k.load("sums", g.state(r)))
