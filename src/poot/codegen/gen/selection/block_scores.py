"""Schedule "block_scores": how well each block key fits a row, on matrix units.

S = K Q^T: 16 block keys are rows, up to 8 heads columns, and a lane ends with two heads of two
blocks. Keys are read once, 16 bytes a lane, straight into the left operand: a product may take the
channels in any order, so a lane's 8 neighbouring channels are two products' of four, for keys and
queries alike. `turns` such tiles are on their way together, and `groups` groups go over all of
them. Heads in excess of 8 come in sets, a set after another over the same keys; so do query rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.codegen.gen.job import Job, maker_of, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.kir.build import F32, I32, Val
from poot.codegen.kir.nodes import Frag
from poot.errors import CapabilityError
from poot.ir.attrs import number_attr
from poot.ir.graph import Eqn, Var
from poot.limits import DeviceLimits
from poot.planner.request import Request

WARP, TILE, HEADS = 32, 16, 8
# Channels of one load, and of one product's operand.
_PIECE, _DEPTH = 8, 16
# Sets of heads whose loop is written out.
_WRITTEN = 2
_ACC = Frag("mma", "acc", TILE, HEADS, "f32")


def lower_block_scores(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch."""
    (eqn,) = (e for e in request.body.eqns if e.op == "block_scores")
    if [v.id for v in request.body.outputs] != [eqn.out.id]:
        raise CapabilityError("a step of block_scores gives its scores alone")
    get = request.schedule.get
    job = open_job(request, limits, "block_scores", get("threads"))
    k = job.k
    k.subgroup, k.residents = WARP, get("residents")
    job.bind_inputs()
    (sink,) = open_sinks(job)
    _Scorer.of(job, eqn, sink).write()
    return Lowered((job.call(get("groups")),))


def _input_of(job: Job, var: Var) -> str:
    """The parameter of an input, reshaped or not: elements lie in one order."""
    while (made := maker_of(job.request.body, var)) is not None:
        if made.op != "reshape":
            raise CapabilityError("block_scores reads its operands where they lie")
        var = made.ins[0]
    at = next(n for n, i in enumerate(job.request.body.inputs) if i.var.id == var.id)
    return f"in{at}"


