"""Schedule "held_topk": the k best candidate blocks of a row, its scores in the lanes' registers.

Scores become words that order as the op does, 0 where there is no candidate. A group of whole
subgroups holds a row: vector n of a lane is neighbouring blocks, the vectors of all lanes stand in
a row, and then the next n.

1. Of the largest word of each lane (of each of `parts` parts of it), the bin that holds the k-th
   largest: k words at the least are as large as its low end, so the k-th best of all is too.
2. The words as large as that go to a list in workgroup memory with their blocks. They are few, and
   the k-th largest of them is found by bins in bins.
3. Where more equal it than are taken, the last block that is, in the same way.
4. Taken blocks are bits of a map; every lane writes those of a word of it, in order.

Where words crowd together so that they are no few, all of the row's go there, in order: the same
steps over more words. Ids ascend, the lower block is first on ties, and no order of lanes matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import Coords
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.rank import order_key
from poot.codegen.gen.selection.crew import WARP, Crew
from poot.codegen.gen.selection.visits import candidates
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import I32, U32, Val
from poot.errors import CapabilityError
from poot.ir.graph import Eqn
from poot.limits import DeviceLimits
from poot.planner.request import Request

_LIST, _MAP = "listed", "map"
Use = Callable[[Val, Val], None]


@dataclass(frozen=True, slots=True)
class _Held:
    """A row in registers. `words` are a lane's, vector by vector; `wanted` of them are taken.
    `vector` blocks stand together in a lane."""

    crew: Crew
    vector: int
    words: tuple[Val, ...]
    wanted: Val

    def block(self, n: int) -> Val:
        """The block of the lane's n-th word."""
        step, beyond = divmod(n, self.vector)
        return self.crew.k.lane() * self.vector + (step * self.crew.lanes * self.vector + beyond)

    @property
    def all(self) -> int:
        """Words of the group."""
        return len(self.words) * self.crew.lanes


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
    (sink,) = open_sinks(job)
    batch, heads, rows, most = eqn.out.type.shape
    groups = batch * heads * rows
    with each_group(k, groups, limits) as group:
        b, h, r = job.indexer.split(job.indexer.atom(group, groups), (batch, heads, rows))
        count = k.op("min", candidates(job, eqn, eqn.ins[1], (b, r)), eqn.ins[0].type.shape[3])
        row = _Row(_load(job, eqn, (b, h, r), count), sink, (b, h, r), most)
        wanted = row.held.wanted
        with k.if_(k.op("agree", wanted > 0)):
            row.take()
        with k.for_(k.lane(), most, lanes, name="i") as i, k.if_(i >= wanted):
            sink.store(job, (b, h, r, job.indexer.atom(i, most)), k.lit(-1, I32))
    return Lowered((job.call(groups),))


