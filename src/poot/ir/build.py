"""The one way to make a Graph: the builder runs each op's typing rule, so a bad eqn can't exist.

Eqns are not interned here (`passes/cse.py` does that); dead ones stay until `passes/dce.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from poot.errors import TypeRuleError
from poot.ir.graph import Eqn, Graph, Input, Storage, TensorType, Var
from poot.ir.ops import out_types


def freeze(value: object) -> object:
    """An attribute value as hashable data: lists become tuples, numpy scalars Python numbers, every
    NaN the one object `math.nan`, so that equal eqns compare equal."""
    if type(value) in (int, str, bool):
        return value
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)  # isinstance leaves the elements unknown
        return tuple([v if type(v) is int else freeze(v) for v in items])
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def make_eqn(
    op: str, ins: tuple[Var, ...], first_id: int, attrs: dict[str, object], loc: str = ""
) -> Eqn:
    """An eqn whose outs are numbered from `first_id`, typed by the op's rule."""
    frozen = tuple([(k, freeze(attrs[k])) for k in sorted(attrs)]) if attrs else ()
    types = out_types(op, tuple([v.type for v in ins]), frozen, loc)
    outs = tuple([Var(first_id + i, t) for i, t in enumerate(types)])
    return Eqn(op, ins, outs, frozen, loc)


@dataclass(slots=True)
class Builder:
    """Collects inputs and eqns; `graph` hands out what was built. Ids count up from `next_id`."""

    next_id: int = 0
    inputs: list[Input] = field(default_factory=list[Input])
    eqns: list[Eqn] = field(default_factory=list[Eqn])
    validations: list[Var] = field(default_factory=list[Var])
    names: set[str] = field(default_factory=set[str])

    def input(self, type: TensorType, name: str, storage: Storage) -> Var:
        """A new input. Raises TypeRuleError on a name that is taken."""
        if name in self.names:
            raise TypeRuleError(f"there is an input {name!r} already")
        self.names.add(name)
        var = Var(self.next_id, type)
        self.next_id += 1
        self.inputs.append(Input(var, name, storage))
        return var

    def emit(self, op: str, *ins: Var, loc: str = "", **attrs: object) -> tuple[Var, ...]:
        """A new eqn's outs."""
        eqn = make_eqn(op, ins, self.next_id, attrs, loc)
        self.next_id += len(eqn.outs)
        self.eqns.append(eqn)
        return eqn.outs

    def one(self, op: str, *ins: Var, loc: str = "", **attrs: object) -> Var:
        """The only out of a new eqn."""
        (out,) = self.emit(op, *ins, loc=loc, **attrs)
        return out

    def graph(
        self,
        outputs: tuple[Var, ...],
        states: tuple[tuple[Var, Var], ...] = (),
        tree: object = None,
    ) -> Graph:
        return Graph(
            tuple(self.inputs), tuple(self.eqns), outputs, states, tuple(self.validations), tree
        )
