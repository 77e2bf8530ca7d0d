"""The kernel of a grouped decode: share, ring, tiles, end of a unit, and the next unit."""

from __future__ import annotations

from poot.codegen.attributes import Attributes
from poot.codegen.gen.attention.grouped.coded import CodedTile
from poot.codegen.gen.attention.grouped.lanes import LaneTile
from poot.codegen.gen.attention.grouped.merge import OUTS, SUMS, WORDS, Merge
from poot.codegen.gen.attention.grouped.mma import MatrixTile
from poot.codegen.gen.attention.grouped.ring import Ring
from poot.codegen.gen.attention.grouped.shape import WARP, Form
from poot.codegen.gen.attention.grouped.shares import Segment, Shares
from poot.codegen.gen.attention.grouped.store import Results
from poot.codegen.gen.attention.grouped.team import Team
from poot.codegen.gen.job import open_job
from poot.codegen.gen.lowered import KernelCall, Lowered
from poot.codegen.gen.sinks import open_sinks
from poot.codegen.kir.build import Val
from poot.limits import DeviceLimits
from poot.planner.request import Request


def lower_grouped(request: Request, limits: DeviceLimits) -> Lowered:
    """One launch of as many groups as are resident at once, or fewer."""
    form = Form.of(request)
    job = open_job(request, limits, "attention_grouped", form.warps * WARP, follows=False)
    job.counts_long = True
    words = {form.keys_from.id, form.values_from.id} if form.codes is not None else ()
    job.bind_inputs(skip=(i for _, i in request.updates), words=words)
    if form.is_split:
        last = len(request.scratch) - 1
        job.k.param(WORDS, "u32", form.word_count, "rw")
        job.args.append(("scratch", last))
    sinks = open_sinks(job)
    team = Team.of(job, form)
    _Kernel(team, Results(team, tuple(sinks))).write()
    asked = Attributes(overlap=form.lets_next_begin, is_resident=form.is_split)
    grid = (form.groups + form.parts.batch * form.sets * form.mergers, 1, 1)
    call = KernelCall(job.k.kernel(), grid, tuple(job.args), attributes=asked)
    return Lowered((call,))


class _Kernel:
    """One kernel's control around its parts."""

    def __init__(self, team: Team, results: Results) -> None:
        self.team, self.form, self.k = team, team.form, team.k
        self.shares = Shares(team)
        kind = MatrixTile if self.form.is_matrix else LaneTile
        kind = kind if self.form.codes is None else CodedTile
        self.ring = Ring(team, self.shares, turned=kind.turned)
        self.tile = kind(team)
        self.merge = Merge(team, self.shares, results.store)

    def write(self) -> None:
        k = self.k
        if self.form.lets_next_begin:
            # Few units leave room for the next launch: it may start, and waits here in turn.
            k.do("grid_trigger")
        k.do("grid_wait")
        segment = Segment.fresh(self.team)
        if self.form.mergers:
            with k.if_(self.team.group >= self.form.groups):
                self.merge.collect(segment)
            with k.else_():
                self._work(segment)
        else:
            self._work(segment)

    def _work(self, segment: Segment) -> None:
        """A group's share of the tiles."""
        k, is_one = self.k, self.form.lengths == "one"
        length = self.team.length(self.team.number(0)) if is_one else self.team.number(0)
        with k.if_(self.shares.deal(segment)):
            self.ring.start(segment)
            with k.for_(0, self.form.stages - 1, unroll=1) as n:
                self.ring.issue(n)
            stage = self.team.count(0)
            self.tile.load_queries(segment)
            if self.form.lengths == "one":
                self._shorten(segment, stage, length)
                return
            if not self.shares.may_go_on:
                self._unit(segment, stage)
                return
            more = self.team.flag(True)
            with k.block_() as head:
                goes_on = k.copy(more)
            with k.while_(head, goes_on):
                k.set(more, self._unit(segment, stage))

    def _shorten(self, segment: Segment, stage: Val, length: Val) -> None:
        """The one row's length has come, after the first copies were started."""
        k, cursor = self.k, self.ring.cursor
        has_part = self.shares.spread(segment, length)
        with k.if_(has_part):
            k.set(cursor.length, segment.length)
            k.set(cursor.end, segment.end)
            k.set(self.ring.is_done, self.ring.is_done | (self.ring.tile >= segment.end))
            self._unit(segment, stage)
        with k.else_():
            self.ring.drain()

    def _unit(self, segment: Segment, stage: Val) -> Val:
        """One segment; whether there is another."""
        k, form, tile = self.k, self.form, self.tile
        tile.begin()
        first = k.copy(segment.first + self.team.warp)
        end, step = self.shares.end_of(segment), k.op("add", self.shares.step, 0)
        length = k.copy(segment.length)
        skip = k.copy(self.team.first(segment.row)) if form.begins_late else self.team.number(0)
        with k.for_(first, end, step, unroll=1) as t:
            self.ring.wait()
            last = self.team.number(form.stages - 1)
            self.ring.issue(k.select(stage.eq(0), last, stage - 1))
            hidden = self.ring.hidden(stage, length - t * form.tile)
            tile.run(segment, t * form.tile + skip, self.ring.at(stage), hidden)
            k.set(stage, k.select(stage.eq(form.stages - 1), self.team.number(0), stage + 1))
        following = segment.copied(self.team)
        more = self.team.truth(False)
        if self.shares.may_go_on:
            more = k.op("agree", self.shares.next(following))
            with k.if_(more):
                tile.load_queries(following)
        tile.publish(OUTS, SUMS)
        self.merge.run(segment)
        if self.shares.may_go_on:
            segment.take(self.team, following)
        return more
