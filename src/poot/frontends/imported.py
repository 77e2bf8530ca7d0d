"""What a front end hands over: a graph, and the arrays that the program came with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from poot.api import Program
from poot.ir.graph import Graph
from poot.session import Session


@dataclass(frozen=True, slots=True)
class Imported:
    """A program that was written elsewhere. `weights` are by input name, as `bind` takes them, and
    share their memory with the program's own where that can be; `states` say what a State starts
    as that doesn't start as zeros."""

    graph: Graph
    weights: Mapping[str, np.ndarray]
    states: Mapping[str, np.ndarray]

    def bind(self, program: Program) -> Session:
        """A session of a program that was compiled from the graph, with its weights and what its
        States start as. Raises what `Program.bind` raises."""
        session = program.bind(self.weights)
        for name, array in self.states.items():
            session.state[name] = array
        return session
