"""The kernels of a latent decode: partial states by warpgroup products, and "split_kv"'s merge.

A group has 64 query heads of a batch row and a part of its keys. Of each tile of 64 latent rows,
side 0 and side 1 (a warpgroup each) score half of the keys; they tell each other maxima and weights
through workgroup memory; and each adds up half of the channels over all keys of the tile, reading
the rows where they lie as values. The next tile is copied meanwhile.
"""

from __future__ import annotations

import math

from poot.codegen.gen.attention.grouped.scores import LEAST, SLACK
from poot.codegen.gen.attention.latent.copies import QUERIES, TILES, Copies
from poot.codegen.gen.attention.latent.shape import THREADS, WARP, Form, Part, part_of
from poot.codegen.gen.attention.parts import attention_eqn
from poot.codegen.gen.attention.score import score
from poot.codegen.gen.attention.split_kv import combine, state_type
from poot.codegen.gen.index import ZERO
from poot.codegen.gen.job import Job, needed_by, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.memory import Memory
from poot.codegen.kir.build import F32, I32, Val
from poot.codegen.kir.nodes import Frag, Token
from poot.limits import DeviceLimits
from poot.planner.latent import HEADS, PANEL, SIDES, STAGES, TILE
from poot.planner.request import Request

_WEIGHTS, _TOPS = "weights", "tops"
_KEYS = TILE // SIDES  # of a side
_ACROSS = (1, 2)  # lanes of a row
_WGMMA = Token("wgmma")
_LOG2E = math.log2(math.e)


def lower_latent(request: Request, limits: DeviceLimits) -> Lowered:
    """Two launches: partial states, and their merge."""
    form = Form.of(request)
    return Lowered((_partials(request, limits, form), combine(request, limits, form.parts)))


def _partials(request: Request, limits: DeviceLimits, form: Form) -> KernelCall:
    job = open_job(request, limits, "attention_latent", THREADS)
    job.k.subgroup, job.k.residents = WARP, 1
    job.counts_long = True
    job.bind_inputs(only=needed_by(request.body, attention_eqn(request.body).ins))
    number, type = state_type(request)
    states = job.memory("states", type, "w", ("scratch", number))
    side = _Side(job, form, part_of(job, form))
    side.run()
    side.leave(states)
    return KernelCall(job.k.kernel(), (form.groups, 1, 1), tuple(job.args))


