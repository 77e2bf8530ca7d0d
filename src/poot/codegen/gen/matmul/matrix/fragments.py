"""Schedule "matrix": products of a subgroup's fragments, operands in a ring of steps.

A group makes a tile of `tile_m` rows by `tile_n` columns of all the products that an output needs;
`warps_m` by `warps_n` subgroups have a part each. Steps of 64 terms go round `stages` places in
workgroup memory: an operand that an input holds in 16 bits is copied there behind the lanes' backs
where the device can, any other is computed, prologue and all, and cut into parts. Sums are f32.
"""

from __future__ import annotations

from poot.codegen.gen.grid import each_group
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.matmul.matrix.end import Owner, need_staged, store_sums
from poot.codegen.gen.matmul.matrix.fill import Filler
from poot.codegen.gen.matmul.matrix.left import left_calls, left_param
from poot.codegen.gen.matmul.matrix.shape import Form, Place, Side, Tile, place_of
from poot.codegen.gen.matmul.parts import products_of
from poot.codegen.gen.matmul.store import product_sinks, side_calls
from poot.codegen.gen.sinks import Sink
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import I32, TOKEN, Val
from poot.codegen.kir.nodes import Frag
from poot.limits import DeviceLimits
from poot.planner.matrix import NARROW, PANEL, SPARE, family_of, pairs_of
from poot.planner.request import Request

LEFT, RIGHT = "left", "right"
_DEPTH = 16  # terms of one product of fragments
_ALIGN = 1024


