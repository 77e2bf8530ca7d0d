"""Spelling goes: each thing that can be said in many ways is said in one.

The rules of `passes/canonical/`, by theme: numbers, signs, casts, moves, parts, known. Needs
nothing. Leaves constants on the right, no move of a move of its kind, no cast of an exact cast,
reductions that keep their axes, no equal eqns, and no eqn that a rule would still change. No rule
changes a bit of a result, and none makes a graph of more work: an eqn that a rule adds is free, or
replaces one that costs as much.
"""

from __future__ import annotations

from poot.ir.graph import Graph
from poot.limits import DeviceLimits
from poot.passes.canonical.casts import CASTS
from poot.passes.canonical.known import KNOWN
from poot.passes.canonical.moves import MOVES
from poot.passes.canonical.numbers import NUMBERS, numbers_from_arrays
from poot.passes.canonical.parts import PARTS
from poot.passes.canonical.signs import SIGNS
from poot.passes.engine import Outcome, Rule, rewrite

CANONICAL: tuple[Rule, ...] = (*NUMBERS, *SIGNS, *CASTS, *MOVES, *PARTS, *KNOWN)


def canonicalize(graph: Graph, limits: DeviceLimits) -> Outcome:
    """The graph in canonical form; the device does not matter."""
    return rewrite(numbers_from_arrays(graph), CANONICAL)