class _Side:
    """One warpgroup's registers and steps. A lane has two rows of each fragment, a head each."""

    def __init__(self, job: Job, form: Form, part: Part) -> None:
        self.job, self.form, self.part, self.k = job, form, part, job.k
        k, parts = job.k, form.parts
        self.is_plain = parts.softcap is None and not {"bias", "mask"} & set(parts.at)
        self.unit = 1.0 if self.is_plain else _LOG2E
        self.slack = SLACK / self.unit
        self.copies = Copies(job, form, part)
        k.shared(_WEIGHTS, form.dtype, HEADS * TILE, 1024)
        k.shared(_TOPS, "f32", SIDES * HEADS)
        lane = k.op("subgroup_lane", type=I32)
        self.number = k.lane() >> 7
        self.row = ((k.lane() >> 5) & 3) * 16 + (lane >> 2)
        self.column = (lane & 3) * 2
        self.sums = Frag("wgmma", "acc", HEADS, _KEYS, "f32")
        self.outs = Frag("wgmma", "acc", HEADS, form.side_width, "f32")
        self.s = k.var(k.op("frag_fill", k.lit(0.0), type=self.sums))
        self.acc = k.var(k.op("frag_fill", k.lit(0.0), type=self.outs))
        self.most = [k.var(k.lit(LEAST), F32) for _ in range(2)]
        self.total = [k.var(k.lit(0.0), F32) for _ in range(2)]

    def run(self) -> None:
        """All tiles of the part."""
        k, copies, part = self.k, self.copies, self.part
        copies.queries()
        copies.find(part.first)
        zero = k.lit(0, I32)
        copies.tile(zero)
        copies.find(part.first + TILE)
        stage = k.var(zero, I32)
        with k.for_(part.first, part.end, TILE, unroll=1, name="t") as first:
            k.do("wait", copies.token, pending=0)
            k.do("fence", scope="async")
            k.barrier()
            with k.if_(first + TILE < part.end):
                copies.tile(k.op("sub", STAGES - 1, stage, type=I32))
                copies.find(first + 2 * TILE)
            at = k.copy(stage * self.form.tile_elems)
            self._score(at)
            moved = self._weigh(first)
            k.do("fence", scope="async")
            k.barrier()
            with k.if_(moved):
                line = k.vec(*self.shrink)
                k.set(self.acc, k.op("frag_apply", self.acc, line, axis=1, kind="mul"))
            self._sum(at)
            k.set(stage, k.op("sub", STAGES - 1, stage, type=I32))
        k.do("wait", copies.token, pending=0)

    def _score(self, at: Val) -> None:
        """The products of all queries and the side's keys, of the tile at `at`."""
        k, form = self.k, self.form
        keys = at + self.number * (_KEYS * PANEL)
        k.into("wgmma", self.s, k.lit(0, I32), keys, a=QUERIES, b=TILES, k=form.parts.width,
               stride_a=HEADS * PANEL, stride_b=TILE * PANEL, zero=True)  # fmt: skip
        k.do("wait", k.op("wgmma_commit", type=_WGMMA), pending=0)

    def _sum(self, at: Val) -> None:
        """The tile's weighted values: the side's channels."""
        k = self.k
        panels = self.form.side_width // PANEL
        values = at + self.number * (panels * TILE * PANEL)
        k.into("wgmma", self.acc, k.lit(0, I32), values, a=_WEIGHTS, b=TILES, k=TILE,
               stride_b=TILE * PANEL, trans_b=True)  # fmt: skip
        k.do("wait", k.op("wgmma_commit", type=_WGMMA), pending=0)

    # Softmax

    def _weigh(self, first: Val) -> Val:
        """The tile's weights to workgroup memory, and whether a maximum moved; the state but the
        channels follows. Both sides see the same maxima."""
        k = self.k
        x = self._scores(first)
        tops: list[Val] = []
        for r in (0, 1):
            top = x[2 * r]
            for n in range(len(x)):
                if n >> 1 & 1 == r and n != 2 * r:
                    top = k.op("max", top, x[n])
            for mask in _ACROSS:
                top = k.op("max", top, k.op("shuffle_xor", top, mask=mask))
            tops.append(top)
        tops = self._of_both(tops, "max")
        over = [t > m + self.slack for t, m in zip(tops, self.most, strict=True)]
        moved = k.op("vote_any", over[0] | over[1])
        self.shrink = [k.var(k.lit(1.0), F32) for _ in range(2)]
        with k.if_(moved):
            for r in (0, 1):
                new = k.op("max", tops[r], self.most[r])
                shrink = self._power(self.most[r] - new)
                k.set(self.shrink[r], shrink)
                k.set(self.total[r], self.total[r] * shrink)
                k.set(self.most[r], new)
        p = [self._power(v - self.most[n >> 1 & 1]) for n, v in enumerate(x)]
        for r in (0, 1):
            own = [v for n, v in enumerate(p) if n >> 1 & 1 == r]
            total = own[0]
            for v in own[1:]:
                total = total + v
            k.set(self.total[r], self.total[r] + total)
        self._store_weights(p)
        return moved

    def _store_weights(self, p: list[Val]) -> None:
        k = self.k
        for n in range(0, len(p), 2):
            row = self.row + 8 * (n >> 1 & 1)
            column = self.number * _KEYS + (self.column + 8 * (n >> 2))
            at = row * PANEL + (column ^ ((row & 7) << 3))
            k.store(_WEIGHTS, at, k.cast(k.vec(p[n], p[n + 1]), self.form.dtype))

    def _of_both(self, values: list[Val], kind: str) -> list[Val]:
        """A number of each of the lane's rows, from both sides."""
        k = self.k
        with k.if_(self.column.eq(0)):
            for r, value in enumerate(values):
                k.store(_TOPS, self.number * HEADS + (self.row + 8 * r), value)
        k.barrier()
        return [
            k.op(kind, *(k.load(_TOPS, self.row + (s * HEADS + 8 * r)) for s in range(SIDES)))
            for r in (0, 1)
        ]

    def _power(self, difference: Val) -> Val:
        return self.k.op("exp2", difference if self.is_plain else difference * _LOG2E)

    def _scores(self, first: Val) -> list[Val]:
        """The lane's scores in the unit of maxima, -inf past the last key."""
        k, out = self.k, list[Val]()
        for n in range(self.sums.n // 2):
            key = first + self.number * _KEYS + (self.column + 8 * (n >> 2) + (n & 1))
            value = self._value(k.extract(self.s, n), n >> 1 & 1, key)
            out.append(k.select(key < self.part.end, value, k.lit(-math.inf)))
        return out

    def _value(self, product: Val, r: int, key: Val) -> Val:
        job, parts, k = self.job, self.form.parts, self.k
        if self.is_plain:
            return product * (parts.scale * _LOG2E)
        ix = job.indexer
        head = k.op("min", self.part.head + self.row + 8 * r, parts.heads - 1)
        where = (ix.atom(self.part.row, parts.batch), ix.atom(head, parts.heads), ZERO)
        last = ix.atom(k.op("min", key, parts.keys - 1), parts.keys)
        return score(job, parts, product, where, last)

    # The end

    def leave(self, states: Memory) -> None:
        """The group's partial states, one a query head, where "split_kv" has them."""
        k, form, parts = self.k, self.form, self.form.parts
        totals: list[Val] = []
        for total in self.total:
            value = k.copy(total)
            for mask in _ACROSS:
                value = value + k.op("shuffle_xor", value, mask=mask)
            totals.append(value)
        k.barrier()
        totals = self._of_both(totals, "add")
        acc, width = k.copy(self.acc), parts.value_width
        for r in (0, 1):
            head = self.part.head + self.row + 8 * r
            with k.if_(head < parts.heads):
                line = (self.part.row * parts.heads + head) * form.splits + self.part.split
                base = k.copy(line * (width + 2))
                own = base + self.number * form.side_width + self.column
                for n in range(form.side_width // 8):
                    pair = [k.extract(acc, 4 * n + 2 * r + e) for e in (0, 1)]
                    k.store(states.name, own + 8 * n, k.vec(*pair))
                with k.if_(self.column.eq(0) & self.number.eq(0)):
                    most = k.copy(self.most[r])
                    natural = most * (1 / _LOG2E) if self.is_plain else most
                    peak = k.select(totals[r].eq(0.0), k.lit(-math.inf), natural)
                    k.store(states.name, base + width, peak)
                    k.store(states.name, base + (width + 1), totals[r])
