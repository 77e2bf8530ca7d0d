"""Schedule "matrix_ring": products of warpgroups, operands in a ring that a role of its own fills.

As many groups as fill the device go from tile to tile. A tile is `tile_m` rows by `tile_n` columns
of all the products that an output needs; each consumer, a warpgroup, has 64 of the rows. With
`swapped`, for few rows, it is `tile_m` columns of each product by `tile_n` rows, and a consumer has
64 of the columns. A step of the ring holds 64 terms of both operands. The producer asks for boxes
of tensors where memory holds an operand as units take it, and computes any other right operand,
cut into parts; it goes on to the next tile while this one's sums are stored. Sums are f32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poot.codegen.attributes import Attributes, TensorView
from poot.codegen.gen.index import Index
from poot.codegen.gen.job import may_overlap, open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.matmul.matrix.end import Owner, need_staged, store_sums
from poot.codegen.gen.matmul.matrix.fill import Filler, batch_of
from poot.codegen.gen.matmul.matrix.left import left_calls, left_param
from poot.codegen.gen.matmul.matrix.shape import PARTS, Form, Place, Side, Tile, place_of
from poot.codegen.gen.matmul.parts import products_of
from poot.codegen.gen.matmul.store import product_sinks, side_calls
from poot.codegen.gen.sinks import Sink
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import BOOL, I32, Val
from poot.codegen.kir.nodes import Frag, Role, Token
from poot.limits import DeviceLimits
from poot.planner.matrix import (
    ASKS,
    FEW_SPARE,
    FILLS,
    MORE_SUMS,
    PANEL,
    ROWS,
    SLICE,
    SPARE,
    SUMS,
    pairs_of,
)
from poot.planner.request import Request

LEFT, RIGHT, FULL, EMPTY = "left", "right", "full", "empty"
WARP, WARPGROUP = 32, 128
_WGMMA = Token("wgmma")
_ALIGN = 1024
_OWN = ROWS // 4  # rows of a subgroup


def lower_matrix_ring(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch for all the products, and launches for outputs beside them and packed ones."""
    kernel = _Kernel(request, limits)
    first = left_calls(request, limits, kernel.form)
    calls = (*first, kernel.call(), *side_calls(request, limits, kernel.products))
    return Lowered((*calls, *lower_spilled(request, limits)))


@dataclass(frozen=True, slots=True)
class _Ring:
    """One role's place in the ring: a slot, and the parity of its turn."""

    slot: Val
    parity: Val


