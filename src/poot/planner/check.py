"""Replays a plan with names for contents: each read finds its value, whole. Shares only dataclasses
with the planner.

It knows nothing of lives or colouring: it holds, for each space, which bytes hold which value now.
"""

from __future__ import annotations

from poot.errors import PlanError
from poot.ir.graph import Graph
from poot.planner.plan import EntryPlan, Place, Plan, Step


class Memory:
    """Which value's bytes lie where. A write names bytes; whatever it touches is gone."""

    def __init__(self) -> None:
        self.held: dict[str, dict[tuple[int, int], str]] = {}

    def write(self, p: Place, value: str) -> None:
        start, stop = p.offset, p.offset + p.nbytes
        space = self.held.setdefault(p.space, {})
        for at in [a for a in space if a[0] < stop and start < a[1]]:
            del space[at]
        space[start, stop] = value

    def read(self, p: Place) -> str | None:
        return self.held.get(p.space, {}).get((p.offset, p.offset + p.nbytes))


def _expect(memory: Memory, p: Place, what: str) -> None:
    found = memory.read(p)
    if found != p.name and p.nbytes > 0:
        raise PlanError(
            f"{what} reads {p.name} at {p.space}[{p.offset},{p.offset + p.nbytes}) and finds "
            f"{found or 'nothing whole'}"
        )


def _inside(p: Place, sizes: dict[str, int], align: int, what: str) -> None:
    if p.nbytes and not (p.offset >= 0 and p.offset + p.nbytes <= sizes.get(p.space, 0)):
        raise PlanError(
            f"{what}: {p.name} leaves its space {p.space} of {sizes.get(p.space, 0)} bytes"
        )
    if p.offset % align:
        raise PlanError(f"{what}: {p.name} at {p.offset} is not at a multiple of {align}")


def _check_step(step: Step, n: int, memory: Memory, sizes: dict[str, int], align: int) -> None:
    what = f"step {n} ({step.op})"
    for p in (*step.ins, *step.outs, *step.scratch):
        _inside(p, sizes, align, what)
    for p in step.ins:
        _expect(memory, p, what)
    updated = {step.outs[o]: step.ins[i] for o, i in step.request.updates}
    for p in step.scratch:
        memory.write(p, p.name)
    for p in step.outs:
        if p in updated and (updated[p].space, updated[p].offset) != (p.space, p.offset):
            raise PlanError(f"{what} updates {p.name} in place, but not where it lies")
        for other in step.ins:
            overlap = (
                other.space == p.space
                and other.offset < p.offset + p.nbytes
                and p.offset < other.offset + other.nbytes
            )
            is_own = p in updated and updated[p] == other
            is_copy_home = other.name == p.name
            if overlap and p.nbytes and other.nbytes and not is_own and not is_copy_home:
                raise PlanError(f"{what} writes {p.name} over {other.name}, which it reads")
        memory.write(p, p.name)
    for p in step.outs:
        _expect(memory, p, f"{what}, after its writes,")


def _check_entry(entry: EntryPlan, plan: Plan, sizes: dict[str, int]) -> None:
    memory = Memory()
    for r in plan.residents:
        memory.write(r.place, r.name)
    for r in plan.residents:
        _expect(memory, r.place, "the bind")
    for n, step in enumerate(entry.steps):
        _check_step(step, n, memory, sizes, plan.limits.offset_align)
    for _, p in (*entry.outputs, *entry.witnesses):
        _expect(memory, p, f"entry point {entry.name!r}, at its end,")


def check_plan(plan: Plan, graphs: dict[str, Graph]) -> None:
    """Raises PlanError where a step reads what isn't there, writes over what it reads, or leaves
    its space."""
    sizes = dict(plan.spaces)
    for entry in plan.entries:
        _check_entry(entry, plan, sizes)
        want = graphs[entry.name]
        if len(entry.outputs) != len(want.outputs):
            raise PlanError(
                f"entry point {entry.name!r} plans {len(entry.outputs)} of {len(want.outputs)} "
                f"outputs"
            )
