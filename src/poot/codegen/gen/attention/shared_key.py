"""Schedule "shared_key": split keys on any target, so that the part of a key that all heads share
is read once for as many query heads as workgroup memory holds.

A group takes `heads` query heads of one query row, over blocks of `block` keys. Of each block the
lanes stage the shared parts (and a pool's slots), share out the scores by head and key, make one
softmax step a head, and add the weighted values by key head and channel, up to `TOGETHER` query
heads at a load. Workgroup memory holds one state a head, dv + 3 floats. With `splits` a group takes
one of several chunks of the keys and leaves partial states, which "split_kv" merges.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from poot.codegen.gen.attention.finish import finish
from poot.codegen.gen.attention.fold import Folded
from poot.codegen.gen.attention.keys import Keys, key_range
from poot.codegen.gen.attention.parts import Parts, attention_eqn, parts_of
from poot.codegen.gen.attention.rows import Where
from poot.codegen.gen.attention.score import each_block, score
from poot.codegen.gen.attention.softmax import NEG_INF, step, weight_of
from poot.codegen.gen.attention.split_kv import chunk, combine, state_type
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import ZERO, Index, Indexer
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import KernelBuilder, Val
from poot.limits import DeviceLimits
from poot.planner.request import Request
from poot.planner.shared_key import STEP, TOGETHER, VECTOR, whole

# Lanes that a compute unit is to hold: 254 registers each on NVIDIA's, of which widths of 256 take
# 245. With more lanes, or without a bound, ptxas spills.
_LANES_HELD = 256


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

    def key(self, start: Val, within: Index) -> Index:
        """A block's key."""
        return self.job.indexer.atom(start + self.job.indexer.value(within), self.parts.keys)

    def slotted(self, keys: Keys, key: Index, within: Index) -> Keys:
        """The keys, with the pool slot of one of them as it is staged."""
        if "read" not in self.parts.at:
            return keys
        k, ix, pool = self.job.k, self.job.indexer, self.parts.at["k"].type.shape[0]
        found = ix.atom(k.load("pool_slots", ix.value(within)), pool)
        return replace(keys, slots={key: found})

    @property
    def query_stride(self) -> int:
        return whole(self.parts.width)

    @property
    def shared_stride(self) -> int:
        """Between the shared parts of neighbouring keys: lanes that read vectors of eight of them
        then meet in no bank."""
        return whole(self.parts.shared) + VECTOR

    @property
    def channels(self) -> int:
        """Neighbouring channels of one load."""
        return 1 if self.parts.value_width % VECTOR else VECTOR