def _load(job: Job, eqn: Eqn, lead: Coords, count: Val) -> _Held:
    """The row's words. No branch: all loads are on their way together."""
    k, get = job.k, job.request.schedule.get
    scores, lanes, vector = eqn.ins[0], get("lanes"), get("vector")
    blocks = scores.type.shape[3]
    words: list[Val] = []
    for step in range(get("vectors")):
        first = k.lane() + step * lanes
        base = job.indexer.within(first, blocks // vector, (step + 1) * lanes) * vector
        for n in range(vector):
            value = job.pull.value(scores, (*lead, base + n))
            word = k.bitcast(order_key(job, value, scores.type.dtype), U32) ^ 0x80000000
            # NaN has the word 0 and no number the next, up to -inf's.
            word = k.op("max", word, k.lit(1, U32))
            is_there = first * vector + n < count
            words.append(k.select(is_there, word, k.lit(0, U32)))
    wanted = k.op("min", count, eqn.out.type.shape[3])
    return _Held(Crew(job, lanes), vector, tuple(words), wanted)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row at work: where its ids go, how many there may be."""

    held: _Held
    sink: Sink
    lead: Coords
    most: int

    @property
    def crew(self) -> Crew:
        return self.held.crew

    def take(self) -> None:
        """Finds and writes the row's `wanted` blocks, one at least."""
        held, crew, k = self.held, self.crew, self.crew.k
        parts = crew.job.request.schedule.get("parts")
        size = len(held.words) // max(parts, 1)
        parted = (held.words[n * size : (n + 1) * size] for n in range(max(parts, 1)))
        tops = [_over(crew, words, "max") for words in parted]
        crew.clear()
        k.shared(_MAP, "u32", crew.lanes)
        k.store(_MAP, k.lane(), k.lit(0, U32))
        k.shared(_LIST, "u32", held.all)
        ends = crew.ends(*(_signed(crew, _over(crew, tops, kind)) for kind in ("min", "max")))
        low, high = (_unsigned(crew, x) for x in ends)
        if parts:
            found, _ = crew.binned(_each(tops), low, high - low, held.wanted)
            low = k.op("max", found.word, k.lit(1, U32))
        else:
            low = k.lit(1, U32)
        mine = k.lit(0, I32)
        for word in held.words:
            mine = mine + k.cast(word >= low, "i32")
        places = crew.scanned(mine)
        # A register of its own: words are compared again, not kept apart.
        edge = k.copy(low)
        with k.if_(k.op("agree", places.all <= held.all // 2)):
            self._list(edge, places.before)
            self._choose(lambda use: self._listed(places.all, use), low, high)
        with k.else_():
            for n, word in enumerate(held.words):
                k.store(_LIST, held.block(n), word)
            self._choose(self._every, k.lit(1, U32), high)
        k.barrier()
        self._write()

    def _list(self, low: Val, first: Val) -> None:
        """Words from `low` on and their blocks, a lane's from place `first` on."""
        held, k = self.held, self.crew.k
        at, half = k.var(first, name="at"), held.all // 2
        for n, word in enumerate(held.words):
            with k.if_(word >= low):
                place = k.copy(at)
                k.store(_LIST, place, word)
                k.store(_LIST, place + half, k.bitcast(held.block(n), U32))
                k.set(at, at + 1)

    def _listed(self, many: Val, use: Use) -> None:
        """Hands every word and block of the list over that is a lane's."""
        k = self.crew.k
        with k.for_(k.lane(), many, self.crew.lanes, unroll=1, name="i") as i:
            use(k.load(_LIST, i), k.load(_LIST, i + self.held.all // 2))

    def _every(self, use: Use) -> None:
        """The same of all words, each at its block."""
        k = self.crew.k
        with k.for_(k.lane(), self.held.all, self.crew.lanes, unroll=1, name="i") as i:
            use(k.load(_LIST, i), k.bitcast(i, U32))

    def _choose(self, items: Callable[[Use], None], low: Val, high: Val) -> None:
        """The blocks that are taken, as bits of the map."""
        crew, k = self.crew, self.crew.k
        k.barrier()
        found = crew.narrowed(
            lambda count: items(lambda word, block: count(word)), low, high, self.held.wanted
        )
        end = k.var(k.lit(self.held.all, U32), name="end")
        with k.if_(k.op("agree", found.same > found.left)):
            k.set(end, self._cut(items, found.word, found.left))
        edge = k.copy(end)

        def mark(word: Val, block: Val) -> None:
            is_taken = (word > found.word) | (word.eq(found.word) & (block < edge))
            with k.if_(is_taken):
                at = k.bitcast(block >> 5, I32)
                k.op("atomic", at, k.lit(1, U32) << (block & 31), type=U32, mem=_MAP, kind="or")

        items(mark)

    def _cut(self, items: Callable[[Use], None], word: Val, left: Val) -> Val:
        """Of words that equal the last one taken, `left` are: those before this block."""
        crew, k, last = self.crew, self.crew.k, self.held.all - 1

        def each(count: Callable[[Val], None]) -> None:
            def use(other: Val, block: Val) -> None:
                with k.if_(other.eq(word)):
                    count(k.lit(last, U32) - block)

            items(use)

        found = crew.narrowed(each, k.lit(0, U32), k.lit(last, U32), left)
        return k.lit(last + 1, U32) - found.word

    def _write(self) -> None:
        """A lane's word of the map: its blocks, at their places."""
        crew, k, job = self.crew, self.crew.k, self.crew.job
        bits = k.var(k.load(_MAP, k.lane()), U32, "bits")
        at = k.var(crew.scanned(_ones_of(crew, k.copy(bits))).before, name="at")
        with k.block_() as head:
            is_open = bits.ne(0)
        with k.while_(head, is_open):
            lowest = k.copy(bits & (k.lit(0, U32) - bits))
            place = k.bitcast(k.bitcast(k.cast(lowest, "f32"), U32) >> 23, I32) - 127
            where = (*self.lead, job.indexer.atom(k.copy(at), self.most))
            self.sink.store(job, where, k.lane() * 32 + place)
            k.set(bits, bits ^ lowest)
            k.set(at, at + 1)


def _each(words: list[Val]) -> Callable[[Callable[[Val], None]], None]:
    def hand(count: Callable[[Val], None]) -> None:
        for word in words:
            count(word)

    return hand


def _over(crew: Crew, values: Sequence[Val], kind: str) -> Val:
    """The least or the largest of a lane's words."""
    found = values[0]
    for v in values[1:]:
        found = crew.k.op(kind, found, v)
    return found


def _signed(crew: Crew, word: Val) -> Val:
    """An i32 in the order of the words."""
    return crew.k.bitcast(word ^ 0x80000000, I32)


def _unsigned(crew: Crew, value: Val) -> Val:
    return crew.k.bitcast(value, U32) ^ 0x80000000


def _ones_of(crew: Crew, word: Val) -> Val:
    """How many bits of a u32 are set."""
    k = crew.k
    pairs = word - ((word >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    bytes_ = (fours + (fours >> 4)) & 0x0F0F0F0F
    return k.bitcast((bytes_ * 0x01010101) >> 24, I32)
