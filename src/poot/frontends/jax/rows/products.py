"""dot_general: a product over any axes, as matrices side by side.

Which operand is the left one does not matter to JAX, which says by a transpose what it wants. Here
the operand whose summed axes stand last is the left one, and of two such a weight the right one, so
that attention and a layer come out in the order of their rows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from poot import ops
from poot.frontends.foreign import Row, Site
from poot.ir.graph import Eqn, Var, Weight
from poot.ops.array import Array, reshape

Axes = Sequence[int]
_MOVES = ("cast", "reshape", "transpose")


def dot_general(
    site: Site, a: Array, b: Array, *_: object, dimension_numbers: tuple[tuple[Axes, Axes], ...],
    **__: object,
) -> Array:  # fmt: skip
    """[batch, free of a, free of b], summed over pairs of axes, in the dtype that the program says;
    the sum is held in f32."""
    (sum_a, sum_b), (batch_a, batch_b) = [tuple(map(tuple, pair)) for pair in dimension_numbers]
    a, b = a.astype(site.dtype), b.astype(site.dtype)
    free_a, free_b = _rest(a, sum_a, batch_a), _rest(b, sum_b, batch_b)
    lead = tuple(a.shape[n] for n in batch_a)
    rows, columns = tuple(a.shape[n] for n in free_a), tuple(b.shape[n] for n in free_b)
    if _is_turned(a, b, sum_a, sum_b):
        product = _product(b, a, (batch_b, free_b, sum_b), (batch_a, free_a, sum_a))
        k, m, n = len(lead), len(columns), len(rows)
        apart = reshape(product, (*lead, *columns, *rows))
        perm = (*range(k), *range(k + m, k + m + n), *range(k, k + m))
        return apart.transpose(perm) if apart.ndim else apart
    product = _product(a, b, (batch_a, free_a, sum_a), (batch_b, free_b, sum_b))
    return reshape(product, (*lead, *rows, *columns))


def _rest(x: Array, summed: Axes, batch: Axes) -> tuple[int, ...]:
    return tuple(n for n in range(x.ndim) if n not in summed and n not in batch)


def _product(
    a: Array, b: Array, order_a: tuple[Axes, Axes, Axes], order_b: tuple[Axes, Axes, Axes]
) -> Array:
    """[*batch, m, n] of the axes (batch, free, summed) of each operand."""
    lead = tuple(a.shape[n] for n in order_a[0])
    m, k = (math.prod(a.shape[n] for n in axes) for axes in order_a[1:])
    n = math.prod(b.shape[n] for n in order_b[1])
    batch_a, free_a, sum_a = order_a
    batch_b, free_b, sum_b = order_b
    left = reshape(_turned(a, (*batch_a, *free_a, *sum_a)), (*lead, m, k))
    right = reshape(_turned(b, (*batch_b, *sum_b, *free_b)), (*lead, k, n))
    return ops.matmul(left, right)


def _turned(x: Array, perm: tuple[int, ...]) -> Array:
    return x.transpose(perm) if perm else x


def _is_turned(a: Array, b: Array, sum_a: Axes, sum_b: Axes) -> bool:
    """Whether b is the left operand."""
    last_a, last_b = _stand_last(a, sum_a), _stand_last(b, sum_b)
    if last_a != last_b:
        return last_b
    return _is_weight(a) and not _is_weight(b)


def _stand_last(x: Array, summed: Axes) -> bool:
    return tuple(summed) == tuple(range(x.ndim - len(summed), x.ndim))


def _is_weight(x: Array) -> bool:
    """Whether a value is a weight, but for moves and casts."""
    builder, var = x.recorder.builder, x.var
    while (eqn := _made(builder.eqns, var)) is not None and eqn.op in _MOVES:
        var = eqn.ins[0]
    return any(i.var == var and isinstance(i.storage, Weight) for i in builder.inputs)


def _made(eqns: list[Eqn], var: Var) -> Eqn | None:
    """The eqn that makes var; their numbers ascend."""
    at = bisect_right(eqns, var.id, key=lambda e: e.outs[0].id) - 1
    return eqns[at] if at >= 0 and var in eqns[at].outs else None


PRODUCTS: dict[str, Row] = {"dot_general": dot_general}
