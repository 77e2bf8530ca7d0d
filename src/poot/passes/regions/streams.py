"""Which products of few rows stream: weights read once, in whole pieces of 16 bytes, by the lanes
of a subgroup side by side.

Both the regions (whose launch turns pairs at its end) and the planner ask, so it is said here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from poot.ir.attrs import ints_attr
from poot.ir.contiguity import is_summed_axis_in_a_row
from poot.ir.dtypes import DTYPES, is_integer
from poot.ir.graph import Eqn, Var
from poot.limits import DeviceLimits
from poot.passes.regions.table import ELEMENTWISE

# Rows up to which a lane keeps a sum for each.
STREAM_ROWS = 8
# Codes that share a scale.
CODES = 32
PIECE_NBYTES = 16
# Ops between a weight as it lies and the product.
_MOVES = ("transpose", "reshape", "broadcast", "iota", "const")
# Workgroup memory that is left for sums.
_SUMS_NBYTES = 32 << 10

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
    return (
        CODES if is_integer(largest.type.dtype) and row.nbytes == 4 else PIECE_NBYTES // row.nbytes
    )


def why_not_stream(makers: Makers, product: Eqn, limits: DeviceLimits) -> str:
    """What keeps a product from streaming, or ""."""
    if limits.target != "ptx" or limits.subgroup != 32:
        return f"{limits.name} has no schedule that streams"
    shape = product.out.type.shape
    rows, depth = shape[-2], product.ins[0].type.shape[-1]
    if math.prod(shape[:-2]) != 1 or not 0 < rows <= STREAM_ROWS or not shape[-1]:
        return f"products of shape {shape}"
    inputs = cone_inputs(makers, product.ins[1])
    if not inputs:
        return "the right operand is more than a weight decoded"
    if not is_summed_axis_in_a_row(makers, product):
        return "columns of the right operand lie in a row"
    width = piece_width(inputs)
    if not depth or depth % width:
        return f"a row of {depth} terms is no whole number of pieces of {width}"
    if rows * depth * 4 > limits.workgroup_nbytes - _SUMS_NBYTES:
        return f"{rows} rows of {depth} terms fill the workgroup memory"
    return ""


def stream_width(makers: Makers, product: Eqn, limits: DeviceLimits) -> int:
    """Terms of a piece of a product that streams, 0 where it doesn't."""
    if why_not_stream(makers, product, limits):
        return 0
    return piece_width(cone_inputs(makers, product.ins[1]) or ())


def turned_pairs(makers: Makers, rope: Eqn) -> int:
    """The width of the heads whose pairs a rotation turns, where it turns whole heads that lie side
    by side among one product's columns; 0 else."""
    width = 2 * rope.ins[1].type.shape[-1]
    x = rope.ins[0]
    if width < 2 or x.type.shape[-1] != width:
        return 0
    while (eqn := makers.get(x.id)) is not None:
        if eqn.op == "matmul":
            return width if eqn.out.type.shape[-1] % width == 0 else 0
        if eqn.op == "transpose":
            perm = ints_attr(eqn, "perm")
            if perm[-1] != len(perm) - 1:
                return 0
        elif eqn.op != "reshape" and eqn.op not in ELEMENTWISE:
            return 0
        alike = [v for v in eqn.ins if v.type.elems == eqn.outs[0].type.elems and v.id in makers]
        if not alike or alike[0].type.shape[-1] % width:
            return 0
        x = alike[0]
    return 0
