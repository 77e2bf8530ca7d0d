"""Schedule "grouped_split": a decode with keys and values straight in registers, on any device with
subgroups; no asynchronous copies, no matrix units, no waiting between groups.

A group takes one of `splits` parts of a unit's keys (a batch row, a key head, a set of its query
heads) and leaves partial states, which the launch of "split_kv" merges. Its subgroups take tiles in
turn: `across` lanes hold a row of keys, `turns` rows each, and a tile's rows are loaded before the
tile before is done. Products are folded over heads first, then over keys, so that a lane ends with
one head and `kept` keys. Codes of 8 bits come as words, each row with its scale: a key's product is
multiplied by it, and a value's weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.codegen.gen.attention.grouped.scores import LEAST, Scores
from poot.codegen.gen.attention.grouped.team import input_name, quotient, remainder
from poot.codegen.gen.attention.keys import key_range
from poot.codegen.gen.attention.parts import Parts, parts_in
from poot.codegen.gen.attention.split_kv import combine, state_type
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.index import ZERO, Index
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Cell, Memory, cell_of
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import F32, I32, Val
from poot.codegen.kir.nodes import Ty
from poot.ir.graph import Var
from poot.limits import DeviceLimits
from poot.planner.codes import Coded, coded_pair
from poot.planner.request import Request

_WEIGHTS, _OUTS, _SUMS = "weights", "outs", "sums"


@dataclass(frozen=True, slots=True)
class Form:
    """`warps` subgroups of `subgroup` lanes a group; the rest as the module says."""

    parts: Parts
    subgroup: int
    warps: int
    across: int
    turns: int
    cuts: int
    splits: int
    cell: Cell
    codes: tuple[Coded, Coded] | None = None

    @property
    def read(self) -> Var | None:
        """The map of a paged cache."""
        return self.parts.at.get("read") if self.codes is None else self.codes[0].index

    def rows_of(self, operand: str) -> Var:
        """The input whose rows are keys, or values."""
        if self.codes is None:
            return self.parts.at[operand]
        return self.codes["kv".index(operand)].codes

    @property
    def repeat(self) -> int:
        """Query heads of a unit."""
        return self.parts.repeat // self.cuts

    @property
    def heads(self) -> int:
        """The power of two that holds them."""
        return 1 << (self.repeat - 1).bit_length()

    @property
    def sets(self) -> int:
        """Rows that a subgroup loads at once."""
        return self.subgroup // self.across

    @property
    def tile(self) -> int:
        return self.sets * self.turns

    @property
    def piece(self) -> int:
        """Elements of one load."""
        return 4 if self.cell.dtype == "f32" else 8

    @property
    def pieces(self) -> int:
        """Loads of a lane for a row."""
        return self.parts.width // (self.across * self.piece)

    @property
    def folded(self) -> int:
        """Bits of the key's number that the fold moves to the lane's."""
        return min(_log2(self.across) - _log2(self.heads), _log2(self.turns))

    @property
    def kept(self) -> int:
        return self.turns >> self.folded

    @property
    def units(self) -> int:
        return self.parts.batch * self.parts.kv_heads * self.cuts


def lower_grouped_split(request: Request, limits: DeviceLimits) -> Lowered:
    """Two launches, and one more for each output that is packed into words."""
    parts, get = parts_in(request.body), request.schedule.get
    codes = coded_pair(request.body, parts.at)
    cell = Cell(codes[0].dtype, "u32", 4) if codes else cell_of(parts.at["k"].type.dtype, limits)
    form = Form(
        parts, get("subgroup"), get("warps"), get("across"), get("turns"), get("cuts"),
        get("splits"), cell, codes,
    )  # fmt: skip
    calls = (_partials(request, limits, form), combine(request, limits, parts))
    return Lowered((*calls, *lower_spilled(request, limits)))


def _partials(request: Request, limits: DeviceLimits, form: Form) -> KernelCall:
    job = open_job(request, limits, "attention_grouped_split", form.warps * form.subgroup)
    job.k.subgroup = form.subgroup
    words = {form.rows_of(n).id for n in "kv"} if form.codes is not None else ()
    job.bind_inputs(only=needed_by(request.body, form.parts.eqn.ins), words=words)
    number, type = state_type(request)
    states = job.memory("states", type, "w", ("scratch", number))
    k = job.k
    k.shared(_WEIGHTS, "f32", form.warps * form.tile * form.heads)
    k.shared(_OUTS, "f32", form.warps * form.repeat * form.parts.width)
    k.shared(_SUMS, "f32", form.warps * form.repeat * 2)
    with each_group(k, form.units * form.splits, limits) as group:
        part = _Part(job, form, group)
        part.run()
        part.publish()
        k.barrier()
        part.leave(states)
    return job.call(form.units * form.splits)


class _Part:
    """One group's part of a unit."""

    def __init__(self, job: Job, form: Form, group: Val) -> None:
        self.job, self.form, self.k = job, form, job.k
        k, parts = job.k, form.parts
        self.scores = Scores.of(job, parts, form.repeat)
        self.unit, self.split = quotient(k, group, form.splits), remainder(k, group, form.splits)
        sets = parts.kv_heads * form.cuts
        self.row, self.head = quotient(k, self.unit, sets), remainder(k, self.unit, sets)
        self.key_head = quotient(k, self.head, form.cuts)
        self.warp, lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
        self.lane = lane
        self.place, self.set = lane & (form.across - 1), lane >> _log2(form.across)
        self.own_head = self.place & (form.heads - 1)
        upper = self.place >> _log2(form.heads)
        self.own_turn = (upper & ((1 << form.folded) - 1)) * form.kept
        self.is_first = upper < (1 << form.folded)
        self.base = self.warp * (form.tile * form.heads)
        self.first, self.end = self._chunk()
        self.queries = [self._query(g) for g in range(form.heads)]
        zero = k.lit(0.0)
        self.acc = [[k.var(zero, F32) for _ in self.queries[0]] for _ in range(form.heads)]
        self.most, self.total = k.var(k.lit(LEAST), F32), k.var(zero, F32)

    def _chunk(self) -> tuple[Val, Val]:
        """The part's keys: equal parts of the live ones, the last ones shorter or empty."""
        k, job, form = self.k, self.job, self.form
        row = job.indexer.atom(self.row, form.parts.batch)
        first, end = key_range(job, form.parts, row, ZERO)
        count = k.op("max", end - first, 0)
        size = quotient(k, count + (form.splits - 1), form.splits)
        begin = first + size * self.split
        return begin, k.op("min", begin + size, end)

    # What is loaded

    def _query(self, n: int) -> list[Val]:
        """The lane's channels of query head n ^ its own, scaled where scale is all there is."""
        k, job, form = self.k, self.job, self.form
        parts, ix = form.parts, job.indexer
        head = self.own_head ^ n
        there = k.op("min", head, form.repeat - 1)
        member = ix.atom(self.head * form.repeat + there, parts.heads)
        where = (ix.atom(self.row, parts.batch), member, ZERO)
        scale = self.scores.factor if self.scores.is_plain else 1.0
        own = ix.atom(self.place, form.across) * form.piece
        out: list[Val] = []
        for piece in range(form.pieces):
            for e in range(form.piece):
                at = own + (piece * form.across * form.piece + e)
                value = job.pull.value(parts.at["q"], (*where, at)) * scale
                if form.repeat < form.heads:
                    value = k.select(head < form.repeat, value, k.lit(0.0))
                out.append(value)
        return out

    def _line(self, key: Val) -> Val:
        """The row of keys, counted over the whole buffer, of a key."""
        form, job = self.form, self.job
        parts, ix = form.parts, job.indexer
        if form.read is None:
            return (self.row * parts.kv_heads + self.key_head) * parts.keys + key
        row = ix.atom(self.row, parts.batch)
        found = job.pull.value(form.read, (row, ix.atom(key, parts.keys)))
        slot = ix.value(ix.clamp(found, form.rows_of("k").type.shape[0]))
        return slot * parts.kv_heads + self.key_head

    def _keys_of(self, tile: Val) -> list[Val]:
        """The lane's keys of a tile; past the last there is, the last."""
        k, form = self.k, self.form
        keys: list[Val] = []
        for u in range(form.turns):
            key = tile + (u * form.sets) + self.set
            keys.append(k.op("max", k.op("min", key, self.end - 1), 0))
        return keys

    def _load(self, operand: str, line: Val) -> list[Val]:
        """The lane's part of a row, in vectors as it lies in memory; of codes, the row's scale
        behind them."""
        k, form = self.k, self.form
        name = self._name(form.rows_of(operand))
        per = form.cell.per
        lanes = form.piece // per
        base = line * (form.parts.width // per) + self.place * lanes
        rows = [
            k.load(name, base + piece * form.across * lanes, lanes, "stream")
            for piece in range(form.pieces)
        ]
        if form.codes is None:
            return rows
        scales = form.codes["kv".index(operand)].scales
        return [*rows, k.load(self._name(scales), line, 1, "stream")]

    def _name(self, var: Var) -> str:
        name = input_name(self.job, var)
        assert name is not None, var
        return name

    def _scaled(self, value: Val, row: list[Val]) -> Val:
        """A product or a weight, times the row's scale."""
        return value if self.form.codes is None else value * row[-1]

    def _floats(self, vectors: list[Val]) -> list[Val]:
        k, cell = self.k, self.form.cell
        out: list[Val] = []
        for vector in vectors[: self.form.pieces]:
            assert isinstance(vector.type, Ty)
            for n in range(vector.type.lanes):
                element = k.extract(vector, n)
                if cell.per == 1:
                    out.append(k.cast(element, "f32"))
                    continue
                out += [self._part(element, n) for n in range(cell.per)]
        return out

    def _part(self, word: Val, n: int) -> Val:
        """The n-th element of a word."""
        k, cell = self.k, self.form.cell
        bits = 32 // cell.per
        if cell.dtype == "i8":
            return k.cast((k.bitcast(word, I32) << (24 - bits * n)) >> 24, "f32")
        part = (word >> (bits * n)) & ((1 << bits) - 1)
        return self.job.numbers.from_bits(part, cell.dtype)

    # The loop

    def run(self) -> None:
        k, form = self.k, self.form
        start = k.copy(self.first + self.warp * form.tile)
        step = form.warps * form.tile
        lines = [self._line(key) for key in self._keys_of(start)]
        keys = [[k.var(v) for v in self._load("k", line)] for line in lines]
        values = [[k.var(v) for v in self._load("v", line)] for line in lines]
        with k.for_(start, self.end, step, unroll=1, name="t") as tile:
            products = [self._dots(row) for row in keys]
            ahead = [self._line(key) for key in self._keys_of(tile + step)]
            for row, line in zip(keys, ahead, strict=True):
                for register, vector in zip(row, self._load("k", line), strict=True):
                    k.set(register, vector)
            self._softmax(self._folded(products), tile)
            k.barrier("subgroup")
            self._sum(values)
            k.barrier("subgroup")
            for row, line in zip(values, ahead, strict=True):
                for register, vector in zip(row, self._load("v", line), strict=True):
                    k.set(register, vector)

    def _dots(self, row: list[Val]) -> list[Val]:
        k = self.k
        chunk = self._floats(row)
        out: list[Val] = []
        for query in self.queries:
            total = query[0] * chunk[0]
            for a, b in zip(query[1:], chunk[1:], strict=True):
                total = k.fma(a, b, total)
            out.append(self._scaled(total, row))
        return out

    def _other(self, value: Val, mask: int) -> Val:
        return self.k.op("shuffle_xor", value, mask=mask)

    def _folded(self, x: list[list[Val]]) -> list[Val]:
        """The lane's products: its head, its `kept` keys."""
        k, form = self.k, self.form
        half = form.heads // 2
        while half:
            x = [[row[g] + self._other(row[g + half], half) for g in range(half)] for row in x]
            half //= 2
        mine = [row[0] for row in x]
        for bit in range(form.folded - 1, -1, -1):
            n = form.turns >> (form.folded - bit)
            mask = form.heads << bit
            is_high = (self.place & mask).ne(0)
            mine = [
                k.select(is_high, mine[u + n], mine[u])
                + self._other(k.select(is_high, mine[u], mine[u + n]), mask)
                for u in range(n)
            ]
        mask = form.heads << form.folded
        while mask < form.across:
            mine = [value + self._other(value, mask) for value in mine]
            mask *= 2
        return mine

    def _turn(self, u: int) -> Val:
        """Which of the set's rows the lane's u-th product is of."""
        return self.own_turn + u

    def _softmax(self, products: list[Val], tile: Val) -> None:
        k, form = self.k, self.form
        scores: list[Val] = []
        for u, product in enumerate(products):
            key = tile + self._turn(u) * form.sets + self.set
            x = product
            if not self.scores.is_plain:
                x = self.scores.value(product, self.row, self.head, self.own_head, key)
            scores.append(k.select(key < self.end, x, k.lit(-math.inf)))
        top = scores[0]
        for x in scores[1:]:
            top = k.op("max", top, x)
        is_over = top > self.most + self.scores.slack
        with k.if_(k.op("vote_any", is_over)):
            mask = form.heads
            while mask < form.subgroup:
                top = k.op("max", top, self._other(top, mask))
                mask *= 2
            new = k.op("max", top, self.most)
            shrink = self.scores.power(self.most - new)
            k.set(self.most, new)
            k.set(self.total, self.total * shrink)
            for g, registers in enumerate(self.acc):
                own = k.op("subgroup_broadcast", shrink, lane=g)
                for register in registers:
                    k.set(register, register * own)
        for u, x in enumerate(scores):
            weight = self.scores.power(x - self.most)
            k.set(self.total, self.total + weight)
            at = (self.set * form.turns + self._turn(u)) * form.heads + self.own_head
            with k.if_(self.is_first):
                k.store(_WEIGHTS, self.base + at, weight)

    def _sum(self, values: list[list[Val]]) -> None:
        """The tile's weighted values, into every head's channels."""
        k, form = self.k, self.form
        step = min(form.heads, 4)
        for u, row in enumerate(values):
            chunk = self._floats(row)
            at = self.base + (self.set * form.turns + u) * form.heads
            for first in range(0, form.heads, step):
                got = k.load(_WEIGHTS, at + first, step)
                for n in range(step):
                    weight = self._scaled(got if step == 1 else k.extract(got, n), row)
                    for register, value in zip(self.acc[first + n], chunk, strict=True):
                        k.set(register, k.fma(weight, value, register))

    # The end

    def publish(self) -> None:
        """The subgroup's state to workgroup memory."""
        k, form = self.k, self.form
        total = k.select(self.is_first, k.copy(self.total), k.lit(0.0))
        mask = form.heads
        while mask < form.subgroup:
            total = total + self._other(total, mask)
            mask *= 2
        with k.if_((self.lane < form.heads) & (self.own_head < form.repeat)):
            at = (self.warp * form.repeat + self.own_head) * 2
            k.store(_SUMS, at, self.most)
            k.store(_SUMS, at + 1, total)
        for g in range(form.repeat):
            own = [k.copy(r) for r in self.acc[g]]
            mask = form.across
            while mask < form.subgroup:
                own = [value + self._other(value, mask) for value in own]
                mask *= 2
            line = (self.warp * form.repeat + g) * form.parts.width + self.place * form.piece
            with k.if_(self.set.eq(0)):
                for n, value in enumerate(own):
                    piece, e = divmod(n, form.piece)
                    k.store(_OUTS, line + (piece * form.across * form.piece + e), value)

    def leave(self, states: Memory) -> None:
        """The group's states, one a query head, where "split_kv" has them."""
        k, form, width = self.k, self.form, self.form.parts.width
        threads = form.warps * form.subgroup
        with k.for_(k.lane(), form.repeat * width, threads, name="c") as c:
            head, channel = quotient(k, c, width), remainder(k, c, width)
            peaks = [self._kept_sum(w, head, 0) for w in range(form.warps)]
            most = peaks[0]
            for peak in peaks[1:]:
                most = k.op("max", most, peak)
            value, total = k.lit(0.0), k.lit(0.0)
            for w, peak in enumerate(peaks):
                weight = self.scores.power(peak - most)
                at = (head + w * form.repeat) * width + channel
                value = k.fma(weight, k.load(_OUTS, at), value)
                total = k.fma(weight, self._kept_sum(w, head, 1), total)
            base = self._state_at(head)
            k.store(states.name, base + channel, value)
            with k.if_(channel.eq(0)):
                peak = k.select(total.eq(0.0), k.lit(-math.inf), self.scores.natural(most))
                k.store(states.name, base + width, peak)
                k.store(states.name, base + (width + 1), total)

    def _kept_sum(self, warp: int, head: Val, which: int) -> Val:
        return self.k.load(_SUMS, (head + warp * self.form.repeat) * 2 + which)

    def _state_at(self, head: Val) -> Val:
        form = self.form
        row = self.unit * form.repeat + head
        return (row * form.splits + self.split) * (form.parts.width + 2)


def _log2(n: int) -> int:
    return n.bit_length() - 1


__all__ = ["Form", "Index", "lower_grouped_split"]
