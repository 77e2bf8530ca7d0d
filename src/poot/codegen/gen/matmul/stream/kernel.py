"""The kernel of schedule "stream": one group a compute unit, each with columns of its own.

A subgroup takes a column at a time; lane j reads every 32nd piece of it from piece j on, and adds
its terms to one sum a row and product. The next pieces' loads are always on their way, into the
registers that a piece has just left, those of the next column among them; the first ones start
before the launch before this one is done, since weights are not of its making. The left operand
lies in workgroup memory, computed once a group. Sums of a group's columns meet there too, and
neighbouring lanes apply the epilogue to neighbouring columns. Sums are f32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.gen.index import ZERO, Coords, Index
from poot.codegen.gen.job import may_overlap, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.matmul.parts import Segment, products_of
from poot.codegen.gen.matmul.scaled import Scaled, scaled_of
from poot.codegen.gen.matmul.store import product_sinks, side_calls, store_element
from poot.codegen.gen.matmul.stream.left import Left
from poot.codegen.gen.matmul.stream.order import Order, half_of
from poot.codegen.gen.matmul.stream.pieces import Pieces
from poot.codegen.gen.sinks import Sink
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import I32, Val
from poot.codegen.kir.nodes import Ty
from poot.errors import CapabilityError
from poot.ir.graph import Weight
from poot.limits import DeviceLimits
from poot.passes.regions.streams import cone_inputs
from poot.planner.request import Request
from poot.planner.stream import share_groups

SUMS = "sums"
WARP = 32


@dataclass(frozen=True, slots=True)
class Share:
    """A segment's groups: from group `first` on, `count` of them."""

    segment: Segment
    pieces: tuple[Pieces, ...]
    scaled: tuple[Scaled | None, ...]
    first: int
    count: int
    batch: int
    order: Order

    @property
    def most(self) -> int:
        return self.order.most

    @property
    def of_column(self) -> int:
        """Pieces of a column."""
        return self.segment.depth // self.pieces[0].width

    @property
    def turns(self) -> int:
        """Batches of pieces that a lane takes of a column."""
        return -(-self.of_column // (WARP * self.batch))


def lower_stream(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch for all the products, and launches for outputs beside them and packed ones."""
    kernel = _Kernel(request, limits)
    kernel.write()
    groups = request.schedule.get("groups")
    calls = (kernel.job.call(groups),)
    sides = side_calls(request, limits, kernel.products)
    return Lowered((*calls, *sides, *lower_spilled(request, limits)))


class _Kernel:
    def __init__(self, request: Request, limits: DeviceLimits) -> None:
        self.products, schedule = products_of(request), request.schedule
        self.threads = schedule.get("warps") * WARP
        self.job = open_job(request, limits, "stream", self.threads, follows=False)
        k = self.k = self.job.k
        k.subgroup, k.residents = WARP, schedule.get("residents")
        body = request.body
        makers = {v.id: e for e in body.eqns for v in e.outs}
        products = [p for s in self.products.segments for p in s.products]
        weights = {
            v.id
            for p in products
            for v in cone_inputs(makers, p.ins[1]) or ()
            if v.type.elems == p.ins[1].type.elems
        }
        skip = (i for _, i in request.updates)
        self.job.bind_inputs(skip=skip, vector=4, words=weights)
        self.warp, self.lane = k.op("subgroup_id", type=I32), k.op("subgroup_lane", type=I32)
        self.group = k.group_id(0)
        self.shares = self._shares(schedule.get("groups"), schedule.get("depth"))
        self.early = may_overlap(limits) and self._reads_weights_alone()
        self.registers: dict[tuple[int, Ty], Val] = {}

    def _shares(self, groups: int, depth: int) -> list[Share]:
        """The segments with their parts of the groups."""
        body, out, first = self.job.request.body, list[Share](), 0
        segments = self.products.segments
        halves = [half_of(body, s) for s in segments]
        units = [2 if half else 1 for half in halves]
        costs = [
            (s.cols // unit, unit * len(s.products))
            for s, unit in zip(segments, units, strict=True)
        ]
        counts = share_groups(costs, groups)
        for segment, count, half in zip(segments, counts, halves, strict=True):
            width = self.job.request.schedule.get("width")
            pieces = tuple(Pieces(self.job, p, width, self.job.inputs) for p in segment.products)
            scaled = tuple(self._scaled(p) for p in pieces)
            loads = sum(len(p.loads) for p in pieces)
            lane = -(-segment.depth // (width * WARP))
            most = max(1, min(lane, depth // loads))
            batch = next((n for n in range(most, most // 2, -1) if lane % n == 0), most)
            order = Order(segment.cols, count, half)
            out.append(Share(segment, pieces, scaled, first, count, batch, order))
            first += count
        return out

    def _scaled(self, pieces: Pieces) -> Scaled | None:
        """How a right operand is codes times a scale that a piece shares, or None."""
        found = scaled_of(self.job.request.body, pieces.product.ins[1])
        ix, k = self.job.indexer, self.k
        col = ix.atom(k.group_id(0), pieces.product.out.type.shape[-1])
        piece = ix.atom(k.lane(), pieces.product.ins[0].type.shape[-1] // pieces.width)
        places = [pieces.coords(col, piece, e) for e in range(pieces.width)]
        return found if found is not None and found.is_run(self.job, places) else None

    # Control

    def _each(self, body: Callable[[Share, Index], None]) -> None:
        """The body for the group's own segment, with the group's number in it."""
        k, ix = self.k, self.job.indexer
        if len(self.shares) == 1:
            body(self.shares[0], ix.atom(self.group, self.shares[0].count))
            return
        for share in self.shares:
            is_mine = (self.group >= share.first) & (self.group < share.first + share.count)
            with k.if_(is_mine):
                body(share, ix.atom(self.group - share.first, share.count))

    def write(self) -> None:
        k = self.k
        if may_overlap(self.job.limits):
            k.do("grid_trigger")
        self._declare()
        if self.early:
            self._each(self._start)
        self.job.follow()
        if not self.early:
            self._each(self._start)
        sinks = product_sinks(self.job, self.products)
        first = self.shares[0]
        left = Left(self.job, first.segment, self.products, first.pieces[0].width)
        has_runs = any(
            s is not None and s.minimum is not None for x in self.shares for s in x.scaled
        )
        left.stage(has_runs)
        self._each(lambda share, number: self._segment(share, number, left, sinks))

    def _reads_weights_alone(self) -> bool:
        bound = {i.var.id for i in self.job.request.body.inputs if isinstance(i.storage, Weight)}
        read = {load.var.id for s in self.shares for p in s.pieces for load in p.loads}
        return read <= bound

    # Pieces on their way

    def _declare(self) -> None:
        for share in self.shares:
            for at, type in self._slots(share):
                if (at, type) not in self.registers:
                    self.registers[at, type] = self.k.register(type, "w")

    def _slots(self, share: Share) -> list[tuple[int, Ty]]:
        each = [load.type for p in share.pieces for load in p.loads]
        return [(n, type) for n, type in enumerate(each * share.batch)]

    def _held(self, share: Share, n: int, p: int) -> list[Val]:
        """The registers of the n-th piece of a batch, of product p."""
        counts = [len(x.loads) for x in share.pieces]
        first = n * sum(counts) + sum(counts[:p])
        slots = self._slots(share)[first : first + counts[p]]
        return [self.registers[slot] for slot in slots]

    def _piece(self, share: Share, turn: Val, n: int) -> tuple[Index, Val | None]:
        """The lane's n-th piece of a batch, and whether there is one where that's not certain."""
        k, ix, count = self.k, self.job.indexer, share.of_column
        start = turn * (share.batch * WARP) + self.lane
        if count % (WARP * share.batch) == 0 or (share.turns == 1 and (n + 1) * WARP <= count):
            rest = (share.batch - 1) * WARP if share.turns > 1 else n * WARP
            return ix.atom(start, count - rest) + n * WARP, None
        at = start + n * WARP
        return ix.atom(k.op("min", at, count - 1), count), at < count

    def _read(
        self,
        share: Share,
        col: Val,
        turn: Val,
        n: int,
        is_wanted: Val | None = None,
        cache: str = "stream",
    ) -> None:
        piece, _ = self._piece(share, turn, n)
        place = share.order.column(self.job, col)
        for p, pieces in enumerate(share.pieces):
            pieces.read(self._held(share, n, p), place, piece, is_wanted, cache)

    def _start(self, share: Share, number: Index) -> None:
        k = self.k
        first, _ = share.order.share(self.job, number)
        col = k.op("min", first + self.warp, share.segment.cols - 1)
        for n in range(share.batch):
            self._read(share, col, k.lit(0, I32), n, cache="early" if self.early else "stream")

    # Sums

    def _segment(self, share: Share, number: Index, left: Left, sinks: dict[int, Sink]) -> None:
        k = self.k
        first, end = share.order.share(self.job, number)
        rows = share.segment.rows
        k.need_shared(SUMS, "f32", len(share.pieces) * rows * share.most)
        with k.for_(first + self.warp, end, self.threads // WARP, unroll=1, name="c") as col:
            zero = k.lit(0.0)
            sums = [[k.var(zero, name="s") for _ in range(rows)] for _ in share.pieces]
            if share.turns == 1:
                self._turn(share, col, k.lit(0, I32), end, left, sums)
            else:
                with k.for_(0, share.turns, unroll=1, name="t") as turn:
                    self._turn(share, col, turn, end, left, sums)
            totals = [
                k.op("subgroup_reduce", k.copy(s), kind="add", width=WARP) for p in sums for s in p
            ]
            with k.if_(self.lane.eq(0)):
                for n, total in enumerate(totals):
                    k.store(SUMS, col - first + n * share.most, total)
        k.barrier()
        self._finish(share, first, end, left, sinks)

    def _turn(
        self, share: Share, col: Val, turn: Val, end: Val, left: Left, sums: list[list[Val]]
    ) -> None:
        """A batch of pieces added; each one's registers take the next batch's."""
        k = self.k
        beyond = col + self.threads // WARP
        if share.turns == 1:
            next_col, next_turn, goes_on = beyond, turn, beyond < end
        else:
            is_last = turn.eq(share.turns - 1)
            next_col = k.select(is_last, beyond, col)
            next_turn = k.select(is_last, k.lit(0, I32), turn + 1)
            goes_on = next_col < end
        next_col = k.op("min", next_col, share.segment.cols - 1)
        place = share.order.column(self.job, col)
        for n in range(share.batch):
            piece, is_there = self._piece(share, turn, n)
            for p, pieces in enumerate(share.pieces):
                pieces.hold(self._held(share, n, p), place, piece)
                self._add(share, p, place, piece, is_there, left, sums[p])
            self._read(share, next_col, next_turn, n, goes_on)

    def _add(
        self,
        share: Share,
        p: int,
        col: Index,
        piece: Index,
        is_there: Val | None,
        left: Left,
        sums: list[Val],
    ) -> None:
        k, pull, pieces, scaled = self.k, self.job.pull, share.pieces[p], share.scaled[p]
        places = [pieces.coords(col, piece, e) for e in range(pieces.width)]
        right = pieces.product.ins[1]
        if scaled is None:
            terms = [pull.value(right, place) for place in places]
        else:
            terms = [scaled.code(self.job, place) for place in places]
        for row, total in enumerate(sums):
            old = k.copy(total)
            new = old if scaled is None else k.lit(0.0)
            for mine, term in zip(left.terms(row, piece), terms, strict=True):
                new = k.fma(mine, term, new)
            if scaled is not None:
                scale, minimum = scaled.factors(self.job, places[0])
                new = k.fma(scale, new, old)
                if minimum is not None:
                    new = k.fma(minimum, left.run(row, piece), new)
            k.set(total, new if is_there is None else k.select(is_there, new, old))

    def _finish(
        self, share: Share, first: Val, end: Val, left: Left, sinks: dict[int, Sink]
    ) -> None:
        """The epilogue of the group's columns, one a lane."""
        k, segment, order = self.k, share.segment, share.order

        def total(p: int, row: int, place: Val) -> Val:
            return k.load(SUMS, place - first + (p * segment.rows + row) * share.most)

        for row in range(segment.rows):

            def other(p: int, coords: Coords, row: int = row) -> Val:
                """The other of a pair, which is this group's too."""
                if coords[-2] != ZERO + row:
                    raise CapabilityError("an epilogue asks for another row's element")
                return total(p, row, order.place(self.job, coords[-1]))

            with k.for_(first + k.lane(), end, self.threads, unroll=1, name="e") as at:
                own = segment.own(self.job, ZERO, ZERO + row, order.column(self.job, at))
                mine = [total(p, row, at) for p in range(len(segment.products))]
                left.use(row)
                turned = other if order.half else None
                store_element(self.job, segment, sinks, own, mine, turned)
