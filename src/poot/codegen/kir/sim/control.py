"""Control flow over masks. A driver sets the wave's mask and registers and yields which of a
statement's blocks to run next; it puts the mask back when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from poot.codegen.kir.nodes import For, If, Roles, While
from poot.codegen.kir.sim.values import NUMPY, dtype_of
from poot.codegen.kir.sim.wave import Bools, Value, Wave
from poot.codegen.kir.text import show_operand, show_stmt
from poot.errors import SimulationError

Driver = Callable[[Wave], Iterator[int]]
# A while loop that runs this often waits for what never comes.
MAX_TRIPS = 1 << 17


def _narrow(wave: Wave, cond: Value) -> tuple[Bools | None, bool]:
    """The mask of the active lanes where cond holds (None: all lanes of the wave), and whether
    there are any.
    """
    if cond.ndim == 0:
        return wave.mask, bool(cond)
    chosen: Bools = cond.astype(np.bool_) if wave.mask is None else np.logical_and(cond, wave.mask)
    if chosen.all():
        return None, True
    return chosen, bool(chosen.any())


def branch(stmt: If, cond: int) -> Driver:
    """Block 0 where the register holds, block 1 where it doesn't."""
    has_else = bool(stmt.orelse)

    def run(wave: Wave) -> Iterator[int]:
        outer, holds = wave.mask, wave.regs[cond]
        then, some = _narrow(wave, holds)
        if some:
            wave.mask = then
            yield 0
        if has_else:
            wave.mask = outer
            orelse, some = _narrow(wave, np.logical_not(holds))
            if some:
                wave.mask = orelse
                yield 1
        wave.mask = outer

    return run


def counted(stmt: For, var: int, bounds: tuple[int, int, int]) -> Driver:
    """Block 0 for each value of the register. The bounds are read once."""
    kind = NUMPY[dtype_of(stmt.var.type)]

    def run(wave: Wave) -> Iterator[int]:
        start, stop, step = (np.asarray(wave.regs[b], np.int64) for b in bounds)
        outer = wave.mask
        backward = np.less_equal(step, 0)
        if (backward if outer is None or not backward.ndim else backward & outer).any():
            raise SimulationError(
                f"undefined: a step of 0 or less: `{show_stmt(stmt)}`", kind="undefined"
            )
        trips = np.maximum(-((start - stop) // step), 0)
        if outer is not None and trips.ndim:
            trips = np.where(outer, trips, 0)
        chosen = trips if outer is None or not trips.ndim else trips[outer]
        least, most = int(chosen.min()), int(chosen.max())
        for trip in range(most):
            if trip >= least:
                wave.mask = trip < trips
            wave.regs[var] = (start + step * trip).astype(kind)
            yield 0
        wave.mask = outer

    return run


def looped(stmt: While, cond: int) -> Driver:
    """Block 0 (the head), then block 1 where the register holds, until it holds nowhere."""

    def run(wave: Wave) -> Iterator[int]:
        outer = wave.mask
        for _ in range(MAX_TRIPS):
            yield 0
            inner, some = _narrow(wave, wave.regs[cond])
            if not some:
                wave.mask = outer
                return
            wave.mask = inner
            yield 1
        what = f"a loop while {show_operand(stmt.cond)} ran {MAX_TRIPS} times"
        raise SimulationError(f"deadlock: {what}", kind="deadlock")

    return run


def chosen_role(stmt: Roles) -> Driver:
    """The block of the one role that holds the wave's subgroup, or none."""

    def run(wave: Wave) -> Iterator[int]:
        own = int(wave.place.lane[0]) // wave.place.width
        for at, role in enumerate(stmt.roles):
            if role.first <= own < role.first + role.count:
                yield at

    return run
