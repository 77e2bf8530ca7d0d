"""Schedule "shared_key": split keys on any target, so that the part of a key that all heads share
is read once for as many query heads as workgroup memory holds.

A group takes `heads` query heads of one query row, over blocks of `block` keys. Of each block the
lanes stage the shared parts (and a pool's slots), share out the scores by head and key, make one
softmax step a head, and add the weighted values by key head and channel, up to `_TOGETHER` query
heads at a load. Workgroup memory holds one state a head, dv + 3 floats. With `splits` a group takes
one of several chunks of the keys and leaves partial states, which "split_kv" merges.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import Folded
from poot.codegen.gen.attention.keys import Keys, key_range
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.codegen.gen.attention.rows import Where
from poot.codegen.gen.attention.score import dot, each_block, score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_of
from poot.codegen.gen.attention.split_kv import chunk, combine, state_type
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.limits import DeviceLimits
from poot.planner.request import Request

# Query heads whose weighted values are added at one load of a value, and values loaded at a time.
_TOGETHER, _STEP = 8, 4


@dataclass(frozen=True, slots=True)
class _Team:
    """One group at work: query heads first .. first + heads - 1 of a query row."""

    job: Job
    parts: Parts
    lanes: int
    heads: int
    block: int
    is_staged: bool
    row: Index
    first: Index
    query: Index

    def where(self, member: Index) -> Where:
        return self.row, self.first + member, self.query

    @property
    def together(self) -> int:
        """Query heads of the group that share a key head."""
        return min(self.heads, self.parts.repeat)

    @contextmanager
    def each(self, extent: int) -> Generator[Index]:
        """The body for each of 0 .. extent - 1, dealt to the lanes in turn."""
        k = self.job.k
        with k.for_(k.lane(), extent, self.lanes, name="i") as i:
            yield self.job.indexer.atom(i, extent)

    def keys(self, member: Index) -> Keys:
        """The keys of the member's key head."""
        head, _ = self.job.indexer.divmod(self.first + member, self.parts.repeat)
        return Keys(self.job, self.parts, self.row, head)

    def key(self, start: Val, within: Index, keys: Keys) -> tuple[Index, Keys]:
        """A block's key, and the keys once its shared part and its pool slot are those staged."""
        k, ix = self.job.k, self.job.indexer
        place, key = ix.value(within), ix.atom(start + ix.value(within), self.parts.keys)
        slots: dict[Index, Index] = {}
        if "read" in self.parts.at:
            pool = self.parts.at["k"].type.shape[0]
            slots[key] = ix.atom(k.load("pool_slots", place), pool)

        def staged(d: Index) -> Val:
            return k.load("shared_parts", ix.value(d * self.block + within))

        return key, Keys(keys.job, keys.parts, keys.row, keys.head, slots, staged)


