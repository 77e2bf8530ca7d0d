"""State updates of narrow dtypes where the target stores only whole words: one lane owns each word
that changes.

A word may hold elements of the update, of a neighbouring row of the same update, and of the old
State. Its owner is the row of its first new element; that lane makes the whole word, and reads
back the old elements in it, which nothing else writes.
"""

from __future__ import annotations

import math

from poot.codegen.gen.index import Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.gen.memory import Memory
from poot.codegen.gen.sinks import Sink, slice_start, update_axis
from poot.codegen.kir.build import BOOL, I32, U32, Val
from poot.ir.graph import Eqn


def _run(update: Eqn) -> tuple[int, int, int]:
    """(runs, elements a run, elements from one row to the next) of an update: each run is
    contiguous."""
    x, new, _ = update.ins
    axis = update_axis(update) if update.op == "dynamic_update_slice" else 0
    inner = math.prod(x.type.shape[axis + 1 :])
    if update.op == "scatter_update":
        return new.type.shape[0], inner, inner
    return math.prod(x.type.shape[:axis]), new.type.shape[axis] * inner, x.type.shape[axis] * inner


def _is_aligned(update: Eqn, per: int) -> bool:
    """Every run begins and ends at a word."""
    x = update.ins[0]
    axis = update_axis(update) if update.op == "dynamic_update_slice" else 0
    return math.prod(x.type.shape[axis + 1 :]) % per == 0


def _words_a_run(update: Eqn, per: int) -> int:
    _, run, _ = _run(update)
    return run // per if _is_aligned(update, per) else (run + per - 2) // per + 1


def update_words(sink: Sink) -> int:
    """Items to visit: every word that any run may touch, run by run."""
    assert sink.update is not None
    return _run(sink.update)[0] * _words_a_run(sink.update, sink.memory.cell.per)


def store_update_word(job: Job, sink: Sink, item: Index) -> None:
    """One word of an update. `item` counts words, run by run."""
    update, per = sink.update, sink.memory.cell.per
    assert update is not None
    run, word = job.indexer.divmod(item, _words_a_run(update, per))
    if _is_aligned(update, per):
        _store_whole(job, sink, run, word)
    elif update.op == "dynamic_update_slice":
        _store_slice_word(job, sink, update, run, word)
    else:
        _store_row_word(job, sink, update, run, word)


def _store_whole(job: Job, sink: Sink, run: Index, word: Index) -> None:
    """A word that lies wholly inside its run."""
    assert sink.update is not None
    per, ix = sink.memory.cell.per, job.indexer
    _, length, _ = _run(sink.update)
    first = run * length + word * per
    shape = sink.source.type.shape
    values = [job.pull.value(sink.source, ix.split(first + i, shape)) for i in range(per)]
    at, keep = sink.place(job, ix.split(first, shape))
    target, _ = ix.divmod(at, per)
    if keep is None:
        sink.memory.store_word(target, values)
    else:
        with job.k.if_(keep):
            sink.memory.store_word(target, values)


def _padded(memory: Memory) -> int:
    return -(-memory.elems // memory.cell.per) * memory.cell.per


def _elements(
    job: Job, sink: Sink, begin: Index, word: Index
) -> tuple[Index, list[tuple[Index, Val]]]:
    """(target word, its elements with whether each is in the buffer), the word counted from the
    run's begin."""
    ix, memory = job.indexer, sink.memory
    per = memory.cell.per
    first_word, _ = ix.divmod(begin, per)
    words = _padded(memory) // per
    target = ix.clamp(ix.value(first_word + word), words)
    inside: list[tuple[Index, Val]] = []
    for i in range(per):
        at = target * per + i
        inside.append((ix.clamp(ix.value(at), memory.elems), ix.below(at, memory.elems)))
    return target, inside


def _store_owned(
    job: Job, sink: Sink, target: Index, news: list[tuple[Val, Val, Val]], in_reach: Val
) -> None:
    """Stores a word from (is new, is own, new value) of its elements, if its first new element is
    own."""
    k, per = job.k, sink.memory.cell.per
    width = 32 // per
    owned = k.lit(False, BOOL)
    for is_new, is_own, _ in reversed(news):
        owned = k.select(is_new, is_own, owned)
    owned = in_reach & owned
    with k.if_(owned if sink.ok is None else owned & sink.ok):
        old = k.load(sink.memory.name, job.indexer.value(target))
        word = k.lit(0, U32)
        for i, (is_new, _, value) in enumerate(news):
            kept = (old >> (i * width)) & ((1 << width) - 1)
            made = job.numbers.to_bits(value, sink.memory.cell.dtype)
            word = word | (k.select(is_new, made, kept) << (i * width))
        k.store(sink.memory.name, job.indexer.value(target), word)


def _store_slice_word(job: Job, sink: Sink, update: Eqn, run: Index, word: Index) -> None:
    k, ix = job.k, job.indexer
    x, new, _ = update.ins
    axis = update_axis(update)
    shape, size = x.type.shape, new.type.shape[axis]
    inner = math.prod(shape[axis + 1 :])
    outer = ix.split(run, shape[:axis])
    begin = run * (shape[axis] * inner) + slice_start(job, update, outer) * inner
    first_word, _ = ix.divmod(begin, sink.memory.cell.per)
    in_reach = ix.value(first_word + word) < _padded(sink.memory) // sink.memory.cell.per
    target, elements = _elements(job, sink, begin, word)
    news: list[tuple[Val, Val, Val]] = []
    for at, is_there in elements:
        coords = ix.split(at, shape)
        first = slice_start(job, update, coords[:axis])
        place = ix.value(coords[axis] - first)
        is_new = is_there & (k.bitcast(place, U32) < size)
        source: Coords = (*coords[:axis], ix.clamp(place, size), *coords[axis + 1 :])
        row, _ = ix.divmod(at, shape[axis] * inner)
        is_own = ix.value(row).eq(ix.value(run))
        news.append((is_new, is_own, job.pull.value(new, source)))
    _store_owned(job, sink, target, news, in_reach)


def _store_row_word(job: Job, sink: Sink, update: Eqn, run: Index, word: Index) -> None:
    """A word of a scattered row that may hold a neighbour row's elements: those are looked for
    among the rows."""
    k, ix = job.k, job.indexer
    x, new, rows = update.ins
    extent, count = x.type.shape[0], new.type.shape[0]
    inner = math.prod(x.type.shape[1:])
    row = job.pull.value(rows, (run,))
    is_row = k.bitcast(row, U32) < extent
    begin = ix.clamp(row, extent) * inner
    first_word, _ = ix.divmod(begin, sink.memory.cell.per)
    in_reach = is_row & (ix.value(first_word + word) < _padded(sink.memory) // sink.memory.cell.per)
    target, elements = _elements(job, sink, begin, word)
    places = [ix.divmod(at, inner) for at, _ in elements]
    makers = [k.var(k.lit(-1, I32)) for _ in places]
    with k.if_(in_reach), k.for_(0, count) as j:
        named = job.pull.value(rows, (ix.atom(j, count),))
        for maker, (owner, _) in zip(makers, places, strict=True):
            k.set(maker, k.select(named.eq(ix.value(owner)), j, maker))
    news: list[tuple[Val, Val, Val]] = []
    for (_, is_there), maker, (owner, rest) in zip(elements, makers, places, strict=True):
        found = k.copy(maker)
        source = ix.split(rest, x.type.shape[1:])
        value = job.pull.value(new, (ix.clamp(found, count), *source))
        news.append((is_there & (found >= 0), ix.value(owner).eq(row), value))
    _store_owned(job, sink, target, news, in_reach)
