"""The role that multiplies: a warpgroup of 64 query rows.

Two products are in flight at once: S of the next tile, and O += P V of this one. Consumers take
turns to issue them. The maximum moves only past 2^8 of what it was. Keys run from the last tile
down, so that tiles with hidden keys come first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.attention.blocks import Block, block_of
from poot.codegen.gen.attention.quad_rows import Rows
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.tiled.copies import (
    KEYS,
    QUERIES,
    QUERIES_EMPTY,
    QUERIES_FULL,
    VALUES,
    Ring,
)
from poot.codegen.gen.attention.tiled.shape import (
    PANEL,
    ROWS,
    STAGES,
    WARPGROUP,
    Form,
)
from poot.codegen.gen.attention.tiled.turns import slot_of
from poot.codegen.gen.job import Job
from poot.codegen.kir.build import F32, I32, Val
from poot.codegen.kir.nodes import Frag, Token, Ty

_LOG2E = math.log2(math.e)
# Below every product, and small enough that its own scaling stays finite.
_LEAST = -1.0e30
_LEAST_SCORE = -3.4028234663852886e38
_SLACK = 8.0
_WGMMA = Token("wgmma")
PAIR = Ty("f32", 2)


@dataclass(frozen=True, slots=True)
class Place:
    """Who a lane is in a block: its consumer, its first query row (and that + 8), twice its column
    pair, and whether it speaks for its subgroup."""

    own: Val
    row: Val
    column: Val
    leads: Val


class Consumer:
    """One consumer's registers, and the steps of its loop."""

    block: Block
    place: Place
    base: Val
    slot: Val

    def __init__(self, job: Job, form: Form) -> None:
        self.job, self.form, self.k = job, form, job.k
        k, parts = job.k, form.parts
        is_bare = parts.softcap is None and not {"bias", "mask"} & set(parts.at)
        self.is_plain = is_bare and parts.scale > 0
        self.scale = (parts.scale if self.is_plain else 1.0) * _LOG2E
        thread, lane = k.lane(), k.op("subgroup_lane", type=I32)
        self.own = (thread >> 7) - 1
        self.inside = ((thread >> 5) & 3) * 16 + (lane >> 2)
        self.column, self.leads = (lane & 3) * 2, lane.eq(0)
        self.mine = self.own + 1
        is_last = self.mine.eq(form.consumers)
        self.following = k.select(is_last, k.lit(1, I32), self.mine + 1)
        with k.if_(is_last):
            k.do("barrier_arrive", 1, threads=2 * WARPGROUP)
        self.taken = k.var(k.lit(0, I32), I32)
        self.sums = Frag("wgmma", "acc", ROWS, form.tile, "f32")
        self.outs = Frag("wgmma", "acc", ROWS, form.value_width, "f32")
        self.weights = Frag("wgmma", "a", ROWS, form.tile, form.dtype)
        zero = k.op("frag_fill", k.lit(0.0), type=self.sums)
        self.s = k.var(zero)
        self.acc = k.var(k.op("frag_fill", k.lit(0.0), type=self.outs))
        self.p = k.var(k.op("frag_cast", zero, type=self.weights))
        self.least = _LEAST if self.is_plain else _LEAST_SCORE
        self.most = [k.var(k.lit(self.least), F32) for _ in range(2)]
        self.total = [k.var(k.lit(0.0), F32) for _ in range(2)]
        self.shrink = [k.var(k.lit(1.0), F32) for _ in range(2)]

    # Products

    def _products(self, number: Val) -> Val:
        """S of a tile begins."""
        k, form = self.k, self.form
        stage, _ = slot_of(number, STAGES)
        queries = self.slot * form.query_elems
        self._wgmma(self.s, queries, stage * form.key_elems, a=QUERIES, b=KEYS.array, k=form.width,
                    stride_a=ROWS * PANEL, stride_b=form.tile * PANEL, zero=True)  # fmt: skip
        return k.op("wgmma_commit", type=_WGMMA)

    def _sum_values(self, number: Val) -> Val:
        """O += P V of a tile begins."""
        k, form = self.k, self.form
        stage, _ = slot_of(number, STAGES)
        self._wgmma(self.acc, self.p, stage * form.value_elems, b=VALUES.array, k=form.tile,
                    stride_b=form.tile * PANEL, trans_b=True)  # fmt: skip
        return k.op("wgmma_commit", type=_WGMMA)

    def _wgmma(self, dst: Val, left: Val, right: Val, /, **attrs: object) -> None:
        self.k.into("wgmma", dst, left, right, **attrs)

    def _wait_full(self, ring: Ring, number: Val) -> None:
        stage, parity = slot_of(number, STAGES)
        self.k.do("mbar_wait", stage, parity, mem=ring.full)

    def _release(self, ring: Ring, number: Val) -> None:
        stage, _ = slot_of(number, STAGES)
        with self.k.if_(self.leads):
            self.k.do("mbar_arrive", stage, mem=ring.empty)

    # The loop

    def begin(self, number: Val, turn: Val) -> None:
        """An empty state, and the block of that number. Its tiles follow those of the blocks
        before in the rings."""
        k = self.k
        self.block = block_of(self.job, self.form.tiling, number)
        row = self.block.first_query + self.own * ROWS + self.inside
        self.place = Place(self.own, row, self.column, self.leads)
        self.base = k.copy(self.taken)
        buffer, self.parity = slot_of(turn, self.form.buffers)
        self.slot = buffer * self.form.consumers + self.own
        k.set(self.acc, k.op("frag_fill", k.lit(0.0), type=self.outs))
        for r in (0, 1):
            k.set(self.most[r], self.least)
            k.set(self.total[r], 0.0)

    def run(self) -> None:
        """All of the block's tiles."""
        k, block = self.k, self.block
        k.do("mbar_wait", self.slot, self.parity, mem=QUERIES_FULL)
        first = k.lit(0, I32)
        self._wait_full(KEYS, self.base)
        token = self._products(self.base)
        k.do("wait", token, pending=0)
        self._release(KEYS, self.base)
        self._clean_values()
        self._hand_on(self._weigh(first, is_masked=not self.form.is_even)[1])
        if not self.form.is_even:
            self._loop(1, block.masked, is_masked=True)
        self._loop(1 if self.form.is_even else block.masked, block.tail, is_masked=False)
        if self.form.parts.window is not None:
            self._loop(block.tail, block.count, is_masked=True)
        with k.if_(self.leads):
            k.do("mbar_arrive", self.slot, mem=QUERIES_EMPTY)
        last = self.base + block.count - 1
        self._wait_full(VALUES, last)
        token = self._sum_values(last)
        k.do("wait", token, pending=0)
        self._release(VALUES, last)
        k.set(self.taken, self.base + block.count)

    def rows(self) -> Rows:
        """The lane's part of the block's state."""
        k, place = self.k, self.place
        return Rows(
            self.job, self.form.parts, self.block, place.row, (0, 8), place.column,
            k.copy(self.acc), tuple(self.most), tuple(self.total), self.is_plain,
        )  # fmt: skip

    def _loop(self, start: Val | int, stop: Val, *, is_masked: bool) -> None:
        k = self.k
        with k.for_(start, stop, unroll=1, name="j") as j:
            at = self.base + j
            before = at - 1
            self._wait_full(KEYS, at)
            k.do("barrier_sync", self.mine, threads=2 * WARPGROUP)
            products = self._products(at)
            self._wait_full(VALUES, before)
            values = self._sum_values(before)
            k.do("barrier_arrive", self.following, threads=2 * WARPGROUP)
            k.do("wait", products, pending=1)
            self._release(KEYS, at)
            moved, weights = self._weigh(j, is_masked=is_masked)
            k.do("wait", values, pending=0)
            self._release(VALUES, before)
            self._hand_on(weights)
            with k.if_(moved):
                line = k.vec(*self.shrink)
                k.set(self.acc, k.op("frag_apply", self.acc, line, axis=1, kind="mul"))

    def _hand_on(self, weights: Val) -> None:
        """The weights become the next product's operand, once no product reads the last ones."""
        self.k.set(self.p, self.k.op("frag_cast", weights, type=self.weights))

    def _clean_values(self) -> None:
        """Values past the length, in the tile that holds the last of them: whatever lies there must
        not matter. What lies past the tensor is zero by itself."""
        k, form, block = self.k, self.form, self.block
        if "len" not in form.parts.at and not form.is_paged:
            return
        self._wait_full(VALUES, self.base)
        stage, _ = slot_of(self.base, STAGES)
        start = stage * form.value_elems
        left = k.op("max", block.length - block.last * form.tile, 0)
        barrier = form.consumers + 1
        with k.if_(left < form.tile):
            with k.if_(self.own.eq(0)):
                zeros = k.cast(k.vec(k.lit(0.0), k.lit(0.0)), form.dtype)
                within = k.lane() & (WARPGROUP - 1)
                pairs = form.value_width // 2
                with k.for_(left * pairs + within, form.tile * pairs, WARPGROUP, unroll=1) as at:
                    row, pair = at >> _bits(pairs), at & (pairs - 1)
                    panel = pair >> _bits(PANEL // 2)
                    column = (pair & (PANEL // 2 - 1)) * 2
                    turned = column ^ ((row & 7) << 3)
                    place = start + panel * (form.tile * PANEL) + row * PANEL + turned
                    k.store(VALUES.array, place, zeros)
                k.do("fence", scope="async")
            k.do("barrier_sync", barrier, threads=form.consumers * WARPGROUP)

    # Softmax

    def _weigh(self, number: Val, *, is_masked: bool) -> tuple[Val, Val]:
        """Whether a maximum moved, and the tile's weights; the state but the channels follows."""
        k = self.k
        first_key = (self.block.last - number) * self.form.tile
        s = (
            self._hidden(self._scores(first_key), first_key)
            if is_masked
            else self._scores(first_key)
        )
        top = k.op("frag_reduce", s, axis=1, kind="max", type=PAIR)
        tops = [k.extract(top, r) for r in (0, 1)]
        unit = self.scale if self.is_plain else _LOG2E
        over = [(t - m) * unit > _SLACK for t, m in zip(tops, self.most, strict=True)]
        moved = k.op("vote_any", over[0] | over[1])
        with k.if_(moved):
            for r in (0, 1):
                new = tops[r]
                for mask in (1, 2):
                    new = k.op("max", new, k.op("shuffle_xor", new, mask=mask))
                new = k.op("max", new, self.most[r])
                shrink = k.op("exp2", (self.most[r] - new) * unit)
                k.set(self.shrink[r], shrink)
                k.set(self.total[r], self.total[r] * shrink)
                k.set(self.most[r], new)
        weights = self._powers(s, unit)
        sums = k.op("frag_reduce", weights, axis=1, kind="add", type=PAIR)
        for r in (0, 1):
            k.set(self.total[r], self.total[r] + k.extract(sums, r))
        return moved, weights

    def _each_row(self, values: list[Val], type: Frag) -> Val:
        """A fragment with a value for each of the lane's two rows."""
        count = type.n // 2
        return self.k.op("frag_pack", *(values[n >> 1 & 1] for n in range(count)), type=type)

    def _powers(self, s: Val, unit: float) -> Val:
        k = self.k
        if self.is_plain:
            minus = self._each_row([m * -unit for m in self.most], self.sums)
            factor = k.op("frag_fill", k.lit(unit), type=self.sums)
            return k.op("exp2", k.op("fma", s, factor, minus))
        most = self._each_row([k.copy(m) for m in self.most], self.sums)
        factor = k.op("frag_fill", k.lit(unit), type=self.sums)
        return k.op("exp2", k.op("mul", k.op("sub", s, most), factor))

    def _scores(self, first_key: Val) -> Val:
        """Products as scores: as they are where scale alone is asked, which the powers hold."""
        if self.is_plain:
            return self.s
        k, job, parts, block = self.k, self.job, self.form.parts, self.block
        ix = job.indexer
        out: list[Val] = []
        for n in range(self.form.tile // 2):
            row = k.op("min", self.place.row + 8 * (n >> 1 & 1), parts.rows - 1)
            key = first_key + self.place.column + (8 * (n >> 2) + (n & 1))
            where = (
                ix.atom(block.row, parts.batch), ix.atom(block.head, parts.heads),
                ix.atom(row, parts.rows),
            )  # fmt: skip
            last = ix.atom(k.op("min", key, parts.keys - 1), parts.keys)
            out.append(score(job, parts, k.extract(self.s, n), where, last))
        return k.op("frag_pack", *out, type=self.sums)

    def _hidden(self, s: Val, first_key: Val) -> Val:
        """-inf where a key lies past a row's end or before its window."""
        k, parts = self.k, self.form.parts
        integers = Frag("wgmma", "acc", ROWS, self.form.tile, "i32")
        bools = Frag("wgmma", "acc", ROWS, self.form.tile, "bool")
        numbers = (k.lit(8 * (n >> 2) + (n & 1), I32) for n in range(self.form.tile // 2))
        column = k.op("frag_pack", *numbers, type=integers)
        own = first_key + self.place.column
        ends: list[Val] = []
        begins: list[Val] = []
        for r in (0, 1):
            row = self.place.row + 8 * r
            end = self.block.length
            if parts.causal is not None:
                end = k.op("min", row + (parts.causal + 1), end)
            ends.append(end - own)
            if parts.window is not None:
                begins.append(row + ((parts.causal or 0) + 1 - parts.window) - own)
        visible = k.op("lt", column, self._each_row(ends, integers), type=bools)
        if begins:
            late = k.op("ge", column, self._each_row(begins, integers), type=bools)
            visible = k.op("and", visible, late, type=bools)
        hidden = k.op("frag_fill", k.lit(-math.inf), type=self.sums)
        return k.op("select", visible, s, hidden, type=self.sums)


def _bits(n: int) -> int:
    return n.bit_length() - 1
