"""Equal eqns become one, by interning each as it comes.

before   b = exp(a)         after   b = exp(a)
         c = exp(a)                 d = add(b, b)
         d = add(b, c)
Needs nothing. Leaves no two eqns of equal op, operands and attributes. Linear; ops have no effects,
so any two equal eqns may be shared. Numbers are told apart by their text: 0.0, -0.0, 0 and False
differ.
"""

from __future__ import annotations

from poot.ir.graph import Eqn, Graph, Var
from poot.ir.walk import rebuild

Key = tuple[str, tuple[int, ...], tuple[tuple[str, object], ...]]
_BY_VALUE = (int, str, tuple)  # equal values of one of these types are the same number or name


def key_of(eqn: Eqn) -> Key:
    """What equal eqns share."""
    attrs = eqn.attrs
    if attrs and not all([type(v) in _BY_VALUE for _, v in attrs]):
        attrs = tuple([(k, v if type(v) in _BY_VALUE else repr(v)) for k, v in attrs])
    return eqn.op, tuple([v.id for v in eqn.ins]), attrs


def cse(graph: Graph) -> Graph:
    """The graph with every eqn that repeats an earlier one replaced by that one."""
    first: dict[Key, Eqn] = {}
    same: dict[int, Var] = {}
    kept: list[Eqn] = []
    for eqn in graph.eqns:
        if any(v.id in same for v in eqn.ins):
            ins = tuple(same.get(v.id, v) for v in eqn.ins)
            eqn = Eqn(eqn.op, ins, eqn.outs, eqn.attrs, eqn.loc)
        earlier = first.setdefault(key_of(eqn), eqn)
        if earlier is eqn:
            kept.append(eqn)
        else:
            same.update((o.id, e) for o, e in zip(eqn.outs, earlier.outs, strict=True))
    return rebuild(graph, kept, same) if same else graph
