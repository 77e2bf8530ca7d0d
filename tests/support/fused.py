"""What the rewrites make of a traced function, and whether it still means the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits, profile
from poot.oracle import run
from poot.passes.pipeline import PIPELINE, run_pipeline
from tests.support.check import assert_same
from tests.support.traced import graph_of

REWRITES = tuple(p for p in PIPELINE if p.name in ("canonicalize", "rope", "attention"))
# Scales and sums are reassociated, and the op's numbers are f32.
CLOSE = 4e-6


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The graph after the rewrites, and the reasons that were noted against more."""

    before: Graph
    after: Graph
    declined: tuple[str, ...]

    def eqns(self, op: str) -> list[Eqn]:
        return [e for e in self.after.eqns if e.op == op]

    def check(self, feed: Mapping[str, object], within: float = CLOSE) -> None:
        """Asserts that both graphs give the same on the inputs, in f64."""
        want, got = (run(g, feed, f64=True) for g in (self.before, self.after))
        assert_same(want, got, within)


def rewritten(graph: Graph, limits: DeviceLimits | None = None) -> Rewritten:
    """The graph after canonicalize, rope and attention, verified between them."""
    after, reports = run_pipeline(graph, limits or profile("lavapipe"), REWRITES, check=True)
    return Rewritten(graph, after, tuple(n.what for r in reports for n in r.declined))


def rewrite_of(fn: Callable[..., object], *arrays: np.ndarray) -> Rewritten:
    """fn traced on the arrays and rewritten; it means the same on them."""
    got = rewritten(graph_of(fn, *arrays))
    names = [i.name for i in got.before.inputs][: len(arrays)]
    got.check(dict(zip(names, arrays, strict=True)))
    return got


def only(got: Rewritten, op: str = "attention") -> Eqn:
    """The only eqn of that op."""
    (eqn,) = got.eqns(op)
    return eqn


def operands(eqn: Eqn) -> dict[str, str]:
    """An attention eqn's operands: name -> type as text."""
    names = eqn.attr("operands")
    assert isinstance(names, tuple)
    return {str(n): str(v.type) for n, v in zip(names, eqn.ins, strict=True)}