def lower_shared_key(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch; with splits, a second that merges them; one more for each output that is packed
    into words."""
    parts = parts_of(attention_eqn(request.body))
    calls = [_call(request, limits, parts)]
    if request.schedule.get("splits") > 1:
        calls.append(combine(request, limits, parts))
    return Lowered((*calls, *lower_spilled(request, limits)))


def _call(request: Request, limits: DeviceLimits, parts: Parts) -> KernelCall:
    get = request.schedule.get
    lanes, heads, splits = get("lanes"), get("heads"), get("splits")
    job = open_job(request, limits, "attention_shared_key", lanes)
    k, ix = job.k, job.indexer
    sinks: list[Sink] = []
    states: Memory | None = None
    if splits == 1:
        job.bind_inputs(skip=(i for _, i in request.updates), vector=4)
        sinks = open_sinks(job)
    else:
        job.bind_inputs(vector=4, only=needed_by(request.body, parts.eqn.ins))
        number, type = state_type(request)
        states = job.memory("states", type, "w", ("scratch", number))
    sets = parts.heads // heads
    count = parts.batch * sets * parts.rows * splits
    with each_group(k, count, limits) as number:
        shape = (parts.batch, sets, parts.rows, splits)
        b, set_, query, split = ix.split(ix.atom(number, count), shape)
        team = _Team(
            job, parts, lanes, heads, get("block"), bool(get("stage_q")), b, set_ * heads, query
        )
        _open(team)
        bounds = key_range(job, parts, b, query)
        first, end = chunk(job, bounds, split, splits) if splits > 1 else bounds
        with k.for_(first, end, team.block, name="t") as start:
            _visit(team, start, k.op("min", end - start, team.block))
        k.barrier()
        with k.for_(0, heads, name="h") as h:
            member = ix.atom(h, heads)
            if states is None:
                finish(job, parts, team.where(member), _state(team, member), lanes, sinks)
            else:
                _store_state(team, member, states, split, splits)
    return job.call(count)


def _open(t: _Team) -> None:
    """The group's arrays, with empty states and, where there is room, the queries."""
    k, ix, parts = t.job.k, t.job.indexer, t.parts
    k.shared("shared_parts", "f32", parts.shared * t.block)
    k.shared("scores", "f32", t.heads * t.block)
    k.shared("acc", "f32", t.heads * parts.value_width)
    for name in ("peaks", "sums", "shrinks"):
        k.shared(name, "f32", t.heads)
    if "read" in parts.at:
        k.shared("pool_slots", "i32", t.block)
    with t.each(t.heads * parts.value_width) as i:
        k.store("acc", ix.value(i), 0.0)
    with t.each(t.heads) as h:
        k.store("peaks", ix.value(h), NEG_INF)
        k.store("sums", ix.value(h), 0.0)
    if not t.is_staged:
        return
    k.shared("queries", "f32", t.heads * parts.width)
    with t.each(t.heads * parts.width) as i:
        member, d = ix.divmod(i, parts.width)
        value = t.job.pull.value(parts.at["q"], (*t.where(member), d))
        k.store("queries", ix.value(i), value)


def _visit(t: _Team, start: Val, count: Val) -> None:
    """One block of keys. The next block's shared parts may be staged while values are added: none
    is read after the scores."""
    k = t.job.k
    _stage(t, start, count)
    k.barrier()
    _score_keys(t, start, count)
    k.barrier()
    _fold_scores(t)
    k.barrier()
    _weigh(t)
    k.barrier()
    _add_values(t, start, count)
    if "read" in t.parts.at:
        k.barrier()  # slots are read up to here


def _stage(t: _Team, start: Val, count: Val) -> None:
    """The block's shared parts as [channel, key], each read once, and its pool slots."""
    k, ix, parts = t.job.k, t.job.indexer, t.parts
    keys = t.keys(ZERO)
    with t.each(t.block * parts.shared) as i:
        within, d = ix.divmod(i, parts.shared)
        with k.if_(ix.value(within) < count):
            key = ix.atom(start + ix.value(within), parts.keys)
            k.store("shared_parts", ix.value(d * t.block + within), keys.shared(key, d))
    if "read" in parts.at:
        with t.each(t.block) as within, k.if_(ix.value(within) < count):
            key = ix.atom(start + ix.value(within), parts.keys)
            k.store("pool_slots", ix.value(within), ix.value(keys.slot(key)))


def _score_keys(t: _Team, start: Val, count: Val) -> None:
    """scores[head, key] of the block, -inf past the last key."""
    k, ix = t.job.k, t.job.indexer
    with t.each(t.heads * t.block) as i:
        member, within = ix.divmod(i, t.block)
        value = k.var(k.lit(NEG_INF), name="s")
        with k.if_(ix.value(within) < count):
            where = t.where(member)
            key, keys = t.key(start, within, t.keys(member))
            product = dot(t.job, t.parts, lambda d: _query(t, member, d), keys, key)
            k.set(value, score(t.job, t.parts, product, where, key))
        k.store("scores", ix.value(i), value)


def _query(t: _Team, member: Index, d: Index) -> Val:
    """Element d of a head's query."""
    if t.is_staged:
        return t.job.k.load("queries", t.job.indexer.value(member * t.parts.width + d))
    return t.job.pull.value(t.parts.at["q"], (*t.where(member), d))


def _fold_scores(t: _Team) -> None:
    """Each head's maximum with the block's, and what its sums shrink by."""
    k, ix = t.job.k, t.job.indexer
    with t.each(t.heads) as h:
        most = k.var(k.lit(NEG_INF), name="most")

        def take(places: list[Index]) -> None:
            for place in places:
                k.set(most, k.op("nanmax", most, k.load("scores", ix.value(h * t.block + place))))

        each_block(t.job, t.block, take)
        got = step(k, k.load("peaks", ix.value(h)), k.copy(most))
        k.store("peaks", ix.value(h), got.peak)
        k.store("shrinks", ix.value(h), got.shrink)


def _weigh(t: _Team) -> None:
    """Scores become weights, in place."""
    k, ix = t.job.k, t.job.indexer
    with t.each(t.heads * t.block) as i:
        member, _ = ix.divmod(i, t.block)
        weight = weight_of(k, k.load("scores", ix.value(i)), k.load("peaks", ix.value(member)))
        k.store("scores", ix.value(i), weight)


def _add_values(t: _Team, start: Val, count: Val) -> None:
    """acc[head, c] = acc * shrink + weights . values, and the sums of the weights. Past the last
    key nothing is read: a weight of 0 hides no NaN."""
    k, ix, width = t.job.k, t.job.indexer, t.parts.value_width
    with t.each(t.heads // t.together * width) as i:
        key_head, c = ix.divmod(i, width)
        base = key_head * t.together
        keys = t.keys(base)
        for low in range(0, t.together, _TOGETHER):
            members = [base + n for n in range(low, min(t.together, low + _TOGETHER))]
            places = [ix.value(m * width + c) for m in members]
            sums = [
                k.var(k.load("acc", place) * k.load("shrinks", ix.value(m)), name="o")
                for m, place in zip(members, places, strict=True)
            ]
            for within in _each_key(t, count):
                key, at = t.key(start, within, keys)
                value = at.value(key, c)
                for m, total in zip(members, sums, strict=True):
                    weight = k.load("scores", ix.value(m * t.block + within))
                    k.set(total, k.fma(weight, value, total))
            for place, total in zip(places, sums, strict=True):
                k.store("acc", place, total)
    with t.each(t.heads) as h:
        at = ix.value(h)
        total = k.var(k.load("sums", at) * k.load("shrinks", at), name="total")
        for within in _each_key(t, count):
            k.set(total, total + k.load("scores", ix.value(h * t.block + within)))
        k.store("sums", at, total)


def _each_key(t: _Team, count: Val) -> Generator[Index]:
    """Each of the block's keys, `_STEP` at a time and then the rest one by one."""
    k, ix = t.job.k, t.job.indexer
    steps = t.block // _STEP
    with k.for_(0, count >> 2, name="j") as j:
        for n in range(_STEP):
            yield ix.atom(j, steps) * _STEP + n
    with k.for_(count & ~(_STEP - 1), count, name="j") as j:
        yield ix.atom(j, t.block)


def _state(t: _Team, member: Index) -> Folded:
    k, ix = t.job.k, t.job.indexer
    at = ix.value(member)

    def channel(c: Index) -> Val:
        return k.load("acc", ix.value(member * t.parts.value_width + c))

    return Folded(k.load("peaks", at), k.load("sums", at), channel)


def _store_state(t: _Team, member: Index, states: Memory, split: Index, splits: int) -> None:
    """A head's partial state as "split_kv" lays it: dv values, the maximum, the sum."""
    k, parts, state = t.job.k, t.parts, _state(t, member)
    b, head, query = t.where(member)
    row = (b * parts.heads + head) * parts.rows + query
    base = (row * splits + split) * (parts.value_width + 2)
    with t.each(parts.value_width) as c:
        states.store(base + c, state.channel(c))
    with k.if_(k.lane().eq(0)):
        states.store(base + parts.value_width, state.peak)
        states.store(base + (parts.value_width + 1), state.total)
