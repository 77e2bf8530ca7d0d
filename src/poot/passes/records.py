"""A witness becomes a record: how many elements failed, the first one's index, and its value.

before   c, w = index_guard(x)      after    bad = not(w)
         validate w                          count = sum(select(bad, 1, 0))
                                             first = min(select(bad, iota, last))
                                             r = concat(count, first, x.flat[first])
                                             validate r
Needs nothing. Leaves every validation an i32[3] record, in the same order; a witness declared twice
has one record. The value is of what an index_guard guards, and 0 of any other witness. Linear.
"""

from __future__ import annotations

from dataclasses import replace

from poot.ir.build import Builder
from poot.ir.graph import Graph, Var
from poot.ir.transaction import is_record
from poot.ir.walk import next_id, producers
from poot.limits import DeviceLimits
from poot.passes.engine import Outcome


def record_of(build: Builder, witness: Var, x: Var | None, loc: str = "") -> Var:
    """The record of a bool witness of any shape; `x` has its shape and holds the values, i32."""
    n = witness.type.elems
    if n == 0:
        return build.one("const", shape=(3,), dtype="i32", value=0, loc=loc)

    def number(value: int) -> Var:
        return build.one("const", shape=(1,), dtype="i32", value=value, loc=loc)

    def flat(v: Var) -> Var:
        return v if v.type.shape == (n,) else build.one("reshape", v, shape=(n,), loc=loc)

    bad = build.one("not", flat(witness), loc=loc)
    count = build.one("select", bad, number(1), number(0), loc=loc)
    if n == 1:
        first = number(0)
    else:
        places = build.one("iota", shape=(n,), axis=0, dtype="i32", loc=loc)
        places = build.one("select", bad, places, number(n - 1), loc=loc)
        axes: dict[str, object] = {"axis": (0,), "keepdim": True}
        count = build.one("reduce", count, kind="sum", loc=loc, **axes)
        first = build.one("reduce", places, kind="min", loc=loc, **axes)
    if x is None:
        value = number(0)
    else:
        value = flat(x) if n == 1 else build.one("gather", flat(x), first, axis=0, loc=loc)
    return build.one("concat", count, first, value, axis=0, loc=loc)


def form_records(graph: Graph, limits: DeviceLimits) -> Outcome:
    """The graph with a record for each witness."""
    if all(is_record(v) for v in graph.validations):
        return Outcome(graph, ())
    made_by = producers(graph)
    build = Builder(next_id=next_id(graph))
    records: dict[int, Var] = {}
    for v in graph.validations:
        if v.id in records or is_record(v):
            records.setdefault(v.id, v)
            continue
        maker = made_by.get(v.id)
        guards = maker is not None and maker.op == "index_guard"
        x = maker.ins[0] if maker is not None and guards else None
        records[v.id] = record_of(build, v, x, maker.loc if maker is not None else "")
    made = len(records)
    left = replace(
        graph,
        eqns=(*graph.eqns, *build.eqns),
        validations=tuple(records[v.id] for v in graph.validations),
    )
    return Outcome(left, (("records", made),))
