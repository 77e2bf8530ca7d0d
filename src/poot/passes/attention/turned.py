"""Scores whose axes are permuted between the product with the keys and the softmax, as einsum of
grouped heads leaves them, in an order without a permutation.

before   s = matmul(q, k)               after   s = matmul(q', k')      q' [b,n,g,rows,d]
             [b,n,rows*g,keys]                      [b,n,g,rows,keys]   k' repeated over g
         t = transpose(reshape(s))              w = softmax(s + mask')
             [g,b,n,rows,keys]                  o = matmul(w, v')       v' repeated over g
         w = softmax(t + mask)
         o = matmul(transpose(w), v)            and o moved to where it was
Needs canonical form. Leaves no transpose between such products, but masks turned instead and keys
repeated, which pays only where the chain becomes attention: `fuse_attention` keeps the graph as it
was where that does not come of it. Sums are over the same elements in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.ir.attrs import bool_attr, ints_attr
from poot.ir.graph import Eqn, Graph, Var
from poot.passes.attention.views import Axis, View, moved, reshaped, whole
from poot.passes.engine import Outcome, Rule, Scope, rewrite
from poot.passes.regions.table import ELEMENTWISE

_DEEPEST = 12
_MOST_SEEN = 48


def without_turns(graph: Graph) -> Outcome | None:
    """The graph with every such pair of products in order, or None where there is none."""
    turner = Turner(before_exps(graph))
    rules = (
        Rule("turned_scores", ("transpose",), turner.at_transpose),
        Rule("turned_step", tuple(sorted(ELEMENTWISE | {"reduce"})), turner.at_step),
        Rule("turned_values", ("matmul",), turner.at_product),
    )
    got = rewrite(graph, rules)
    return got if any(name == "turned_values" for name, _ in got.fired) else None


def before_exps(graph: Graph) -> frozenset[int]:
    """The transposes that elementwise steps and reductions alone keep from an exp: those of scores,
    if it is a softmax's."""
    made = {out.id: eqn for eqn in graph.eqns for out in eqn.outs}
    found: set[int] = set()
    for eqn in graph.eqns:
        stack, seen = [v for v in eqn.ins if eqn.op == "exp"], 0
        while stack and seen < _MOST_SEEN:
            seen += 1
            maker = made.get(stack.pop().id)
            if maker is None:
                continue
            if maker.op == "transpose":
                found.add(maker.out.id)
            elif maker.op in ELEMENTWISE or maker.op in ("reduce", "reshape"):
                stack.extend(maker.ins)
    return frozenset(found)


