"""Schedule "stream": a product of few rows at the speed of memory, on a card.

A group a compute unit. Numbers are those that were fastest in a whole decode on an H200. Loads on
their way take level-1 cache, which a unit shares out anew only when it is idle: a group that leaves
room beside itself, for one of a launch that asks much workgroup memory, may lose it.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.ir.graph import Eqn, Graph
from poot.limits import DeviceLimits
from poot.passes.regions.streams import cone_inputs, piece_width, why_not_stream
from poot.planner.request import Schedule

WARPS = 16
# Loads on their way in a lane: 128 KiB in each unit, which take all its registers.
DEPTH = 16
# Rows up to which registers are left for so many; the same for more.
MANY_ROWS, LESS_DEPTH = 4, 8
RESIDENTS = 1
# Elements of the left operand's array at the least: so many that no group of a stream stands beside
# one of "grouped", which leaves a unit 18 KiB of workgroup memory and next to no level-1 cache.
LEAST = 5120
_FOLDS = 2 * WARPS  # a partial fold a subgroup, of two kinds at most


def why_not(body: Graph, products: list[Eqn], limits: DeviceLimits) -> str:
    """What keeps a step from this schedule, or ""."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    widths = set[int]()
    for product in products:
        reason = why_not_stream(makers, product, limits)
        if reason:
            return reason
        widths.add(piece_width(cone_inputs(makers, product.ins[1]) or ()))
    if len(widths) > 1:
        return "products of unlike weights"
    rows, depth = products[0].out.type.shape[-2], products[0].ins[0].type.shape[-1]
    most = sum(-(-p.out.type.shape[-1] // limits.compute_units) + 2 for p in products)
    elems = max(rows * depth, LEAST) + rows * (depth // widths.pop() + most) + _FOLDS
    if elems * 4 > limits.workgroup_nbytes:
        return f"{rows} rows of {depth} terms and their sums fill the workgroup memory"
    return ""


def choose_stream(body: Graph, products: list[Eqn], limits: DeviceLimits) -> Schedule:
    """The numbers, for products that `why_not` says nothing against."""
    makers = {v.id: e for e in body.eqns for v in e.outs}
    width = piece_width(cone_inputs(makers, products[0].ins[1]) or ())
    rows = products[0].out.type.shape[-2]
    cols = sum(p.out.type.shape[-1] for p in products)
    groups = max(len(products), min(limits.compute_units, cols))
    warps = WARPS
    while warps > 4 and cols <= groups * warps // 2:
        warps //= 2
    params = {
        "depth": DEPTH if rows <= MANY_ROWS else LESS_DEPTH, "groups": groups,
        "residents": RESIDENTS, "warps": warps, "width": width,
    }  # fmt: skip
    return Schedule("stream", tuple(sorted(params.items())))


def share_groups(costs: Sequence[tuple[int, int]], groups: int) -> list[int]:
    """How many groups each of several segments gets, of (columns, products a column): as even as
    may be, one at least, no more than columns."""
    counts = [1] * len(costs)
    for _ in range(groups - len(costs)):
        loads = [
            0.0 if counts[n] >= cols else cols * each / counts[n]
            for n, (cols, each) in enumerate(costs)
        ]
        counts[loads.index(max(loads))] += 1
    return counts
