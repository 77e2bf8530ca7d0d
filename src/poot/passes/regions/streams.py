"""Which products of few rows stream: weights read once, in whole pieces of 16 bytes, by the lanes of
a subgroup side by side.

Both the regions (whose launch turns pairs at its end) and the planner ask, so it is said here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from poot.ir.dtypes import DTYPES, is_integer
from poot.ir.graph import Eqn, Var
from poot.limits import DeviceLimits
from poot.passes.regions.table import ELEMENTWISE

# Rows up to which a lane keeps a sum for each.
STREAM_ROWS = 4
# Codes that share a scale.
CODES = 32
PIECE_NBYTES = 16
# Ops between a weight as it lies and the product.
_MOVES = ("transpose", "reshape", "broadcast", "iota", "const")
# Of a compute unit's workgroup memory, so that the next launch's groups find room.
_MOST_STAGED = 2

Makers = Mapping[int, Eqn]


def cone_inputs(makers: Makers, var: Var) -> tuple[Var, ...] | None:
    """What a value is computed from where only moves and elementwise ops stand between, in the
    order of its reading; None where another op does."""
    found: dict[int, Var] = {}
    seen = set[int]()
    stack = [var]
    while stack:
        v = stack.pop()
        if v.id in seen:
            continue
        seen.add(v.id)
        eqn = makers.get(v.id)
        if eqn is None:
            found[v.id] = v
        elif eqn.op in ELEMENTWISE or eqn.op in _MOVES:
            stack.extend(reversed(eqn.ins))
        else:
            return None
    return tuple(found.values())


def piece_width(inputs: tuple[Var, ...]) -> int:
    """Terms that a lane takes together: those of 16 bytes of the largest input; of codes in words,
    those that share a scale."""
    largest = max(inputs, key=lambda v: v.type.elems * DTYPES[v.type.dtype].nbytes)
    row = DTYPES[largest.type.dtype]
    return CODES if is_integer(largest.type.dtype) and row.nbytes == 4 else PIECE_NBYTES // row.nbytes


def why_not_stream(makers: Makers, product: Eqn, in_a_row: bool, limits: DeviceLimits) -> str:
    """What keeps a product from streaming, or "". `in_a_row`: the summed axis of the right operand
    lies in a row in memory."""
    if limits.target != "ptx" or limits.subgroup != 32:
        return f"{limits.name} has no schedule that streams"
    shape = product.out.type.shape
    rows, depth = shape[-2], product.ins[0].type.shape[-1]
    if math.prod(shape[:-2]) != 1 or not 0 < rows <= STREAM_ROWS:
        return f"products of shape {shape}"
    if not in_a_row:
        return "columns of the right operand lie in a row"
    inputs = cone_inputs(makers, product.ins[1])
    if not inputs:
        return "the right operand is more than a weight decoded"
    width = piece_width(inputs)
    if not depth or depth % width:
        return f"a row of {depth} terms is no whole number of pieces of {width}"
    if rows * depth * 4 > limits.workgroup_nbytes // _MOST_STAGED:
        return f"{rows} rows of {depth} terms fill the workgroup memory"
    return ""
