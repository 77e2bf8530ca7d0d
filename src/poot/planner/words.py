"""Small regions that the planner itself makes: the words that decide about State, copies, and the
rows that an update replaces, kept and put back."""

from __future__ import annotations

from poot.errors import CapabilityError
from poot.ir.attrs import int_attr
from poot.ir.build import Builder, make_eqn
from poot.ir.graph import Eqn, Graph, Slot, TensorType, Var
from poot.planner.steps import Updates, copy_body

WORD = TensorType("bool", ())
_RECORDS_A_LAUNCH = 4


class Ids:
    """Fresh values for a graph's plan."""

    def __init__(self, first: int) -> None:
        self._next = first

    def var(self, type: TensorType) -> Var:
        self._next += 1
        return Var(self._next - 1, type)


def region(
    body: Graph, ins: tuple[Var, ...], outs: tuple[Var, ...], updates: Updates = (), loc: str = ""
) -> Eqn:
    """A region eqn without an anchor."""
    attrs = (("anchor", "none"), ("body", body), ("updates", updates))
    return Eqn("region", ins, outs, attrs, loc)


def copy_region(source: Var, out: Var) -> Eqn:
    """out = source."""
    return region(copy_body(source), (source,), (out,))


def verdict_regions(records: tuple[Var, ...], before: Var | None, ids: Ids) -> list[Eqn]:
    """Regions whose last makes a bool[]: every record counts no failure, and `before` holds."""
    made: list[Eqn] = []
    unique = tuple(dict.fromkeys(records))
    for first in range(0, len(unique), _RECORDS_A_LAUNCH):
        part = unique[first : first + _RECORDS_A_LAUNCH]
        ins = part if before is None else (*part, before)
        build = Builder()
        names = [build.input(v.type, f"i{n}", Slot()) for n, v in enumerate(ins)]
        holds = all_hold(build, tuple(names[: len(part)]), None if before is None else names[-1])
        before = ids.var(WORD)
        made.append(region(build.graph((holds,)), ins, (before,)))
    return made


def all_hold(build: Builder, records: tuple[Var, ...], before: Var | None) -> Var:
    """bool[]: no record counts a failure, and `before` (bool[]) holds."""
    total: Var | None = None
    for record in records:
        count = build.one("slice", record, start=(0,), stop=(1,), step=(1,))
        total = count if total is None else build.one("or", total, count)
    assert total is not None, "a verdict over no record"
    zero = build.one("const", shape=(1,), dtype="i32", value=0)
    holds = build.one("reshape", build.one("eq", total, zero), shape=())
    return holds if before is None else build.one("and", holds, before)


def not_region(word: Var, out: Var) -> Eqn:
    """out = not word."""
    build = Builder()
    x = build.input(WORD, "i0", Slot())
    return region(build.graph((build.one("not", x),)), (word,), (out,))


def _update_of(write: Eqn, out: int) -> tuple[Graph, Eqn]:
    body = write.attr("body")
    assert isinstance(body, Graph)
    for eqn in body.eqns:
        if body.outputs[out] in eqn.outs:
            return body, eqn
    raise CapabilityError("a State write without an update can't be undone", write.loc)


def new_elems(write: Eqn, out: int) -> int:
    """How many elements an update replaces at most."""
    return _update_of(write, out)[1].ins[1].type.elems


def save_region(write: Eqn, out: int, at: int, ids: Ids) -> Eqn:
    """Keeps what a State update replaces: (rows as they are, where they lie). `at` is the position
    of the State among what `write` reads."""
    body, update = _update_of(write, out)
    index = update.ins[2]
    makers = {v.id: e for e in body.eqns for v in e.outs}
    needed: set[int] = {index.id}
    cone: list[Eqn] = []
    for eqn in reversed(body.eqns):
        if any(v.id in needed for v in eqn.outs):
            cone.append(eqn)
            needed.update(v.id for v in eqn.ins)
    pairs = [
        (i, v)
        for n, (i, v) in enumerate(zip(body.inputs, write.ins, strict=True))
        if n == at or i.var.id in needed
    ]
    first = 1 + max([i.var.id for i in body.inputs] + list(makers), default=0)
    x, new, _ = update.ins
    if update.op == "dynamic_update_slice":
        axis = int_attr(update, "axis")
        read = make_eqn(
            "dynamic_slice", (x, index), first, {"axis": axis, "size": new.type.shape[axis]}
        )
    else:
        read = make_eqn("gather", (x, index), first, {"axis": 0})
    where = make_eqn("reshape", (index,), first + 1, {"shape": index.type.shape})
    inner = Graph(tuple(i for i, _ in pairs), (*reversed(cone), read, where), (read.out, where.out))
    outs = (ids.var(read.out.type), ids.var(where.out.type))
    return region(inner, tuple(v for _, v in pairs), outs, loc=write.loc)


def restore_region(write: Eqn, out: int, state: Var, save: Eqn, restored: Var) -> Eqn:
    """Puts back, over the State's newest value, what `save` kept of it."""
    _, update = _update_of(write, out)
    kept, where = save.outs
    build = Builder()
    x, rows, index = (
        build.input(v.type, f"i{n}", Slot()) for n, v in enumerate((state, kept, where))
    )
    axis = {} if update.op == "scatter_update" else {"axis": int_attr(update, "axis")}
    back = build.one(update.op, x, rows, index, loc=write.loc, **axis)
    ins = (state, kept, where)
    return region(build.graph((back,)), ins, (restored,), ((0, 0),), write.loc)
