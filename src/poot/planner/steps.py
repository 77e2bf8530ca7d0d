"""From eqns to requests: each eqn becomes one step's body, canonical, with its anchor and schedule.

A region eqn is taken as it is; a bare primitive (a program compiled with no passes) becomes a
region of its own. A
scatter_update that can't be done in place becomes a copy and an in-place update of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import cast

from poot.errors import CapabilityError
from poot.ir.graph import Eqn, Graph, Input, Slot, Var, Weight
from poot.ir.walk import next_id
from poot.limits import DeviceLimits
from poot.planner.request import Choice, Condition, Layout, Request, Schedule

ANCHORS = {
    "matmul": "matmul",
    "reduce": "reduce",
    "attention": "attention",
    "selected_attention": "attention",
}
IN_PLACE = ("dynamic_update_slice", "scatter_update")
_CHIEF = (*ANCHORS, "topk", "block_scores", "block_topk", "argmax", "rope", *IN_PLACE)

Updates = tuple[tuple[int, int], ...]
Places = tuple[int, ...]
Chooser = Callable[[Graph, str, Updates, DeviceLimits], Choice]


@dataclass(frozen=True, slots=True)
class Stage:
    """A request with the graph values it reads and makes. `op` names it for people."""

    request: Request
    ins: tuple[Var, ...]
    outs: tuple[Var, ...]
    op: str
    loc: str
    reason: str


def canonical_body(body: Graph, bound: Container[int] = ()) -> Graph:
    """The body renumbered from v0, its inputs named i0, i1, ...: equal for equal layers. `bound`
    holds the numbers of the inputs that are Weights."""
    ids: dict[int, Var] = {}

    def named(v: Var) -> Var:
        if v.id not in ids:
            ids[v.id] = Var(len(ids), v.type)
        return ids[v.id]

    inputs = tuple(
        Input(
            named(i.var),
            f"i{n}",
            Weight()
            if n in bound
            else i.storage
            if isinstance(i.storage, Slot) and i.storage.range
            else Slot(),
        )
        for n, i in enumerate(body.inputs)
    )
    eqns = tuple(
        replace(e, ins=tuple(map(named, e.ins)), outs=tuple(map(named, e.outs)), loc="")
        for e in body.eqns
    )
    return Graph(inputs, eqns, tuple(map(named, body.outputs)))


def _anchor_of(body: Graph) -> str:
    for eqn in body.eqns:
        if eqn.op in ANCHORS:
            return ANCHORS[eqn.op]
    return "none"


def _wrap(eqn: Eqn) -> Eqn:
    """A bare eqn as a region of one."""
    unique = tuple(dict.fromkeys(eqn.ins))
    inputs = tuple(Input(v, f"i{n}", Slot()) for n, v in enumerate(unique))
    body = Graph(inputs, (eqn,), eqn.outs)
    attrs = (("anchor", _anchor_of(body)), ("body", body), ("updates", ()))
    return Eqn("region", unique, eqn.outs, attrs, eqn.loc)


def describe(body: Graph) -> str:
    """For people: what a step computes, its chief op first."""
    names = [
        e.op
        for e in body.eqns
        if e.op not in ("reshape", "broadcast", "transpose", "const", "iota", "slice")
    ]
    chief = [n for n in names if n in _CHIEF]
    rest = len(names) - len(chief)
    shown = " ".join(dict.fromkeys(chief)) or (names[0] if names else "copy")
    return f"{shown} +{rest}" if chief and rest else shown


def copy_body(v: Var) -> Graph:
    """The body that copies one value."""
    out = Var(1, v.type)
    eqn = Eqn("reshape", (Var(0, v.type),), (out,), (("shape", v.type.shape),))
    return Graph((Input(Var(0, v.type), "i0", Slot()),), (eqn,), (out,))


def _split_scatter(eqn: Eqn, next_id: int) -> tuple[Eqn, Eqn]:
    """copy = x; out = scatter_update(copy, update, rows) in place."""
    x, update, rows = eqn.ins
    copied = Var(next_id, x.type)
    copy_eqn = Eqn(
        "region",
        (x,),
        (copied,),
        (("anchor", "none"), ("body", copy_body(x)), ("updates", ())),
        eqn.loc,
    )
    inner = replace(eqn, ins=(copied, update, rows))
    region = _wrap(inner)
    at = region.ins.index(copied)
    body = region.attr("body")
    attrs = (("anchor", "none"), ("body", body), ("updates", ((0, at),)))
    return copy_eqn, replace(region, attrs=attrs)


def regions_of(graph: Graph, can_update: Callable[[Eqn], bool]) -> list[Eqn]:
    """Every eqn as a region eqn, in order. `can_update` says whether a bare update eqn may write
    over its x."""
    next_id = 1 + max((v.id for e in graph.eqns for v in e.outs), default=0)
    next_id = max(next_id, 1 + max((i.var.id for i in graph.inputs), default=0))
    out: list[Eqn] = []
    for eqn in graph.eqns:
        if eqn.op == "region":
            out.append(eqn)
        elif eqn.op in IN_PLACE and can_update(eqn):
            region = _wrap(eqn)
            updates = ((0, region.ins.index(eqn.ins[0])),)
            out.append(
                replace(
                    region,
                    attrs=(("anchor", "none"), ("body", region.attr("body")), ("updates", updates)),
                )
            )
        elif eqn.op == "scatter_update":
            out.extend(_split_scatter(eqn, next_id))
            next_id += 1
        else:
            out.append(_wrap(eqn))
    return out


def choose_nothing(body: Graph, anchor: str, updates: Updates, limits: DeviceLimits) -> Choice:
    """For the oracle, which runs eqns and needs no loops."""
    return Choice(Schedule("oracle"), (Layout(),) * len(body.inputs))


def updates_of(region: Eqn) -> Updates:
    """A region eqn's (out, in) pairs."""
    pairs = region.attr("updates", ())
    return cast("tuple[tuple[int, int], ...]", pairs)  # its typing rule says so


