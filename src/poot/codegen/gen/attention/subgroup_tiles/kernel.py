"""The kernel of an attention in subgroup tiles: a block of query rows, and the loop over keys."""

from __future__ import annotations

from poot.codegen.gen.attention.blocks import block_of
from poot.codegen.gen.attention.subgroup_tiles.registers import Registers
from poot.codegen.gen.attention.subgroup_tiles.shape import Form
from poot.codegen.gen.attention.subgroup_tiles.stage import Stage
from poot.codegen.gen.attention.subgroup_tiles.workgroup import Workgroup
from poot.codegen.gen.grid import each_group
from poot.codegen.gen.job import Job, open_job
from poot.codegen.gen.lowered import Lowered
from poot.codegen.gen.sinks import Sink, open_sinks
from poot.codegen.gen.spill import lower_spilled
from poot.codegen.kir.build import Val
from poot.limits import DeviceLimits
from poot.planner.request import Request
from poot.planner.subgroup_tiles import RESIDENTS


def lower_subgroup_tiles(request: Request, limits: DeviceLimits) -> Lowered:
    """A launch with a group for each block of query rows, and one for each output that is packed
    into words."""
    form = Form.of(request)
    job = open_job(request, limits, "attention_subgroup_tiles", form.threads)
    job.k.subgroup = form.lanes
    job.counts_long = True
    if form.is_async:
        job.k.residents = RESIDENTS
    staged = {form.parts.at[n].id for n in ("q", "k", "v", "k_shared") if n in form.parts.at}
    words = () if form.is_async else staged
    job.bind_inputs(skip=(i for _, i in request.updates), words=words)
    sinks = open_sinks(job)
    groups = form.tiling.groups
    with each_group(job.k, groups, limits) as number:
        _Block(job, form, number).run(sinks)
    return Lowered((job.call(groups), *lower_spilled(request, limits)))


class _Block:
    """One block's control around its parts."""

    def __init__(self, job: Job, form: Form, number: Val) -> None:
        self.job, self.form, self.k = job, form, job.k
        self.stage = Stage(job, form)
        self.block = block_of(job, form.tiling, number)
        kind = Registers if form.family == "mma" else Workgroup
        self.state = kind(job, form, self.block)

    def run(self, sinks: list[Sink]) -> None:
        """Keys from the last tile down, so that tiles with hidden keys come first."""
        block, stage = self.block, self.stage
        stage.open(block)
        self.state.take_queries(stage)
        stage.fetch(stage.keys, self._first(self.k.lit(0, block.last.ty)))
        is_even = self.form.tiling.is_even
        if isinstance(self.state, Workgroup):
            # A row's scores are few to a lane: a look at each costs less than a second loop's text.
            self._loop(0, block.count, is_masked=not is_even)
            self.state.finish(sinks)
            return
        if not is_even:
            self._loop(0, block.masked, is_masked=True)
        self._loop(0 if is_even else block.masked, block.tail, is_masked=False)
        if self.form.parts.window is not None:
            self._loop(block.tail, block.count, is_masked=True)
        self.state.finish(sinks)

    def _first(self, number: Val) -> Val:
        """The first key of the number-th tile from the end."""
        return (self.block.last - number) * self.form.tile

    def _loop(self, start: Val | int, stop: Val, *, is_masked: bool) -> None:
        k, stage, state = self.k, self.stage, self.state
        with k.for_(start, stop, unroll=1, name="j") as j:
            first = self._first(j)
            stage.land(stage.keys)
            stage.fetch(stage.values, first)
            s = state.products()
            stage.land(stage.values)
            with k.if_(j + 1 < self.block.count):
                stage.fetch(stage.keys, self._first(j + 1))
            weights = state.weigh(s, first, is_masked=is_masked)
            state.add(weights)
