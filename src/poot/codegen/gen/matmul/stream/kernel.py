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


Sums = list[list[list[Val]]]  # [column][product][row]


@dataclass(frozen=True, slots=True)
class Taken:
    """A piece of one column: its terms, or its codes with their scale and minimum; and the column's
    sums, by row."""

    terms: list[Val]
    sums: list[Val]
    scale: Val | None = None
    minimum: Val | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A segment's groups: from group `first` on, `count` of them. A subgroup takes `beside`
    columns at once, `batch` pieces of each."""

    segment: Segment
    pieces: tuple[Pieces, ...]
    scaled: tuple[Scaled | None, ...]
    first: int
    count: int
    batch: int
    beside: int
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


def columns_at_once(segment: Segment, columns: int, depth: int, loads: int) -> int:
    """Columns that a subgroup takes at once, of so many that it has: more than one where one has
    fewer loads than may be on their way, or where several rows share a column's terms."""
    beside = 1
    while beside < 4 and 2 * beside <= columns and 2 * beside * loads <= depth:
        beside *= 2
    is_shared = segment.rows > 1 and len(segment.products) == 1 and columns > 1
    return 2 if beside == 1 and is_shared and loads % 2 == 0 else beside


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
        warps = self.threads // WARP
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
            beside = columns_at_once(
                segment, -(-segment.cols // count) // warps, depth, loads * batch
            )
            if loads * batch * beside > depth:
                batch //= 2
            order = Order(segment.cols, count, half)
            out.append(Share(segment, pieces, scaled, first, count, batch, beside, order))
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
        return [(n, type) for n, type in enumerate(each * share.batch * share.beside)]

    def _held(self, share: Share, n: int, p: int) -> list[Val]:
        """The registers of the n-th piece of all columns' batches, of product p."""
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

    def _places(self, share: Share, col: Val) -> list[Index]:
        """The columns that a subgroup takes at once, from a place in their order on; held below
        their count."""
        last = share.segment.cols - 1
        return [
            share.order.column(self.job, self.k.op("min", col + r, last))
            for r in range(share.beside)
        ]

    def _read(
        self,
        share: Share,
        places: list[Index],
        turn: Val,
        n: int,
        is_wanted: Val | None = None,
        cache: str = "stream",
    ) -> None:
        """Starts the loads of the n-th piece of each column's batch."""
        piece, _ = self._piece(share, turn, n)
        for r, place in enumerate(places):
            for p, pieces in enumerate(share.pieces):
                held = self._held(share, r * share.batch + n, p)
                pieces.read(held, place, piece, is_wanted, cache)

    def _start(self, share: Share, number: Index) -> None:
        first, _ = share.order.share(self.job, number)
        places = self._places(share, first + self.warp * share.beside)
        cache = "early" if self.early else "stream"
        for n in range(share.batch):
            self._read(share, places, self.k.lit(0, I32), n, cache=cache)

    # Sums

    def _segment(self, share: Share, number: Index, left: Left, sinks: dict[int, Sink]) -> None:
        k = self.k
        first, end = share.order.share(self.job, number)
        rows, step = share.segment.rows, self.threads // WARP * share.beside
        k.need_shared(SUMS, "f32", len(share.pieces) * rows * share.most)
        with k.for_(first + self.warp * share.beside, end, step, unroll=1, name="c") as col:
            zero = k.lit(0.0)
            sums = [
                [[k.var(zero, name="s") for _ in range(rows)] for _ in share.pieces]
                for _ in range(share.beside)
            ]
            if share.turns == 1:
                self._turn(share, col, k.lit(0, I32), end, left, sums)
            else:
                with k.for_(0, share.turns, unroll=1, name="t") as turn:
                    self._turn(share, col, turn, end, left, sums)
            for r, mine in enumerate(sums):
                totals = [
                    k.op("subgroup_reduce", k.copy(s), kind="add", width=WARP)
                    for p in mine
                    for s in p
                ]
                with k.if_(self.lane.eq(0) & (col + r < end)):
                    for n, total in enumerate(totals):
                        k.store(SUMS, col + r - first + n * share.most, total)
        k.barrier()
        self._finish(share, first, end, left, sinks)

    def _turn(self, share: Share, col: Val, turn: Val, end: Val, left: Left, sums: Sums) -> None:
        """A batch of pieces of each column added; each one's registers take the next batch's."""
        k = self.k
        beyond = col + self.threads // WARP * share.beside
        if share.turns == 1:
            next_col, next_turn, goes_on = beyond, turn, beyond < end
        else:
            is_last = turn.eq(share.turns - 1)
            next_col = k.select(is_last, beyond, col)
            next_turn = k.select(is_last, k.lit(0, I32), turn + 1)
            goes_on = next_col < end
        places, ahead = self._places(share, col), self._places(share, next_col)
        for n in range(share.batch):
            piece, is_there = self._piece(share, turn, n)
            taken: list[Taken] = []
            for r, place in enumerate(places):
                for p, pieces in enumerate(share.pieces):
                    pieces.hold(self._held(share, r * share.batch + n, p), place, piece)
                    taken.append(self._taken(share, p, place, piece, sums[r][p]))
            for row in range(share.segment.rows):
                self._add(taken, row, piece, is_there, left)
            self._read(share, ahead, next_turn, n, goes_on)

    def _taken(self, share: Share, p: int, place: Index, piece: Index, sums: list[Val]) -> Taken:
        """A piece of one column of product p, in registers."""
        pieces, scaled = share.pieces[p], share.scaled[p]
        places = [pieces.coords(place, piece, e) for e in range(pieces.width)]
        if scaled is None:
            right = pieces.product.ins[1]
            return Taken([self.job.pull.value(right, at) for at in places], sums)
        codes = [scaled.code(self.job, at) for at in places]
        return Taken(codes, sums, *scaled.factors(self.job, places[0]))

    def _add(
        self, taken: list[Taken], row: int, piece: Index, is_there: Val | None, left: Left
    ) -> None:
        """The pieces' terms times a row's, added to that row's sums."""
        k = self.k
        mine = left.terms(row, piece)
        for one in taken:
            old = k.copy(one.sums[row])
            new = old if one.scale is None else k.lit(0.0)
            for x, term in zip(mine, one.terms, strict=True):
                new = k.fma(x, term, new)
            if one.scale is not None:
                new = k.fma(one.scale, new, old)
                if one.minimum is not None:
                    new = k.fma(one.minimum, left.run(row, piece), new)
            k.set(one.sums[row], new if is_there is None else k.select(is_there, new, old))

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