class Turner:
    """The rules, for the transposes of `scores`. `sources` has, for each value that is a transpose
    of one in order, that value and the permutation; `folded`, for each value that was transposed
    so, what it is in order, and its own permutation."""

    def __init__(self, scores: frozenset[int]) -> None:
        self.scores = scores
        self.sources: dict[int, tuple[Var, tuple[int, ...]]] = {}
        self.folded: dict[int, tuple[Var, tuple[int, ...]]] = {}

    def _turned(self, scope: Scope, source: Var, perm: tuple[int, ...]) -> Var:
        out = scope.emit("transpose", source, perm=perm)
        self.sources[out.id] = (source, perm)
        return out

    def at_transpose(self, eqn: Eqn, scope: Scope) -> Var | None:
        """A product whose batch axes and rows are permuted: the product in order, permuted."""
        if eqn.out.id not in self.scores or not eqn.out.type.elems:
            return None
        found, between = _scores_back(scope, eqn)
        made = scope.producer(found.base) if found is not None else None
        if found is None or made is None or made.op != "matmul" or len(made.out.type.shape) < 3:
            return None
        if any(v.type.shape[:-2] != made.out.type.shape[:-2] for v in made.ins):
            return None  # an operand is stretched over the batch
        product, view = _with_keys_last(scope, made, found)
        order = _order(view, product.shape)
        if order is None:
            return None
        source = _in_order(scope, product, view, order)
        for step in between:
            ins = tuple(source if v.type.shape else v for v in step.ins)
            source = scope.emit(step.op, *ins, **dict(step.attrs))
        axes = order.axes
        perm = tuple(axes.index(n) for n in range(len(axes)))
        self.folded[eqn.ins[0].id] = (source, ints_attr(eqn, "perm"))
        return self._turned(scope, source, perm)

    def at_step(self, eqn: Eqn, scope: Scope) -> Var | None:
        """A step of turned values is a step of values in order, turned."""
        if len(eqn.outs) != 1:
            return None
        perm = next((self.sources[v.id][1] for v in eqn.ins if v.id in self.sources), None)
        if perm is None or len(eqn.out.type.shape) != len(perm):
            return None
        last = len(perm) - 1
        if eqn.op == "reduce" and (
            ints_attr(eqn, "axis") != (last,) or not bool_attr(eqn, "keepdim")
        ):
            return None
        ins: list[Var] = []
        for v in eqn.ins:
            source, own = self.sources.get(v.id, (None, perm))
            if own != perm:
                return None
            source = source if source is not None else self._fold(scope, v)
            ins.append(source if source is not None else _turned_back(scope, v, perm))
        return self._turned(scope, scope.emit(eqn.op, *ins, **dict(eqn.attrs)), perm)

    def _fold(self, scope: Scope, v: Var) -> Var | None:
        """A reduction of scores before they were transposed, which was transposed by itself: that
        of the scores in order."""
        moves: list[Eqn] = []
        eqn = scope.producer(v)
        while eqn is not None and eqn.op in ("reshape", "transpose") and len(moves) < _DEEPEST:
            moves.append(eqn)
            eqn = scope.producer(eqn.ins[0])
        if eqn is None or eqn.op != "reduce" or eqn.ins[0].id not in self.folded:
            return None
        source, perm = self.folded[eqn.ins[0].id]
        base, last = whole(eqn.out), len(eqn.out.type.shape) - 1
        if ints_attr(eqn, "axis") != (last,) or not bool_attr(eqn, "keepdim"):
            return None
        view = _moved_by(eqn.out, moves)
        if view is None or view.axes != tuple(base.axes[p] for p in perm):
            return None
        attrs = {**dict(eqn.attrs), "axis": (len(source.type.shape) - 1,)}
        return scope.emit("reduce", source, **attrs)

    def at_product(self, eqn: Eqn, scope: Scope) -> Var | None:
        """The product of turned weights and values is that of weights in order, moved."""
        weights, values = eqn.ins
        lead = weights.type.shape[:-2]
        if values.type.shape[:-2] != lead or not eqn.out.type.elems:
            return None
        found = _weights_back(scope, weights, self.sources)
        if found is None:
            return None
        source = found.base
        steps = whole(source).axes
        places = _places(found, steps)
        if places is None or places[-1] != [len(steps) - 1]:
            return None
        if steps[-2] and len(steps) - 2 not in places[-2]:
            return None
        batch = [n for place in places[:-2] for n in place]
        k, d = values.type.shape[-2:]
        shape = source.type.shape
        apart = reshaped(scope, values, (*(shape[n] for n in batch), k, d))
        order = sorted(range(len(batch)), key=lambda n: batch[n])
        if order != list(range(len(order))):
            apart = scope.emit("transpose", apart, perm=(*order, len(order), len(order) + 1))
        ones = [shape[n] if n in batch else 1 for n in range(len(shape) - 2)]
        wide = reshaped(scope, apart, (*ones, k, d))
        if tuple(ones) != shape[:-2]:
            wide = scope.emit("broadcast", wide, shape=(*shape[:-2], k, d))
        out = scope.emit("matmul", source, wide)
        perm = (*batch, *places[-2], len(shape) - 1)
        missing = [n for n in range(len(shape)) if n not in perm]  # of extent 1
        return reshaped(
            scope, scope.emit("transpose", out, perm=(*missing, *perm)), eqn.out.type.shape
        )


def _scores_back(scope: Scope, eqn: Eqn) -> tuple[View | None, list[Eqn]]:
    """(what a transpose is a view of, but for steps by numbers, where it ends at a product; those
    steps in order)."""
    moves: list[Eqn] = []
    between: list[Eqn] = []
    made: Eqn | None = eqn
    while made is not None and len(moves) + len(between) < _DEEPEST:
        if made.op in ("reshape", "transpose"):
            moves.append(made)
            made = scope.producer(made.ins[0])
            continue
        whole_ins = [v for v in made.ins if v.type.shape]
        if made.op not in ELEMENTWISE or len(whole_ins) != 1:
            break
        between.append(made)
        made = scope.producer(whole_ins[0])
    if made is None:
        return None, []
    return _moved_by(made.outs[0], moves), between[::-1]


def _weights_back(
    scope: Scope, var: Var, known: dict[int, tuple[Var, tuple[int, ...]]]
) -> View | None:
    """What var is a view of by reshapes and transposes, of what a known value is a transpose of."""
    moves: list[Eqn] = []
    eqn = scope.producer(var)
    while eqn is not None and eqn.op in ("reshape", "transpose") and len(moves) < _DEEPEST:
        moves.append(eqn)
        if eqn.out.id in known:
            return _moved_by(eqn.ins[0], moves)
        eqn = scope.producer(eqn.ins[0])
    return None


def _moved_by(base: Var, moves: list[Eqn]) -> View | None:
    """The base as those moves leave it, the last of them first; None where that is no view."""
    axes: tuple[Axis, ...] | None = whole(base).axes
    for step in reversed(moves):
        axes = moved(step, axes) if axes is not None else None
    return View(base, axes) if axes is not None else None


