"""Steps that bind no more buffers than the device has: small operands of one dtype travel as one.

before   out = region(a, b, c, ...)              more operands and outputs than storage buffers
after    packed = region(a, b)                   the elements of a, then those of b
         out = region(packed, c, ...)            its body slices a and b out of packed
Needs regions. Smallest operands first, until the count fits. A State that the step updates stays as
it is.
"""

from __future__ import annotations

from dataclasses import replace

from poot.errors import BindingLimit
from poot.ir.build import make_eqn
from poot.ir.graph import Eqn, Graph, Input, Slot, TensorType, Var
from poot.limits import DeviceLimits
from poot.planner.steps import updates_of


def _packable(region: Eqn, kept: set[int]) -> list[list[int]]:
    """Positions of operands by dtype, smallest first, where a dtype has two or more."""
    by_dtype: dict[str, list[int]] = {}
    for n, v in enumerate(region.ins):
        if n not in kept and v.type.elems:
            by_dtype.setdefault(v.type.dtype, []).append(n)
    groups = [sorted(g, key=lambda n: region.ins[n].type.nbytes) for g in by_dtype.values()]
    return [g for g in groups if len(g) > 1]


def _choose(region: Eqn, kept: set[int], surplus: int) -> list[list[int]]:
    """Groups to pack: always the operand whose copy costs least, until `surplus` bindings are
    saved."""
    groups = _packable(region, kept)
    chosen: list[list[int]] = [[] for _ in groups]
    while surplus > 0:
        best: tuple[int, int] | None = None
        for g, (group, taken) in enumerate(zip(groups, chosen, strict=True)):
            want = 2 if not taken else 1
            if len(group) - len(taken) >= want:
                cost = sum(region.ins[n].type.nbytes for n in group[len(taken) : len(taken) + want])
                best = min(best, (cost, g)) if best else (cost, g)
        if best is None:
            return []
        g = best[1]
        chosen[g] = groups[g][: max(2, len(chosen[g]) + 1)]
        surplus -= 1
    return [c for c in chosen if c]


def _pack_region(values: tuple[Var, ...], out: Var, loc: str) -> Eqn:
    """out = the elements of the values, one after another."""
    inputs = tuple(Input(Var(n, v.type), f"i{n}", Slot()) for n, v in enumerate(values))
    next_id = len(values)
    eqns: list[Eqn] = []
    flat: list[Var] = []
    for i in inputs:
        eqns.append(make_eqn("reshape", (i.var,), next_id, {"shape": (i.var.type.elems,)}))
        flat.append(eqns[-1].out)
        next_id += 1
    eqns.append(make_eqn("concat", tuple(flat), next_id, {"axis": 0}))
    body = Graph(inputs, tuple(eqns), eqns[-1].outs)
    attrs = (("anchor", "none"), ("body", body), ("updates", ()))
    return Eqn("region", values, (out,), attrs, loc)


def _unpack(body: Graph, group: list[int], packed: Var) -> tuple[Graph, Input]:
    """The body with the group's inputs sliced out of `packed` (a body var)."""
    eqns: list[Eqn] = []
    next_id = packed.id + 1
    start = 0
    for n in group:
        var = body.inputs[n].var
        stop = start + var.type.elems
        part = make_eqn(
            "slice", (packed,), next_id, {"start": (start,), "stop": (stop,), "step": (1,)}
        )
        shaped = make_eqn("reshape", (part.out,), next_id + 1, {"shape": var.type.shape})
        eqns += [part, replace(shaped, outs=(var,))]
        next_id, start = next_id + 2, stop
    return replace(body, eqns=(*eqns, *body.eqns)), Input(packed, f"packed{packed.id}", Slot())


def _top_id(body: Graph) -> int:
    made = [v.id for e in body.eqns for v in e.outs]
    return max([*made, *(i.var.id for i in body.inputs)], default=0)


def fewer_operands(
    regions: list[Eqn], next_id: int, limits: DeviceLimits, words: int = 0
) -> list[Eqn]:
    """The regions, each within the device's storage buffers. New values count up from `next_id`;
    `words` is how many operands a region that updates in place will have besides.

    Raises BindingLimit where packing can't save enough."""
    out: list[Eqn] = []
    for region in regions:
        kept = {i for _, i in updates_of(region)}
        bound = len(region.ins) + len(region.outs) - len(kept) + (words if kept else 0)
        surplus = bound - limits.storage_buffers
        if surplus <= 0:
            out.append(region)
            continue
        groups = _choose(region, kept, surplus)
        if not groups:
            raise BindingLimit(
                f"a step binds {bound} buffers and {limits.name} has {limits.storage_buffers}; "
                "compute fewer results at once",
                region.loc,
            )
        packs, slim, next_id = _slim(region, groups, next_id)
        out += [*packs, slim]
    return out


def _slim(region: Eqn, groups: list[list[int]], next_id: int) -> tuple[list[Eqn], Eqn, int]:
    body = region.attr("body")
    assert isinstance(body, Graph)
    packs: list[Eqn] = []
    added: list[tuple[Var, Input]] = []
    for group in groups:
        values = tuple(region.ins[n] for n in group)
        elems = sum(v.type.elems for v in values)
        type = TensorType(values[0].type.dtype, (elems,))
        packs.append(_pack_region(values, Var(next_id, type), region.loc))
        body, inner = _unpack(body, group, Var(_top_id(body) + 1, type))
        added.append((Var(next_id, type), inner))
        next_id += 1
    gone = {n for group in groups for n in group}
    left = [n for n in range(len(region.ins)) if n not in gone]
    inputs = (*(body.inputs[n] for n in left), *(i for _, i in added))
    ins = (*(region.ins[n] for n in left), *(v for v, _ in added))
    moved = tuple((o, left.index(i)) for o, i in updates_of(region))
    attrs = (
        ("anchor", region.attr("anchor")),
        ("body", replace(body, inputs=inputs)),
        ("updates", moved),
    )
    return packs, replace(region, ins=ins, attrs=attrs), next_id