def lower_matrix(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch for all the products, and launches for outputs beside them and packed ones."""
    products = products_of(request)
    form, get = Form.of(request, products), request.schedule.get
    lanes = limits.subgroup
    job = open_job(request, limits, "matrix", get("warps_m") * get("warps_n") * lanes)
    k = job.k
    k.subgroup = lanes
    words = form.words(request.body)
    job.bind_inputs(skip=(i for _, i in request.updates), vector=4, words=words)
    left_param(job, form, "r")
    sinks = product_sinks(job, products)
    for name, elems in ((LEFT, form.left_elems), (RIGHT, form.right_elems)):
        k.shared(name, form.precision.dtype, get("stages") * elems, _ALIGN)
    with each_group(k, form.count, limits) as group:
        first = 0
        for tile in form.tiles:
            if len(form.tiles) == 1:
                _Group(job, form, tile, sinks, group).run()
            else:
                with k.if_((group >= first) & (group < first + tile.count)):
                    _Group(job, form, tile, sinks, group - first).run()
            first += tile.count
    calls = (
        *left_calls(request, limits, form),
        job.call(form.count),
        *side_calls(request, limits, products),
    )
    return Lowered((*calls, *lower_spilled(request, limits)))


class _Group:
    """One group's work on a tile."""

    def __init__(
        self, job: Job, form: Form, tile: Tile, sinks: dict[int, Sink], group: Val
    ) -> None:
        self.job, self.form, self.tile, self.sinks, self.k = job, form, tile, sinks, job.k
        k, get = job.k, job.request.schedule.get
        self.place: Place = place_of(job, tile, job.indexer.atom(group, tile.count))
        self.stages = get("stages")
        self.filler = Filler(job, tile, k.lane(), k.threads, form.precision.dtype)
        warps = get("warps_m") * get("warps_n")
        warp = job.indexer.atom(k.op("subgroup_id", type=I32), warps)
        self.warp_row, self.warp_col = job.indexer.split(warp, (get("warps_m"), get("warps_n")))
        self.rows, self.cols = tile.m // get("warps_m"), tile.n // get("warps_n")
        self.family = family_of(job.limits)
        self.is_async = job.limits.target == "ptx" and job.limits.has_async_copy

    def run(self) -> None:
        """The whole tile."""
        k, tile = self.k, self.tile
        sums = Frag(self.family, "acc", self.rows, self.cols, "f32")
        acc = [k.var(k.op("frag_fill", k.lit(0.0), type=sums)) for _ in tile.rights]
        ahead = self.stages - 1
        token: Val | None = None
        for n in range(ahead):
            token = self._fill(k.lit(n, I32), is_sure=n < tile.steps)
        with k.for_(0, tile.steps, unroll=1, name="q") as step:
            if ahead == 0:
                k.barrier()
                token = self._fill(step, is_sure=True)
            if token is not None:
                k.do("wait", token, pending=max(0, ahead - 1))
            k.barrier()
            if ahead:
                self._fill(step + ahead, is_sure=False)
            self._multiply(step % self.stages, acc)
        if ahead and token is not None:
            k.do("wait", token, pending=0)
        self._store([k.copy(a) for a in acc])

    def _fill(self, step: Val, *, is_sure: bool) -> Val | None:
        """A step's operands on their way, where there is such a step; the token of its copies."""
        k, tile = self.k, self.tile

        def fill() -> None:
            at = self.job.indexer.atom(step, tile.steps)
            stage = step % self.stages
            for side in (tile.left, *tile.rights):
                target = self._target(side, stage)
                if side.source is None:
                    self.filler.compute(side, self.place, at, *target)
                else:
                    self.filler.copy(side, self.place, at, *target, is_async=self.is_async)

        if is_sure:
            fill()
        else:
            with k.if_(step < tile.steps):
                fill()
        return k.op("async_commit", type=TOKEN) if self.is_async else None

    def _target(self, side: Side, stage: Val) -> tuple[str, Val]:
        if side.is_left:
            return LEFT, stage * self.form.left_elems
        before = 0
        for other in self.tile.rights:
            if other is side:
                break
            before += other.elems * other.parts
        return RIGHT, stage * self.form.right_elems + before

    def _multiply(self, stage: Val, acc: list[Val]) -> None:
        """A step's products, 16 terms at a time, the smallest parts first."""
        k, tile = self.k, self.tile
        _, left = self._target(tile.left, stage)
        for first in range(0, PANEL, _DEPTH):
            lefts = [self._left(left + n * tile.left.elems, first) for n in range(tile.left.parts)]
            for side, total in zip(tile.rights, acc, strict=True):
                _, right = self._target(side, stage)
                rights = [self._right(side, right + n * side.elems, first)
                          for n in range(side.parts)]  # fmt: skip
                for i, j in pairs_of(tile.left.parts, side.parts):
                    k.set(total, k.op("mma", lefts[i], rights[j], total, type=total.type))

    def _left(self, at: Val, first: int) -> Val:
        frag = Frag(self.family, "a", self.rows, _DEPTH, self.form.precision.dtype)
        own = self.job.indexer.value(self.warp_row * (self.rows * PANEL) + first)
        return self.k.op("frag_load", at + own, PANEL, type=frag, mem=LEFT, swizzle="128B")

    def _right(self, side: Side, at: Val, first: int) -> Val:
        """The subgroup's columns of 16 terms."""
        k, ix = self.k, self.job.indexer
        frag = Frag(self.family, "b", _DEPTH, self.cols, self.form.precision.dtype)
        if not side.is_turned:
            own = ix.value(self.warp_col * (self.cols * PANEL) + first)
            return k.op("frag_load", at + own, PANEL, type=frag, mem=RIGHT, swizzle="128B",
                        trans=True)  # fmt: skip
        panel, inside = ix.divmod(self.warp_col * self.cols, PANEL)
        own = ix.value(panel * (PANEL * PANEL) + inside + first * PANEL)
        return k.op("frag_load", at + own, PANEL, type=frag, mem=RIGHT, swizzle="128B")

    def _store(self, sums: list[Val]) -> None:
        k, job = self.k, self.job
        each = self.rows * (NARROW + SPARE)
        count = len(sums)
        warps = k.threads // job.limits.subgroup
        need_staged(job, warps * count * each)
        at = k.op("subgroup_id", type=I32) * (count * each)
        lane = k.op("subgroup_lane", type=I32)
        owner = Owner(
            lane, job.limits.subgroup, self.rows, self.warp_row * self.rows,
            self.warp_col * self.cols, at, each, NARROW,
        )  # fmt: skip
        store_sums(job, self.tile, self.place, self.sinks, sums, owner, at)