@dataclass(frozen=True, slots=True)
class _Product:
    """matmul(a, b), which may not stand in the graph."""

    a: Var
    b: Var
    shape: tuple[int, ...]


def _with_keys_last(scope: Scope, made: Eqn, view: View) -> tuple[_Product, View]:
    """The product, and the view of it; where the view's last axis is the product's rows, those of
    matmul(b^T, a^T)."""
    a, b = made.ins
    *lead, rows, keys = made.out.type.shape
    if view.axes[-1] != ((rows, keys),):
        return _Product(a, b, made.out.type.shape), view

    def turned(axis: Axis) -> Axis:
        return tuple(
            (n, s if s >= rows * keys else s // keys if s >= keys else s * rows) for n, s in axis
        )

    perm = (*range(len(lead)), len(lead) + 1, len(lead))
    left, right = (scope.emit("transpose", x, perm=perm) for x in (b, a))
    axes = tuple(turned(axis) for axis in view.axes)
    return _Product(left, right, (*lead, keys, rows)), View(view.base, axes)


@dataclass(frozen=True, slots=True)
class _Order:
    """The axes of permuted scores in order: `batch`, then `rows`, the last of which stay rows, then
    the keys."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        return (*self.batch, *self.rows, len(self.batch) + len(self.rows))


def _order(view: View, shape: tuple[int, ...]) -> _Order | None:
    """None where an axis is made of several, or the keys are not last."""
    rows, keys = shape[-2:]
    if view.axes[-1] != (((keys, 1),) if keys != 1 else ()) or any(len(a) > 1 for a in view.axes):
        return None
    batch: list[tuple[int, int]] = []
    apart: list[int] = []
    second = len(view.axes) - 2
    for n, axis in enumerate(view.axes[:-1]):
        extent, stride = axis[0] if axis else (1, 0)
        if n == second and not axis:
            apart.append(n)
        elif not axis or stride >= rows * keys:
            batch.append((-stride, n))
        elif extent * stride <= rows * keys:
            apart.append(n)
        else:
            return None
    return _Order(tuple(n for _, n in sorted(batch)), tuple(apart)) if apart else None


def _in_order(scope: Scope, product: _Product, view: View, order: _Order) -> Var:
    """The product, whose operands have its batch, with its axes in that order: where its rows are
    several axes, one of them stays the rows and b is repeated over the others."""
    a, b, shape = product.a, product.b, product.shape
    batch = tuple(_extent(view, n) for n in order.batch)
    rows = tuple(_extent(view, n) for n in order.rows)
    if len(rows) == 1:
        return reshaped(scope, scope.emit("matmul", a, b), (*batch, *rows, shape[-1]))
    strides = [view.axes[n][0][1] if view.axes[n] else 0 for n in order.rows]
    lies = sorted(range(len(rows)), key=lambda n: -strides[n])
    width, lead = a.type.shape[-1], len(batch)
    left = reshaped(scope, a, (*batch, *(rows[n] for n in lies), width))
    perm = (*range(lead), *(lead + lies.index(n) for n in range(len(rows))), lead + len(rows))
    if list(perm) != sorted(perm):
        left = scope.emit("transpose", left, perm=perm)
    right = reshaped(scope, b, (*batch, *(1,) * (len(rows) - 1), width, shape[-1]))
    right = scope.emit("broadcast", right, shape=(*batch, *rows[:-1], width, shape[-1]))
    return scope.emit("matmul", left, right)


def _extent(view: View, axis: int) -> int:
    return view.axes[axis][0][0] if view.axes[axis] else 1


def _turned_back(scope: Scope, v: Var, perm: tuple[int, ...]) -> Var:
    """An operand that meets a turned value, for that value in order."""
    if v.type.elems == 1 and not v.type.shape:
        return v
    shape = (1,) * (len(perm) - len(v.type.shape)) + v.type.shape
    back = tuple(perm.index(n) for n in range(len(perm)))
    return scope.emit("transpose", reshaped(scope, v, shape), perm=back)


def _places(view: View, steps: tuple[Axis, ...]) -> list[list[int]] | None:
    """For each axis of the view the axes of the base that it runs over; those of extent 1 in none.
    None where one is cut."""
    at = {axis[0][1]: (n, axis[0][0]) for n, axis in enumerate(steps) if axis}
    out: list[list[int]] = []
    for axis in view.axes:
        place: list[int] = []
        for n, stride in axis:
            left, end = n, n * stride
            while left > 1:
                found = next(
                    ((i, e) for s, (i, e) in at.items() if s * e == end and left % e == 0), None
                )
                if found is None:
                    return None
                place.append(found[0])
                left, end = left // found[1], end // found[1]
        out.append(place)
    return out