@dataclass(frozen=True, slots=True)
class Asked:
    """What stages of equal bodies share: the request, what it is for people, and why so."""

    request: Request
    op: str
    reason: str


class Stager:
    """Makes the stages of one graph. Regions that share a body share a request, chosen once:
    `chosen` counts how often a schedule was asked for. `weights` holds the ids of the graph's
    Weights, which may be packed."""

    def __init__(self, choose: Chooser, limits: DeviceLimits, weights: Container[int] = ()) -> None:
        self.choose, self.limits, self.weights = choose, limits, weights
        self.chosen = 0
        # What was asked, by body; a body is held with it, so that its id() stays its own.
        self._asked: dict[object, tuple[Graph, Asked]] = {}

    def stage(self, region: Eqn, ok: Var | None = None, outs: Places = ()) -> Stage:
        """One region eqn as a stage, its schedule chosen for the device. With `ok`, a bool[] that
        becomes its last operand, the outs of those numbers are stored only where it holds. Where
        none can be chosen the CapabilityError names the region's op and line."""
        body, anchor, updates = region.attr("body"), region.attr("anchor"), updates_of(region)
        assert isinstance(body, Graph)
        assert isinstance(anchor, str)
        bound = tuple([n for n, v in enumerate(region.ins) if v.id in self.weights])
        key = (id(body), anchor, updates, bound, None if ok is None else (ok.type, outs))
        if key not in self._asked:
            try:
                self._asked[key] = (body, self._ask(body, anchor, updates, bound, ok, outs))
            except CapabilityError as e:
                if e.loc:
                    raise
                raise e.located(region.loc) from e
        asked = self._asked[key][1]
        ins = region.ins if ok is None else (*region.ins, ok)
        return Stage(asked.request, ins, region.outs, asked.op, region.loc, asked.reason)

    def _ask(
        self,
        body: Graph,
        anchor: str,
        updates: Updates,
        bound: Places,
        ok: Var | None,
        outs: Places,
    ) -> Asked:
        self.chosen += 1
        canonical = canonical_body(body, bound)
        choice = self.choose(canonical, anchor, updates, self.limits)
        request = Request(
            canonical, anchor, updates, choice.layouts, choice.schedule, choice.scratch
        )
        if ok is not None:
            request = _conditional(request, ok, outs)
        return Asked(request, describe(body), choice.reason)


def _conditional(request: Request, ok: Var, outs: Places) -> Request:
    """The request with one more operand, the word that decides about the outs of those numbers."""
    body = request.body
    at = len(body.inputs)
    word = Input(Var(next_id(body), ok.type), f"i{at}", Slot())
    return replace(
        request,
        body=replace(body, inputs=(*body.inputs, word)),
        layouts=(*request.layouts, Layout()),
        condition=Condition(at, outs),
    )