def _words(k: KernelBuilder, name: str, base: Index, ix: Indexer, count: int) -> list[Val]:
    """Neighbouring floats of workgroup memory, in one load where they are a vector's."""
    if count == VECTOR and all(c % count == 0 for c in (base.const, *(c for _, c in base.terms))):
        vector = k.load(name, ix.value(base), count)
        return [k.extract(vector, n) for n in range(count)]
    return [k.load(name, ix.value(base + n)) for n in range(count)]


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
    job.k.residents = max(1, _LANES_HELD // lanes)
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
    k.shared("shared_parts", "f32", t.shared_stride * t.block)
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
    k.shared("queries", "f32", t.heads * t.query_stride)
    with t.each(t.heads * parts.width) as i:
        member, d = ix.divmod(i, parts.width)
        value = t.job.pull.value(parts.at["q"], (*t.where(member), d))
        k.store("queries", ix.value(member * t.query_stride + d), value)


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
    """The block's shared parts, each read once, and its pool slots."""
    k, ix, parts = t.job.k, t.job.indexer, t.parts
    keys = t.keys(ZERO)
    with t.each(t.block * parts.shared) as i:
        within, d = ix.divmod(i, parts.shared)
        with k.if_(ix.value(within) < count):
            place = ix.value(within * t.shared_stride + d)
            k.store("shared_parts", place, keys.shared(t.key(start, within), d))
    if "read" in parts.at:
        with t.each(t.block) as within, k.if_(ix.value(within) < count):
            k.store("pool_slots", ix.value(within), ix.value(keys.slot(t.key(start, within))))


def _score_keys(t: _Team, start: Val, count: Val) -> None:
    """scores[head, key] of the block, -inf past the last key."""
    k, ix = t.job.k, t.job.indexer
    with t.each(t.heads * t.block) as i:
        member, within = ix.divmod(i, t.block)
        value = k.var(k.lit(NEG_INF), name="s")
        with k.if_(ix.value(within) < count):
            key = t.key(start, within)
            product = _dot(t, member, key, within)
            k.set(value, score(t.job, t.parts, product, t.where(member), key))
        k.store("scores", ix.value(i), value)


def _dot(t: _Team, member: Index, key: Index, within: Index) -> Val:
    """q . k of a head and one of the block's keys, summed in f32."""
    k, ix, own = t.job.k, t.job.indexer, t.parts.width - t.parts.shared
    keys = t.slotted(t.keys(member), key, within)
    total = k.var(k.lit(0.0), name="dot")

    def add(queries: list[Val], elements: list[Val]) -> None:
        part = queries[0] * elements[0]
        for query, element in zip(queries[1:], elements[1:], strict=True):
            part = k.fma(query, element, part)
        k.set(total, total + part)

    def add_own(ds: list[Index]) -> None:
        add(_queries(t, member, ds[0], len(ds)), [keys.key(key, d) for d in ds])

    def add_shared(ds: list[Index]) -> None:
        at = within * t.shared_stride + ds[0]
        staged = _words(k, "shared_parts", at, ix, len(ds))
        add(_queries(t, member, ds[0] + own, len(ds)), staged)

    each_block(t.job, own, add_own)
    each_block(t.job, t.parts.shared, add_shared)
    return k.copy(total)


def _queries(t: _Team, member: Index, first: Index, count: int) -> list[Val]:
    """Neighbouring elements of a head's query."""
    if t.is_staged:
        at = member * t.query_stride + first
        return _words(t.job.k, "queries", at, t.job.indexer, count)
    q, where = t.parts.at["q"], t.where(member)
    return [t.job.pull.value(q, (*where, first + n)) for n in range(count)]


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
    k, ix, width, step = t.job.k, t.job.indexer, t.parts.value_width, t.channels
    with t.each(t.heads // t.together * (width // step)) as i:
        key_head, column = ix.divmod(i, width // step)
        for low in range(0, t.together, TOGETHER):
            many = min(TOGETHER, t.together - low)
            members = [key_head * t.together + (low + n) for n in range(many)]
            _add_channels(t, members, column * step, start, count)
    with t.each(t.heads) as h:
        at = ix.value(h)
        total = k.var(k.load("sums", at) * k.load("shrinks", at), name="total")
        for within in _each_key(t, count):
            k.set(total, total + k.load("scores", ix.value(h * t.block + within)))
        k.store("sums", at, total)


def _add_channels(t: _Team, members: list[Index], first: Index, start: Val, count: Val) -> None:
    """Some channels of some query heads of one key head, in registers over the block."""
    k, ix, width = t.job.k, t.job.indexer, t.parts.value_width
    keys, channels = t.keys(members[0]), [first + n for n in range(t.channels)]
    sums: list[list[Val]] = []
    for m in members:
        shrink = k.load("shrinks", ix.value(m))
        held = _words(k, "acc", m * width + first, ix, t.channels)
        sums.append([k.var(x * shrink, name="o") for x in held])
    for within in _each_key(t, count):
        key = t.key(start, within)
        at = t.slotted(keys, key, within)
        values = [at.value(key, c) for c in channels]
        for m, mine in zip(members, sums, strict=True):
            weight = k.load("scores", ix.value(m * t.block + within))
            for total, value in zip(mine, values, strict=True):
                k.set(total, k.fma(weight, value, total))
    for m, mine in zip(members, sums, strict=True):
        for c, total in zip(channels, mine, strict=True):
            k.store("acc", ix.value(m * width + c), total)


def _each_key(t: _Team, count: Val) -> Generator[Index]:
    """Each of the block's keys, `STEP` at a time and then the rest one by one."""
    k, ix = t.job.k, t.job.indexer
    steps = t.block // STEP
    with k.for_(0, count >> (STEP.bit_length() - 1), name="j") as j:
        for n in range(STEP):
            yield ix.atom(j, steps) * STEP + n
    with k.for_(count & ~(STEP - 1), count, name="j") as j:
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