class _Kernel:
    def __init__(self, request: Request, limits: DeviceLimits) -> None:
        self.products = products_of(request)
        self.form, get = Form.of(request, self.products), request.schedule.get
        self.consumers, self.stages = get("tile_m") // ROWS, get("stages")
        self.groups = get("groups")
        threads = WARPGROUP * (self.consumers + 1)
        self.job = open_job(request, limits, "matrix_ring", threads)
        k = self.k = self.job.k
        k.subgroup = WARP
        words = self.form.words(request.body)
        self.job.bind_inputs(skip=(i for _, i in request.updates), vector=4, words=words)
        left_param(self.job, self.form, "r")
        self.sinks: dict[int, Sink] = product_sinks(self.job, self.products)
        self.computes = any(s.source is None for s in self.form.sides)
        self.views: dict[str, tuple[tuple[str, int], TensorView]] = {}

    def call(self) -> KernelCall:
        """The finished launch."""
        self._declare()
        k = self.k
        with k.block_() as producing:
            self._produce()
        with k.block_() as consuming:
            _Consumer(self).run()
        fewest, most = (FILLS, SUMS) if self.computes else (ASKS, MORE_SUMS)
        if self.consumers == 1:
            fewest = most = 0
        k.roles(
            Role("producer", 0, 4, fewest, tuple(producing)),
            Role("consumer", 4, 4 * self.consumers, most, tuple(consuming)),
        )
        asked = Attributes(overlap=may_overlap(self.job.limits))
        return KernelCall(
            k.kernel(), (self.groups, 1, 1), tuple(self.job.args), attributes=asked,
            maps=tuple(self.views.values()),
        )  # fmt: skip

    def _declare(self) -> None:
        """Workgroup memory, tensor maps, and barriers: a slot is full with its bytes and an arrival
        of whoever fills it, and empty when each subgroup of the consumers has let go."""
        k, form = self.k, self.form
        for name, elems in ((LEFT, form.left_elems), (RIGHT, form.right_elems)):
            k.shared(name, form.precision.dtype, self.stages * elems, _ALIGN)
        for name in (FULL, EMPTY):
            k.shared(name, "mbar", self.stages, 8)
        for side in form.sides:
            if side.source is not None:
                self._map(side)
        with k.if_(k.lane().eq(0)):
            for slot in range(self.stages):
                count = 1 + WARPGROUP * int(self.computes)
                k.do("mbar_init", slot, mem=FULL, count=count)
                k.do("mbar_init", slot, mem=EMPTY, count=4 * self.consumers)
        k.do("fence", scope="async")  # what launches before wrote, and the barriers
        k.barrier()

    def _map(self, side: Side) -> str:
        """The tensor map by which a side's panels are copied."""
        name = f"map_{side.source}_{side.lines}"
        if name not in self.views:
            batches, rows, pitch = side.memory
            length = side.var.type.shape[-1] if side.is_left else pitch
            view = TensorView((length, rows, batches * side.parts), (1, pitch, pitch * rows))
            self.views[name] = self._buffer(side), view
            self.k.blob(name, self.form.precision.dtype, (PANEL, side.lines, 1), "128B")
        return name

    def _buffer(self, side: Side) -> tuple[str, int]:
        if side.source == PARTS:
            return "scratch", len(self.job.request.scratch) - 1
        assert side.source is not None, side
        return "in", int(side.source.removeprefix("in"))

    def each_tile(self, body: Callable[[Tile, Place], None]) -> None:
        """The body for each of the group's tiles."""
        k, ix, form = self.k, self.job.indexer, self.form
        with k.for_(k.group_id(0), form.count, self.groups, unroll=1, name="t") as number:
            first = 0
            for tile in form.tiles:
                if len(form.tiles) == 1:
                    body(tile, place_of(self.job, tile, ix.atom(number, tile.count)))
                else:
                    with k.if_((number >= first) & (number < first + tile.count)):
                        own = ix.atom(number - first, tile.count)
                        body(tile, place_of(self.job, tile, own))
                first += tile.count

    # The ring

    def open_ring(self) -> _Ring:
        return _Ring(self.k.var(self.k.lit(0, I32), I32), self.k.var(self.k.lit(0, I32), I32))

    def turn(self, ring: _Ring) -> None:
        """On to the next slot."""
        k = self.k
        is_last = ring.slot.eq(self.stages - 1)
        k.set(ring.parity, k.select(is_last, ring.parity ^ 1, ring.parity))
        k.set(ring.slot, k.select(is_last, k.lit(0, I32), ring.slot + 1))

    def right_at(self, tile: Tile, p: int) -> int:
        """Where product p's right operand begins in a step's."""
        return sum(side.elems * side.parts for side in tile.rights[:p])

    # The producer

    def _produce(self) -> None:
        """Fills the ring: by all lanes of the role, or by one where it only asks."""
        k = self.k
        chosen = k.lane().eq(0) if self.computes else k.op("elect", type=BOOL)
        if self.computes:
            self._fill_all(chosen)
        else:
            with k.if_((k.lane() >> 5).eq(0) & chosen):
                self._fill_all(None)

    def _fill_all(self, chosen: Val | None) -> None:
        k, ring = self.k, self.open_ring()

        def fill(tile: Tile, place: Place) -> None:
            with k.for_(0, tile.steps, unroll=1, name="q") as step:
                slot = k.copy(ring.slot)
                k.do("mbar_wait", slot, ring.parity ^ 1, mem=EMPTY)
                with self.job.when(k.lit(True, BOOL) if chosen is None else chosen):
                    self._ask(tile, place, step, slot)
                if self.computes:
                    self._compute(tile, place, step, slot)
                self.turn(ring)

        self.each_tile(fill)

    def _sides(self, tile: Tile, slot: Val) -> list[tuple[Side, str, Val]]:
        """Each operand with its array and where its tile begins there."""
        out: list[tuple[Side, str, Val]] = [(tile.left, LEFT, slot * self.form.left_elems)]
        for p, side in enumerate(tile.rights):
            at = slot * self.form.right_elems + self.right_at(tile, p)
            out.append((side, RIGHT, at))
        return out

    def _ask(self, tile: Tile, place: Place, step: Val, slot: Val) -> None:
        """Boxes of the operands that inputs hold; their bytes count on the slot."""
        k, ix, job = self.k, self.job.indexer, self.job
        asked = [row for row in self._sides(tile, slot) if row[0].source is not None]
        nbytes = sum(side.elems * side.parts * 2 for side, _, _ in asked)
        k.do("mbar_arrive", slot, mem=FULL, expect=nbytes)
        for side, array, at in asked:
            batch = ix.value(batch_of(job, tile, side, place))
            term, line = step * PANEL, ix.value(place.row if side.is_left else place.col)
            for n in range(side.parts * side.panels):
                part, panel = divmod(n, side.panels)
                corner = (line + panel * PANEL, term) if side.is_turned else (term, line)
                to = at + (part * side.elems + panel * (side.lines * PANEL))
                k.do("tma_load", to, slot, *corner, batch + part * side.memory[0],
                     blob=self._map(side), dst=array, mem=FULL)  # fmt: skip

    def _compute(self, tile: Tile, place: Place, step: Val, slot: Val) -> None:
        k = self.k
        filler = Filler(self.job, tile, k.lane(), WARPGROUP, self.form.precision.dtype)
        at = self.job.indexer.atom(step, tile.steps)
        for side, array, to in self._sides(tile, slot):
            if side.source is None:
                filler.compute(side, place, at, array, to)
        k.do("fence", scope="async")
        k.do("mbar_arrive", slot, mem=FULL)


