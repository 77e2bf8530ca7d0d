"""A step as a transaction: every State write stands under a word that says whether the guards held.

Guards that need no State write are decided first; what writes State reads their word. Where a
guard waits for a State write of the same step, that write keeps the rows it replaces first, and
the last launches put them back where the step failed. The list of launches is the same for every
step: nothing is decided by the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.graph import Eqn, Var
from poot.planner.order import Phases
from poot.planner.steps import updates_of
from poot.planner.words import (
    WORD,
    Ids,
    new_elems,
    not_region,
    restore_region,
    save_region,
    verdict_regions,
)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A region to run, and the word under which some of its outs are stored."""

    region: Eqn
    ok: Var | None = None
    outs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """The values that decide: as `plan.Verdict`, in values of the graph and work."""

    early: Var
    final: Var
    failed: Var | None
    undo: tuple[tuple[Work, Work, int, Work], ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """An entry point's work in the making. `writers` holds the ids of region outs that write State
    in place; `fed` is the word that says whether slots from the device held, where there may be
    such."""

    phases: Phases
    writers: set[int]
    witnesses: tuple[Var, ...]
    fed: Var | None
    ids: Ids

    def run(self, publish: list[Eqn], tails: dict[int, Var]) -> tuple[list[Work], Words | None]:
        """All work in order. `publish` are the copies that write whole States at the end; `tails`
        gives, for each value in a State's line of updates, the line's last."""
        phases = self.phases
        writes = bool(publish) or any(
            v.id in self.writers for region in phases.all for v in region.outs
        )
        if not writes or (not self.witnesses and self.fed is None):
            return [Work(r) for r in (*phases.all, *publish)], None
        late = phases.late_witnesses
        works = [Work(r) for r in phases.early]
        first = self._decide(works, [v for v in self.witnesses if v.id not in late], self.fed)
        undo: list[tuple[Work, Work, int]] = []
        for region in phases.late:
            self._write_late(works, region, first, undo)
        final = self._decide(works, [v for v in self.witnesses if v.id in late], first)
        assert final is not None, "some witness or slot decides"
        works += [self._conditional(r, final) for r in phases.rest]
        works += [Work(r, final, tuple(range(len(r.outs)))) for r in publish]
        failed, undone = self._undo(works, final, undo, tails)
        early = first if first is not None else final
        return works, Words(early, final, failed, undone)

    def _decide(self, works: list[Work], records: list[Var], before: Var | None) -> Var | None:
        """The word of these records and the one before; makes its launches."""
        if not records:
            return before
        made = verdict_regions(tuple(records), before, self.ids)
        works += [Work(r) for r in made]
        return made[-1].outs[0]

    def _conditional(self, region: Eqn, ok: Var | None) -> Work:
        outs = tuple(n for n, v in enumerate(region.outs) if v.id in self.writers)
        return Work(region, ok, outs) if outs and ok is not None else Work(region)

    def _write_late(
        self,
        works: list[Work],
        region: Eqn,
        first: Var | None,
        undo: list[tuple[Work, Work, int]],
    ) -> None:
        """A region that a late witness needs; before it, what keeps the rows it replaces."""
        work = self._conditional(region, first)
        for out, at in updates_of(region):
            if region.outs[out].id in self.writers and new_elems(region, out):
                save = Work(save_region(region, out, at, self.ids))
                works.append(save)
                undo.append((save, work, out))
        works.append(work)

    def _undo(
        self,
        works: list[Work],
        final: Var,
        undo: list[tuple[Work, Work, int]],
        tails: dict[int, Var],
    ) -> tuple[Var | None, tuple[tuple[Work, Work, int, Work], ...]]:
        """The launches that put rows back, the last written first."""
        if not undo:
            return None, ()
        failed = self.ids.var(WORD)
        works.append(Work(not_region(final, failed)))
        done: list[tuple[Work, Work, int, Work]] = []
        newest = dict(tails)
        for save, write, out in reversed(undo):
            line = tails[write.region.outs[out].id].id
            state = newest[line]
            restored = self.ids.var(state.type)
            back = restore_region(write.region, out, state, save.region, restored)
            newest[line] = restored
            work = Work(back, failed, (0,))
            works.append(work)
            done.append((save, write, out, work))
        return failed, tuple(done)
