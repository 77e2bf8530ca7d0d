"""Where keys and values lie: dense, split into a part of each head and a shared one, or in
pools."""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.codegen.gen.attention.parts import Parts
from poot.codegen.gen.index import ZERO, Coords, Index
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import Val
from poot.planner.begins import Begin


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one batch row and key head, one key at a time. `slots` are pool slots already
    found, by key."""

    job: Job
    parts: Parts
    row: Index
    head: Index
    slots: dict[Index, Index] = field(default_factory=dict[Index, Index])

    def slot(self, key: Index) -> Index:
        """The pool slot of a paged key, inside the pool whatever the map says."""
        found = self.job.pull.value(self.parts.at["read"], (self.row, key))
        return self.job.indexer.clamp(found, self.parts.at["k"].type.shape[0])

    def _lead(self, key: Index) -> Coords:
        """Coordinates up to the last axis: (b, head, key), or (slot, head) in a pool."""
        if "read" not in self.parts.at:
            return (self.row, self.head, key)
        found = self.slots.get(key)
        return (self.slot(key) if found is None else found, self.head)

    def key(self, key: Index, d: Index) -> Val:
        """Element d of a key, as f32; d runs over the key's own part."""
        k = self.parts.at["k"]
        return self.job.pull.value(k, (*self._lead(key), d))

    def shared(self, key: Index, d: Index) -> Val:
        """Element d of the part that all heads share."""
        return self.job.pull.value(self.parts.at["k_shared"], (self.row, ZERO, key, d))

    def value(self, key: Index, c: Index) -> Val:
        """Channel c of a key's value, as f32."""
        v = self.parts.at["v"]
        return self.job.pull.value(v, (*self._lead(key), c))


def key_range(job: Job, parts: Parts, row: Index, query: Index) -> tuple[Val, Val]:
    """(first, end) of the keys that a query row may see: length, causal and window, inside
    0..keys."""
    k = job.k
    first, end = (
        k.lit(0, job.indexer.value(query).ty),
        k.lit(parts.keys, job.indexer.value(query).ty),
    )
    if "len" in parts.at:
        length = job.pull.value(parts.at["len"], (row,))
        end = k.op("min", k.op("max", length, 0), parts.keys)
    if parts.causal is not None:
        seen = job.indexer.value(query) + (parts.causal + 1)
        end = (
            k.op("min", end, k.op("max", seen, 0))
            if end.literal is None
            else k.op("min", k.op("max", seen, 0), end)
        )
    if parts.window is not None:
        begin = job.indexer.value(query) + ((parts.causal or 0) + 1 - parts.window)
        first = k.op("max", begin, 0)
    if parts.begin is not None:
        first = k.op("max", first, begin_at(job, parts, parts.begin, row))
    return first, end


def begin_at(job: Job, parts: Parts, begin: Begin, row: Index) -> Val:
    """The first key that a batch row sees by its limit, inside 0..keys."""
    k = job.k
    limit = job.pull.value(begin.limit, (row if begin.is_of_rows else ZERO, ZERO, ZERO, ZERO))
    near = k.op("min", k.op("max", limit, -1), parts.keys)  # no sum wraps
    return k.op("min", k.op("max", near + begin.more, 0), parts.keys)