class _Consumer:
    """A warpgroup of 64 rows."""

    def __init__(self, kernel: _Kernel) -> None:
        self.kernel, self.k, self.job = kernel, kernel.k, kernel.job
        k = self.k
        self.own = (k.lane() >> 7) - 1
        self.lane = k.op("subgroup_lane", type=I32)
        self.leads = self.lane.eq(0)
        self.ring = kernel.open_ring()
        self.before = k.var(k.lit(0, I32), I32)

    def run(self) -> None:
        """All of the group's tiles."""
        self.kernel.each_tile(self._tile)

    def _tile(self, tile: Tile, place: Place) -> None:
        k = self.k
        sums = Frag("wgmma", "acc", ROWS, tile.m if tile.is_swapped else tile.n, "f32")
        acc = [k.var(k.op("frag_fill", k.lit(0.0), type=sums)) for _ in tile.rights]
        token = self._step(tile, acc, is_first=True)
        with k.for_(1, tile.steps, unroll=1, name="q"):
            before = k.copy(self.before)
            k.do("wait", self._step(tile, acc, is_first=False), pending=1)
            self._release(before)
        k.do("wait", token, pending=0)
        self._release(k.copy(self.before))
        self._store(tile, place, [k.copy(a) for a in acc])

    def _step(self, tile: Tile, acc: list[Val], *, is_first: bool) -> Val:
        """A step's products begin; the ring turns."""
        k, ring = self.k, self.ring
        slot = k.copy(ring.slot)
        k.do("mbar_wait", slot, ring.parity, mem=FULL)
        token = self._multiply(tile, slot, acc, is_first=is_first)
        k.set(self.before, slot)
        self.kernel.turn(ring)
        return token

    def _release(self, slot: Val) -> None:
        with self.k.if_(self.leads):
            self.k.do("mbar_arrive", slot, mem=EMPTY)

    def _multiply(self, tile: Tile, slot: Val, acc: list[Val], *, is_first: bool) -> Val:
        """A step's products, the smallest parts first."""
        k, form = self.k, self.kernel.form
        left, own = slot * form.left_elems, self.own * (ROWS * PANEL)
        for p, (side, total) in enumerate(zip(tile.rights, acc, strict=True)):
            right = slot * form.right_elems + self.kernel.right_at(tile, p)
            stride = PANEL * PANEL if side.is_turned else None
            for n, (i, j) in enumerate(pairs_of(tile.left.parts, side.parts)):
                at, beside = left + i * tile.left.elems, right + j * side.elems
                is_zero = is_first and n == 0
                if tile.is_swapped:
                    k.into("wgmma", total, beside + own, at, a=RIGHT, b=LEFT, k=PANEL,
                           zero=is_zero)  # fmt: skip
                else:
                    k.into("wgmma", total, at + own, beside, a=LEFT, b=RIGHT, k=PANEL,
                           trans_b=side.is_turned, stride_b=stride, zero=is_zero)  # fmt: skip
        return k.op("wgmma_commit", type=_WGMMA)

    def _store(self, tile: Tile, place: Place, sums: list[Val]) -> None:
        k, ix, job = self.k, self.job.indexer, self.job
        width = min(SLICE, tile.m) if tile.is_swapped else SLICE
        pitch = width + (FEW_SPARE if tile.is_swapped else SPARE)
        apart = ROWS * pitch
        each = len(sums) * apart
        need_staged(job, self.kernel.consumers * each)
        base = self.own * each
        warp = ix.atom((k.lane() >> 5) & 3, 4)
        own = ix.atom(self.own, self.kernel.consumers) * ROWS + warp * _OWN
        row, col = (Index(), own) if tile.is_swapped else (own, Index())
        at = base + ix.value(warp * (_OWN * pitch))
        owner = Owner(self.lane, WARP, _OWN, row, col, at, apart, width, tile.is_swapped)
        store_sums(job, tile, place, self.kernel.sinks, sums, owner, base)