@dataclass(frozen=True, slots=True)
class _Scorer:
    """A subgroup at work. `row` and `column` are a lane's place in a fragment: its first block of
    a tile, also its head of a set; and which fourth of the channels it loads."""

    job: Job
    eqn: Eqn
    sink: Sink
    keys: str
    queries: str
    row: Val
    column: Val

    @staticmethod
    def of(job: Job, eqn: Eqn, sink: Sink) -> _Scorer:
        lane = job.k.op("subgroup_lane", type=I32)
        names = (_input_of(job, eqn.ins[1]), _input_of(job, eqn.ins[0]))
        return _Scorer(job, eqn, sink, *names, lane >> 2, lane & 3)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Heads, query rows, blocks, channels."""
        _, heads, rows, width = self.eqn.ins[0].type.shape
        return heads, rows, self.eqn.ins[1].type.shape[1], width

    @property
    def dtype(self) -> str:
        return self.eqn.ins[1].type.dtype

    def write(self) -> None:
        """Steps of `turns` tiles of a batch row, a subgroup a step."""
        k, get = self.job.k, self.job.request.schedule.get
        turns, warps = get("turns"), get("threads") // WARP
        _, rows, blocks, _ = self.shape
        batch = self.eqn.ins[1].type.shape[0]
        of_row = -(-blocks // (TILE * turns))
        first = k.group_id(0) * warps + k.op("subgroup_id", type=I32)
        with k.for_(first, batch * of_row, get("groups") * warps, unroll=1, name="s") as step:
            b = step // of_row if batch > 1 else k.lit(0, I32)
            start = (step - b * of_row) * (TILE * turns)
            tiles = [self._load(b, start + n * TILE) for n in range(turns)]
            if rows == 1:
                self._row(b, k.lit(0, I32), start, tiles)
            else:
                with k.for_(0, rows, unroll=1, name="r") as r:
                    self._row(b, r, start, tiles)

    def _load(self, b: Val, start: Val) -> list[tuple[Val, Val]]:
        """A tile's keys: for each piece of the channels, of blocks `row` and `row` + 8. Past the
        last block the last one is read again."""
        k, (_, _, blocks, width) = self.job.k, self.shape
        lines: list[Val] = []
        for beyond in (0, HEADS):
            block = start + self.row + beyond
            if blocks % (TILE * self.job.request.schedule.get("turns")):
                block = k.op("min", block, blocks - 1)
            lines.append((b * blocks + block) * width + self.column * _PIECE)

        def piece(line: Val, n: int) -> Val:
            return k.load(self.keys, line + n * 4 * _PIECE, _PIECE, cache="stream")

        low, high = lines
        return [(piece(low, n), piece(high, n)) for n in range(width // (4 * _PIECE))]

    def _query(self, b: Val, r: Val, set_: Val) -> list[Val]:
        """A set's right operands, two for each piece of the channels."""
        k, (heads, rows, _, width) = self.job.k, self.shape
        head = k.op("min", set_ * HEADS + self.row, heads - 1)
        line = ((b * heads + head) * rows + r) * width + self.column * _PIECE
        type = Frag("mma", "b", _DEPTH, HEADS, self.dtype)
        frags: list[Val] = []
        for n in range(width // (4 * _PIECE)):
            piece = k.load(self.queries, line + n * 4 * _PIECE, _PIECE)
            for half in (0, 4):
                four = [k.extract(piece, half + e) for e in range(4)]
                frags.append(k.op("frag_pack", *four, type=type))
        return frags

    def _row(self, b: Val, r: Val, start: Val, tiles: list[list[tuple[Val, Val]]]) -> None:
        """The scores of one query row."""
        k, (heads, _, _, _) = self.job.k, self.shape
        sums = [[k.var(k.lit(0.0), F32) for _ in range(2)] for _ in tiles]
        sets = -(-heads // HEADS)
        if sets <= _WRITTEN:
            for n in range(sets):
                self._set(b, r, k.lit(n, I32), tiles, sums)
        else:
            with k.for_(0, sets, unroll=1, name="h") as n:
                self._set(b, r, n, tiles, sums)
        for n, pair in enumerate(sums):
            self._store(b, r, start + n * TILE, pair)

    def _set(
        self, b: Val, r: Val, set_: Val, tiles: list[list[tuple[Val, Val]]], sums: list[list[Val]]
    ) -> None:
        """Adds the shares of a set of heads to each tile's sums: of two blocks, two heads."""
        k, (heads, _, _, _) = self.job.k, self.shape
        queries = self._query(b, r, set_)
        weights = [self._weight(b, r, set_, e) for e in (0, 1)]
        for tile, pair in zip(tiles, sums, strict=True):
            acc = k.op("frag_fill", k.lit(0.0), type=_ACC)
            for n, piece in enumerate(tile):
                for half in (0, 1):
                    left = self._left(piece, 4 * half)
                    acc = k.op("mma", left, queries[2 * n + half], acc, type=_ACC)
            for n in range(4):
                share = k.op("nanmax", k.extract(acc, n), 0.0)
                is_there, weight = weights[n % 2]
                share = share if weight is None else share * weight
                if heads % HEADS:
                    share = k.select(is_there, share, k.lit(0.0))
                k.set(pair[n // 2], pair[n // 2] + share)

    def _left(self, piece: tuple[Val, Val], first: int) -> Val:
        """Four channels of both blocks as a left operand."""
        k, (low, high) = self.job.k, piece
        elements = [
            k.extract(row, first + beyond + e)
            for beyond in (0, 2)
            for row in (low, high)
            for e in (0, 1)
        ]
        return k.op("frag_pack", *elements, type=Frag("mma", "a", TILE, _DEPTH, self.dtype))

    def _weight(self, b: Val, r: Val, set_: Val, e: int) -> tuple[Val, Val | None]:
        """(whether the lane's e-th head of a set is there, its weight if heads have weights)."""
        heads, rows, _, _ = self.shape
        head = set_ * HEADS + self.column * 2 + e
        is_there = head < heads
        if len(self.eqn.ins) < 3:
            return is_there, None
        ix, batch = self.job.indexer, self.eqn.ins[0].type.shape[0]
        where = (ix.atom(b, batch), ix.clamp(head, heads), ix.atom(r, rows))
        return is_there, self.job.pull.value(self.eqn.ins[2], where)

    def _store(self, b: Val, r: Val, start: Val, sums: list[Val]) -> None:
        """Two blocks' scores, summed over the lanes that share them, by a lane each."""
        k, (_, rows, blocks, _) = self.job.k, self.shape
        scale, ix = number_attr(self.eqn, "scale"), self.job.indexer
        whole: list[Val] = []
        for value in sums:
            total = k.copy(value)
            for mask in (1, 2):
                total = total + k.op("shuffle_xor", total, mask=mask)
            whole.append(total * scale)
        block = start + self.row + self.column * HEADS
        with k.if_((self.column < 2) & (block < blocks)):
            value = k.select(self.column.eq(0), whole[0], whole[1])
            batch = self.eqn.ins[1].type.shape[0]
            where = (ix.atom(b, batch), ix.atom(k.lit(0, I32), 1), ix.atom(r, rows))
            self.sink.store(self.job, (*where, ix.atom(block, blocks)), value)
